"""The nonce server over streamable HTTP: what it says about a request goes into the stream of that request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.history.nonce_server import NonceServer
from tests.history.record import History, parse
from tests.upstreams.odd_http import Connection, Request


class _HttpInstance:
    """One session of the server's; an empty line ends a stream."""

    def __init__(self, name: str, group: str, history: History) -> None:
        self.name = name
        self.unprompted: asyncio.Queue[bytes] = asyncio.Queue()
        self._server = NonceServer(group, self._write)
        self._history = history
        self._streams: dict[int, asyncio.Queue[bytes]] = {}

    def receive(self, body: bytes) -> asyncio.Queue[bytes]:
        """Take a message and return the stream on which its consequences come."""
        self._history.get(self.name, body)
        message = parse(body)
        stream: asyncio.Queue[bytes] = asyncio.Queue()
        if "method" in message and "id" in message:
            self._streams[message["id"]] = stream
        if message.get("method") == "notifications/cancelled":
            self._end(message["params"]["requestId"])
        was_busy = self._server.is_busy
        self._server.receive(body)
        if not was_busy:
            asyncio.get_running_loop().call_soon(self._turn)
        return stream

    def _turn(self) -> None:
        if self._server.is_busy:
            self._server.turn()
            asyncio.get_running_loop().call_soon(self._turn)

    def _write(self, line: bytes, about: int | None) -> None:
        self._history.send(self.name, line)
        message = parse(line)
        stream = self.unprompted if about is None else self._streams.get(about, self.unprompted)
        stream.put_nowait(line)
        if "method" not in message:
            self._end(message["id"])

    def _end(self, id: int) -> None:
        stream = self._streams.pop(id, None)
        if stream is not None:
            stream.put_nowait(b"")


class NonceHttp:
    """The listener: an instance for each session of a client."""

    def __init__(self, group: str, history: History) -> None:
        self._group = group
        self._history = history
        self._instances: dict[str, _HttpInstance] = {}
        self._begun = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen and hand out the URL."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                await self._answer(await connection.request(), connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _answer(self, request: Request, to: Connection) -> None:
        id = request.headers.get("mcp-session-id", "")
        if request.method == "POST" and request.message.get("method") == "initialize":
            await self._initialize(request, to)
        elif id not in self._instances:
            await to.respond(404)
        elif request.method == "GET":
            await to.events()
            await _pour(self._instances[id].unprompted, to)
        elif request.method == "DELETE":
            self._history.close(self._instances.pop(id).name)
            await to.respond(200)
        elif "method" in request.message and "id" in request.message:
            stream = self._instances[id].receive(request.body)
            await to.events()
            await _pour(stream, to)
            await to.end_events()
        else:
            self._instances[id].receive(request.body)
            await to.respond(202)

    async def _initialize(self, request: Request, to: Connection) -> None:
        self._begun += 1
        id = f"{self._group}-{self._begun}"
        instance = self._instances[id] = _HttpInstance(f"{self._group}#{self._begun}", self._group, self._history)
        answer = await instance.receive(request.body).get()
        await to.respond(200, answer, content_type="application/json", mcp_session_id=id)


async def _pour(stream: asyncio.Queue[bytes], to: Connection) -> None:
    while line := await stream.get():
        await to.event(b"event: message\ndata: %b\n\n" % line)
