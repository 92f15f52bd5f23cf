"""A modern server over HTTP that answers each method as a test says, in the test's own loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Self

from tests.fakes import Json
from tests.program import BOUND_S
from tests.upstream.modern import discovered
from tests.upstreams.odd_http import Connection, Request

Respond = Callable[[Request, Connection], Awaitable[None]]


def with_result(result: Json) -> Respond:
    """Return what answers with this result."""

    async def respond(request: Request, to: Connection) -> None:
        await respond_json(to, {"jsonrpc": "2.0", "id": request.message["id"], "result": result})

    return respond


def with_error(status: int, error: Json, **members: Json) -> Respond:
    """Return what answers with this status and JSON-RPC error; the id is there only if it is given."""

    async def respond(_: Request, to: Connection) -> None:
        await respond_json(to, {"jsonrpc": "2.0", "error": error, **members}, status)

    return respond


def with_body(status: int, body: bytes, content_type: str = "text/plain") -> Respond:
    """Return what answers with this status and body."""

    async def respond(_: Request, to: Connection) -> None:
        await to.respond(status, body, content_type=content_type)

    return respond


async def respond_json(to: Connection, message: Json, status: int = 200) -> None:
    await to.respond(status, json.dumps(message).encode(), content_type="application/json")


class ScriptedHttp:
    """The server, while it is entered; `answers` may be changed meanwhile, `closed` counts broken connections."""

    def __init__(self, capabilities: Json = None, **answers: Respond) -> None:
        self.answers: dict[str, Respond] = {"server/discover": with_result(discovered(capabilities)), **answers}
        self.requests: list[Request] = []
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def received(self, method: str) -> list[Request]:
        """Return the requests with this method, in the order of their arrival."""
        return [request for request in self.requests if request.message.get("method") == method]

    async def receives(self, method: str, times: int = 1) -> Request:
        """Wait until so many requests with this method have come, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            while len(self.received(method)) < times:
                await self._arrived.wait()
        return self.received(method)[-1]

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                request = await connection.request()
                self.requests.append(request)
                self._arrived.set()
                self._arrived = asyncio.Event()
                await self.answers[request.message["method"]](request, connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()
