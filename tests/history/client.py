"""A client that writes down all that it sends and gets, and answers what it is asked with its own name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import weakref
from collections import Counter
from collections.abc import Callable

from tests.history.harness import Host, Line
from tests.history.patience import patience
from tests.history.record import (
    INTERRUPTED,
    NOWHERE,
    PART,
    Came,
    Expect,
    History,
    Json,
    Kind,
    Nonce,
    Operation,
    is_interrupted,
    is_unserved,
    nonces_in,
    parse,
)

CAPABILITIES: Json = {"sampling": {}, "elicitation": {}, "roots": {}}
_APPS: Json = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


# How long to wait at the end for log lines whose calls were answered.
_LOGS_WITHIN_S = 2.0


class RequestInterrupted(Exception):
    """A request was answered with the error that it may have run."""


class Client:
    """One session of a run. Its ids and tokens count from one, as those of every other."""

    def __init__(
        self, history: History, name: str, client: str, patience_s: float, *, shows_apps: bool = False
    ) -> None:
        self.name = name
        self.shows_apps = shows_apps
        self.client = client
        self.is_closed = False
        self.updates: list[str] = []
        self.may_answer: Callable[[], bool] = lambda: True
        # Of these operations, questions are held back, and answered by `answer_held`.
        self.late: set[Nonce] = set()
        self.held: dict[Nonce, tuple[dict[str, Json], bytes]] = {}
        self._history = history
        self.line: Line
        self._next = 0
        self._patience_s = patience_s
        self._answers: dict[int, asyncio.Future[dict[str, Json]]] = {}
        self._logging: dict[int, Operation] = {}  # those whose log lines must come
        self._logs: Counter[Nonce] = Counter()
        self._answered: set[int] = set()

    async def open(self, host: Host) -> None:
        """Connect and shake hands."""
        self._history.open(self.name, self.client, is_session=True)
        self.line = await host.open(self._take)
        about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": self.client, "version": "1"}}
        capabilities = {**CAPABILITIES, **(_APPS if self.shows_apps else {})}
        await self.request(
            self.operation("initialize", Expect.RESULT), "initialize", {**about, "capabilities": capabilities}
        )
        self._write({"method": "notifications/initialized"})

    async def close(self, how: str = "") -> list[weakref.ref[object]]:
        """End the session, whatever is in flight; the history gets `how`."""
        if not how:
            await self._hear_logs()
        self.is_closed = True
        references = await self.line.close()
        self._history.close(self.name, how)
        for answer in self._answers.values():
            answer.cancel()
        del self.line
        return references

    async def _hear_logs(self) -> None:
        """Wait for log lines that come over another stream than the answers: nothing orders the two."""
        due = [each for number, each in self._logging.items() if number in self._answered]
        with contextlib.suppress(TimeoutError):  # then the checker says what is missing
            async with patience(min(self._patience_s, _LOGS_WITHIN_S)):
                await self._history.until(lambda: all(self._logs[each.nonce] >= each.logs for each in due))

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
        if operation.logs:
            self._logging[number] = operation
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": method, "params": {**params, "_meta": meta}}, operation)
        return answer

    async def request(self, operation: Operation, method: str, params: Json) -> dict[str, Json]:
        """Send a request and return the answer. Raises RequestInterrupted."""
        return await self.wait_for(self.begin(operation, method, params))

    async def wait_for(self, answer: asyncio.Future[dict[str, Json]]) -> dict[str, Json]:
        """Wait for the answer to a request. Raises RequestInterrupted."""
        async with patience(self._patience_s):
            message = await answer
        if is_interrupted(message) or is_unserved(message):
            raise RequestInterrupted
        return message

    def lose_answer(self, number: int, kind: Kind) -> None:
        """Take it that no answer comes to a request, which is `CUT` or `REFUSED`."""
        self._history.fail(self.name, kind, number)
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result({"error": {"message": INTERRUPTED}})

    def answer_held(self, nonce: Nonce) -> None:
        """Answer a question that was held back, whether or not anybody still waits for it."""
        if nonce in self.held and not self.is_closed:
            self._reply(*self.held.pop(nonce))

    def cancel(self, operation: Operation) -> None:
        """Cancel a request, whose answer nobody waits for any more."""
        number = operation.nonce.number
        self._write(
            {"method": "notifications/cancelled", "params": {"requestId": number, "reason": str(operation.nonce)}}
        )
        self._answers.pop(number).cancel()

    async def hear_update(self, uri: str, after: int, within_s: float | None = None) -> None:
        """Wait until a resource was updated more often than so many times."""
        try:
            async with patience(within_s or self._patience_s):
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
        self.line.send(line)

    def _take(self, line: bytes, came: Came = NOWHERE) -> None:
        self._history.get(self.name, line.rstrip(b"\n"), "" if line.endswith(b"\n") else PART, came)
        try:
            message = parse(line)
        except ValueError:  # the checker says so
            return
        if "method" in message and "id" in message:
            asyncio.get_running_loop().call_soon(self._answer, message, line)
        elif "id" in message and (answer := self._answers.get(message["id"])) and not answer.done():
            answer.set_result(message)
            self._answered.add(message["id"])
        elif message.get("method") == "notifications/message":
            self._logs.update(nonces_in(line))
        elif message.get("method") == "notifications/resources/updated":
            self.updates.append(message["params"]["uri"])

    def _answer(self, question: dict[str, Json], line: bytes) -> None:
        held = self.late & nonces_in(line)
        if held:
            self.held[held.pop()] = (question, line)
            self._history.wake()
        elif not self.is_closed and self.may_answer():
            self._reply(question, line)

    def _reply(self, question: dict[str, Json], line: bytes) -> None:
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
