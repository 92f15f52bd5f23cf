"""The server of full.py over HTTP, in the test's loop: streamable HTTP, or the older HTTP+SSE.

What it says because of a request goes into the stream of that request, and into no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.mcp import wire
from tests.upstreams.full import Options, Server
from tests.upstreams.odd_http import Connection, Request


class _Session:
    """One client of the server; an empty line ends a stream."""

    def __init__(self, options: Options, *, older: bool) -> None:
        self.server = Server(options, self._write)
        self.unprompted: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams: dict[bytes, asyncio.Queue[bytes]] = {}
        self._is_older = older

    def receive(self, body: bytes) -> asyncio.Queue[bytes]:
        """Take a message and return the stream on which its consequences come."""
        id = bytes(wire.parse(body).id)
        stream: asyncio.Queue[bytes] = asyncio.Queue()
        if b'"method"' in body and id and not self._is_older:
            self._streams[id] = stream
        self.server.receive(body)
        return stream

    def _write(self, line: bytes) -> None:
        frame = wire.parse(line)
        id = bytes(frame.id)
        latest = next(reversed(self._streams.values()), self.unprompted)
        stream = latest if frame.method else self._streams.pop(id, self.unprompted)
        stream.put_nowait(line.rstrip(b"\n"))
        if not frame.method and stream is not self.unprompted:
            stream.put_nowait(b"")


class FullHttp:
    """The listener: a session for each client."""

    def __init__(self, options: Options, *, older: bool) -> None:
        self._options = options
        self._is_older = older
        self._sessions: dict[str, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen and hand out the URL."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}/{'sse' if self._is_older else 'mcp'}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        answer = self._answer_older if self._is_older else self._answer
        try:
            while True:
                await answer(await connection.request(), connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _answer(self, request: Request, to: Connection) -> None:
        id = request.headers.get("mcp-session-id", "") or f"s{len(self._sessions)}"
        session = self._sessions.setdefault(id, _Session(self._options, older=False))
        if request.method == "GET":
            await to.events()
            await _pour(session.unprompted, to)
        elif request.method == "DELETE":
            await to.respond(405)
        elif not wire.parse(request.body).method or not len(wire.parse(request.body).id):
            session.receive(request.body)
            await to.respond(202)
        else:
            await self._stream(session.receive(request.body), to, id)

    async def _stream(self, stream: asyncio.Queue[bytes], to: Connection, session: str) -> None:
        first = await stream.get()
        if stream.qsize() == 1 and b'"method"' not in first[:100]:  # the answer, and nothing else
            await to.respond(200, first, content_type="application/json", mcp_session_id=session)
            return
        await to.events(mcp_session_id=session)
        await to.event(b"data: %b\n\n" % first)
        await _pour(stream, to)
        await to.end_events()

    async def _answer_older(self, request: Request, to: Connection) -> None:
        if request.method == "GET":
            id = str(len(self._sessions))
            session = self._sessions[id] = _Session(self._options, older=True)
            await to.events()
            await to.event(f"event: endpoint\ndata: /messages?session={id}\n\n".encode())
            await _pour(session.unprompted, to)
        else:
            await to.respond(202, b"Accepted")
            self._sessions[request.path.rpartition("=")[2]].receive(request.body)


async def _pour(stream: asyncio.Queue[bytes], to: Connection) -> None:
    while line := await stream.get():
        await to.event(b"event: message\ndata: %b\n\n" % line)
