"""The tools of conformance_modern.py as a server of MCP 2025-11-25 offers them, over stdio.

It asks in the middle of a call. It is there beside conformance.py because it starts at once: a suite that calls with
other capabilities than before, for which a proxy has to start another process, waits only 0.6 s for a message.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from . import conformance_offers as offers
    from .modern_request import INVALID_PARAMS, META, METHOD_NOT_FOUND, SERVER_INFO, VERSION, Json
    from .modern_server import ModernServer
    from .stdin_lines import stdin_lines
else:  # started by its path, as an upstream is
    import conformance_offers as offers
    from modern_request import INVALID_PARAMS, META, METHOD_NOT_FOUND, SERVER_INFO, VERSION, Json
    from modern_server import ModernServer
    from stdin_lines import stdin_lines

NEWEST = "2025-11-25"
RESOURCE_NOT_FOUND = -32002  # MCP 2025-11-25, server/resources
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
SHARED = (
    *("tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete"),
    *("resources/list", "resources/templates/list", "resources/read"),
)
TOOLS = {tool["name"] for tool in (*offers.TOOLS, offers.EXTRA["tools"])}
_MODERN_MEMBERS = ("resultType", "ttlMs", "cacheScope", "_meta")
_ASKS_IN_EVERY_WAY: Json = {"elicitation": {}, "sampling": {}, "roots": {}}


class Refused(Exception):
    """The client has refused to answer a question."""


class LegacyServer:
    """One session: a client that has said `initialize` once, and is asked by requests of the server's own."""

    def __init__(self) -> None:
        self._modern = ModernServer()
        self._capabilities: Json = {}
        self._level = "info"
        self._numbers = itertools.count(1)
        self._questions: dict[int, asyncio.Future[Json]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def receive(self, message: Json) -> None:
        """Take a message of the client."""
        method = message.get("method")
        if method is None:
            if (question := self._questions.get(message.get("id"))) is not None:
                question.set_result(message)
        elif method == "notifications/cancelled":
            if (task := self._tasks.get(json.dumps(message["params"]["requestId"]))) is not None:
                task.cancel()
        elif method == "notifications/initialized":
            self._start("listen", self._listen())
        elif "id" in message:
            self._start(json.dumps(message["id"]), self._answer(message))

    async def close(self) -> None:
        """End what is in flight."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, key: str, work: Json) -> None:
        task = self._tasks[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(key))

    def _send(self, **message: Json) -> None:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")
        sys.stdout.buffer.flush()

    async def _answer(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            self._capabilities = params["capabilities"]
            about = {"protocolVersion": min(params["protocolVersion"], NEWEST), "capabilities": CAPABILITIES}
            self._send(id=message["id"], result={**about, "serverInfo": SERVER_INFO})
        elif method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            self._level = params.get("level", self._level)
            self._send(id=message["id"], result={})
        elif method not in SHARED:
            self._send(id=message["id"], error={"code": METHOD_NOT_FOUND, "message": "Method not found"})
        elif method == "tools/call" and params["name"] not in TOOLS:
            self._send(id=message["id"], error={"code": INVALID_PARAMS, "message": "Unknown tool"})
        else:
            known = {name: value for name, value in params.items() if name not in ("inputResponses", "requestState")}
            self._send(id=message["id"], **await self._outcome(method, known))

    async def _outcome(self, method: str, params: Json) -> dict[str, Json]:
        """Return the result or the error of a request, for which the client may be asked first."""
        retry: Json = {}
        while True:
            answer = await self._request(method, {**params, **retry})
            result = answer.get("result")
            if result is None or result["resultType"] != "input_required":
                return _as_legacy(method, answer)
            try:
                answers = await asyncio.gather(*map(self._ask, result["inputRequests"].values()))
            except Refused as refused:
                return {"result": {"content": [offers.text(str(refused))], "isError": True}}
            retry = {"inputResponses": dict(zip(result["inputRequests"], answers, strict=True))}
            if "requestState" in result:
                retry["requestState"] = result["requestState"]

    async def _request(self, method: str, params: Json) -> Json:
        """Make a modern request of one of the client's; what is sent meanwhile goes to the client."""
        checks = params.get("name") == "test_input_required_result_capabilities"
        envelope = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientCapabilities": self._capabilities if checks else _ASKS_IN_EVERY_WAY,
            f"{META}logLevel": self._level,
        }
        meta = {**params.get("_meta", {}), **envelope}
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": {**params, "_meta": meta}}
        _, answer = await self._modern.answer(message, self._pass_on)
        return answer

    def _pass_on(self, message: Json) -> None:
        if message["method"] != "notifications/subscriptions/acknowledged":
            params = {name: value for name, value in message["params"].items() if name != "_meta"}
            self._send(method=message["method"], params=params)

    async def _ask(self, question: Json) -> Json:
        number = next(self._numbers)
        future = self._questions[number] = asyncio.get_running_loop().create_future()
        self._send(id=number, **question)
        try:
            answer = await future
        finally:
            del self._questions[number]
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer["result"]

    async def _listen(self) -> None:
        """Pass on what changes, until the session ends."""
        uris = [resource["uri"] for resource in offers.RESOURCES]
        lists = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
        await self._request("subscriptions/listen", {"notifications": {**lists, "resourceSubscriptions": uris}})


def _as_legacy(method: str, answer: Json) -> dict[str, Json]:
    """Return an answer without what only modern clients know."""
    if "error" in answer:
        error = answer["error"]
        is_missing = method == "resources/read" and error["code"] == INVALID_PARAMS
        return {"error": {**error, "code": RESOURCE_NOT_FOUND} if is_missing else error}
    result = {name: value for name, value in answer["result"].items() if name not in _MODERN_MEMBERS}
    if method == "tools/list":
        result["tools"] = [tool for tool in result["tools"] if tool["name"] in TOOLS]
    return {"result": result}


async def serve_stdio() -> None:
    """Serve what comes in on stdin, until it ends."""
    server = LegacyServer()
    async for line in stdin_lines(limit=64 << 20):
        server.receive(json.loads(line))
    await server.close()


if __name__ == "__main__":
    asyncio.run(serve_stdio())
