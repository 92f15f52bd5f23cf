"""A client that writes down all that it sends and gets, and answers what it is asked with its own name."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable

from tests.history.harness import Host, Line
from tests.history.record import Expect, History, Json, Nonce, Operation, nonces_in, parse

CAPABILITIES: Json = {"sampling": {}, "elicitation": {}, "roots": {}}


class Client:
    """One session of a run. Its ids and tokens count from one, as those of every other."""

    def __init__(self, history: History, name: str, client: str, patience_s: float) -> None:
        self.name = name
        self.client = client
        self.is_closed = False
        self.updates: list[str] = []
        self.may_answer: Callable[[], bool] = lambda: True
        self._history = history
        self._line: Line
        self._next = 0
        self._patience_s = patience_s
        self._answers: dict[int, asyncio.Future[dict[str, Json]]] = {}

    async def open(self, host: Host) -> None:
        """Connect and shake hands."""
        self._history.open(self.name, self.client, is_session=True)
        self._line = await host.open(self._take)
        about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": self.client, "version": "1"}}
        await self.request(
            self.operation("initialize", Expect.RESULT), "initialize", {**about, "capabilities": CAPABILITIES}
        )
        self._write({"method": "notifications/initialized"})

    async def close(self) -> list[weakref.ref[object]]:
        """End the session, whatever is in flight."""
        self.is_closed = True
        references = await self._line.close()
        self._history.close(self.name)
        for answer in self._answers.values():
            answer.cancel()
        del self._line
        return references

    def operation(self, name: str, expect: Expect = Expect.NONCE, **facts: Json) -> Operation:
        """Return the next operation; its number is also the id of its request and its token."""
        self._next += 1
        return Operation(Nonce(self.name, self._next), name, expect, **facts)

    def begin(self, operation: Operation, method: str, params: Json) -> asyncio.Future[dict[str, Json]]:
        """Send a request; the answer comes later."""
        number = operation.nonce.number
        meta: dict[str, Json] = {"nonce": str(operation.nonce)}
        if operation.token is not None:
            meta["progressToken"] = operation.token
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": method, "params": {**params, "_meta": meta}}, operation)
        return answer

    async def request(self, operation: Operation, method: str, params: Json) -> dict[str, Json]:
        """Send a request and return the answer."""
        answer = self.begin(operation, method, params)
        async with asyncio.timeout(self._patience_s):
            return await answer

    def cancel(self, operation: Operation) -> None:
        """Cancel a request, whose answer nobody waits for any more."""
        number = operation.nonce.number
        self._write(
            {"method": "notifications/cancelled", "params": {"requestId": number, "reason": str(operation.nonce)}}
        )
        self._answers.pop(number).cancel()

    async def hear_update(self, uri: str, after: int) -> None:
        """Wait until a resource was updated more often than so many times."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._history.until(lambda: self.updates.count(uri) > after)
        except TimeoutError:
            raise AssertionError(f"{self.name} did not hear of an update of `{uri}`") from None

    def call_params(self, operation: Operation, group: str, tool: str, **arguments: Json) -> Json:
        """Return the params of a call of a tool of a group."""
        args = {"nonce": str(operation.nonce), **arguments}
        return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": tool, "args": args}}

    def _write(self, message: Json, operation: Operation | None = None) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._history.send(self.name, line, operation)
        self._line.send(line)

    def _take(self, line: bytes) -> None:
        self._history.get(self.name, line.rstrip(b"\n"))
        message = parse(line)
        if "method" in message and "id" in message:
            asyncio.get_running_loop().call_soon(self._answer, message, line)
        elif "id" in message and (answer := self._answers.get(message["id"])) and not answer.done():
            answer.set_result(message)
        elif message.get("method") == "notifications/resources/updated":
            self.updates.append(message["params"]["uri"])

    def _answer(self, question: dict[str, Json], line: bytes) -> None:
        if self.is_closed or not self.may_answer():
            return
        signature = " ".join(map(str, sorted({Nonce(self.name, 0), *nonces_in(line)})))
        answers: dict[str, Json] = {
            "sampling/createMessage": {
                "role": "assistant",
                "model": "m",
                "content": {"type": "text", "text": signature},
            },
            "elicitation/create": {"action": "accept", "content": {"by": signature}},
            "roots/list": {"roots": [{"uri": "file:///x", "name": signature}]},
        }
        self._write({"id": question["id"], "result": answers[question["method"]]})
