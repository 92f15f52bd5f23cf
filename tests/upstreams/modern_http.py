"""The server of conformance_modern.py over streamable HTTP, in the loop that it is entered in.

A request that something is sent for before its answer is answered with a stream. A client that goes away, cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING or __package__:
    from .modern_request import Json, Refusal
    from .modern_server import ModernServer, read_message
    from .odd_http import Connection, Request, message_event
else:  # started by its path, as an upstream is
    from modern_request import Json, Refusal
    from modern_server import ModernServer, read_message
    from odd_http import Connection, Request, message_event

__all__ = ["ModernHttp"]

PATH = "/mcp"
_LOCAL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?", re.IGNORECASE)


class _Answer(NamedTuple):
    status: int
    message: Json


class ModernHttp:
    """The listener, while it is entered; `requests` are all that came, and `server` can be changed meanwhile."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.server = ModernServer()
        self.requests: list[Request] = []
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self.server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def received(self, method: str) -> list[Request]:
        """Return the requests with this method, in the order of their arrival."""
        return [request for request in self.requests if request.body and request.message.get("method") == method]

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                request = await connection.request()
                self.requests.append(request)
                await self._respond(request, connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _respond(self, request: Request, to: Connection) -> None:
        headers = request.headers
        origin = headers.get("origin")
        if not _LOCAL.fullmatch(headers.get("host", "")) or (origin is not None and not _LOCAL.fullmatch(origin)):
            await to.respond(403)
        elif request.path != PATH:
            await to.respond(404)
        elif request.method != "POST":
            await to.respond(405, allow="POST")
        elif headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            await to.respond(415)
        elif not {"application/json", "text/event-stream"} <= _media_types(headers.get("accept", "")):
            await to.respond(406)
        else:
            await self._exchange(request, to)

    async def _exchange(self, request: Request, to: Connection) -> None:
        """Answer a request, unless its client goes away meanwhile."""
        outbox: asyncio.Queue[_Answer | Json] = asyncio.Queue()
        answering = asyncio.create_task(self._answer(request, outbox))
        gone = asyncio.create_task(to.closed())
        pouring = asyncio.create_task(_pour(outbox, to, gone))
        try:
            await asyncio.wait((pouring, gone), return_when=asyncio.FIRST_COMPLETED)
            if not gone.cancelled() and gone.done():
                raise ConnectionError
            await pouring
        finally:
            for task in (answering, gone, pouring):
                task.cancel()
            await asyncio.wait((answering, gone, pouring))

    async def _answer(self, request: Request, outbox: asyncio.Queue[_Answer | Json]) -> None:
        try:
            message = read_message(request.body)
        except Refusal as refusal:
            outbox.put_nowait(_Answer(refusal.status, {"jsonrpc": "2.0", "error": refusal.error}))
            return
        status, answer = await self.server.answer(
            message, outbox.put_nowait, open_stream=lambda: outbox.put_nowait(None), headers=request.headers
        )
        outbox.put_nowait(_Answer(status, answer))


def _media_types(accept: str) -> set[str]:
    return {part.partition(";")[0].strip().lower() for part in accept.split(",")}


async def _pour(outbox: asyncio.Queue[_Answer | Json], to: Connection, gone: asyncio.Task[None]) -> None:
    """Write what there is to write: an answer alone as JSON, messages and an answer as a stream."""
    message = await outbox.get()
    if isinstance(message, _Answer):
        await _stop_watching(gone)
        await to.respond(message.status, json.dumps(message.message).encode(), content_type="application/json")
        return
    await to.events(x_accel_buffering="no", cache_control="no-cache")
    while not isinstance(message, _Answer):
        if message is not None:
            await to.event(message_event(message))
        message = await outbox.get()
    await to.event(message_event(message.message))
    await _stop_watching(gone)
    await to.end_events()


async def _stop_watching(gone: asyncio.Task[None]) -> None:
    """Leave the connection to whoever reads the next request from it."""
    gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
