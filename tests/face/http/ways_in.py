"""Both ways in, with a handler that answers as the path says, and a client that reads what comes."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import pytest
import uvicorn

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.face.http.asgi import AsgiApp
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, Handler, RequestHead, Response
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.identity import Authentication
from tests.idle_loop import IdleLoop

MAX_BODY_BYTES = 1 << 20
GET = b"GET /now HTTP/1.1\r\nHost: test\r\n\r\n"
PLAIN = (b"content-type", b"text/plain")


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a POST with a Content-Length."""
    fields = "".join(f"{header}\r\n" for header in headers)
    return f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode() + body


@dataclass
class FakeCall:
    """A request that a handler has got."""

    head: RequestHead
    exchange: Exchange
    body: bytes = b""
    max_body_bytes: int = MAX_BODY_BYTES
    sender: Authentication | None = None
    is_refused: bool = False
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def receive_body(self, body: bytes) -> None:
        """Answer as the path says; `/hold` and `/attended` are answered by the test."""
        self.body = body
        self.complete.set()
        match self.head.target:
            case b"/hold" | b"/attended":
                pass
            case b"/stream":
                self.exchange.start(Response(200, (PLAIN,), b"first "))
            case b"/large":
                self.exchange.respond(Response(200, (), bytes(8 << 20)))
            case b"/bug":
                raise RuntimeError("a bug of the test")
            case _:
                self.exchange.respond(Response(200, (PLAIN,), describe(self.head, body)))

    @property
    def needs_client(self) -> bool:
        """Whether the answer is for a client that stays; `/attended` is."""
        return self.head.target == b"/attended"

    def refuse_body(self) -> None:
        """Answer 413."""
        self.is_refused = True
        self.exchange.respond(Response(413, (PLAIN,), b"too large"))

    def disconnected(self) -> None:
        """Note it."""
        assert not self.gone.is_set()
        self.gone.set()


class FakeHandler:
    """Keeps every request. `/now` is answered by its head."""

    def __init__(self) -> None:
        self.calls: list[FakeCall] = []
        self._queue = asyncio.Queue[FakeCall]()

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        """Take a request."""
        call = FakeCall(head, exchange)
        self.calls.append(call)
        self._queue.put_nowait(call)
        if head.target == b"/now":
            exchange.respond(Response(200, (PLAIN,), describe(head, b"")))
            return None
        return call

    async def next_call(self) -> FakeCall:
        """Return the next request that has begun."""
        return await self._queue.get()


def describe(head: RequestHead, body: bytes) -> bytes:
    """Return what a handler was given, for a client to read."""
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()}
    told = {"method": head.method, "target": head.target.decode(), "headers": fields, "body": body.decode("latin-1")}
    return json.dumps(told).encode()


@dataclass
class Reply:
    """A response as a client has read it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, object]:
        """What the handler had got."""
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def reply(self, *, has_body: bool = True) -> Reply:
        """Read the next response."""
        status, headers = await self.head()
        if not has_body or status in (100, 204, 304):
            return Reply(status, headers, b"")
        if "content-length" in headers:
            return Reply(status, headers, await self.reader.readexactly(int(headers["content-length"])))
        if headers.get("transfer-encoding") == "chunked":
            pieces = []
            while (piece := await self.chunk()) != b"":
                pieces.append(piece)
            return Reply(status, headers, b"".join(pieces))
        return Reply(status, headers, await self.reader.read())

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the head of a response."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        assert first.startswith("HTTP/1.1 ")
        return int(first.split(" ")[1]), {
            name.lower(): value for name, value in (line.split(": ", 1) for line in lines)
        }

    async def chunk(self) -> bytes:
        """Read one chunk of a streamed body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def ask(self, data: bytes) -> Reply:
        """Send a request and read its response."""
        self.send(data)
        return await self.reply()

    async def rest(self) -> bytes:
        """Read until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


class FakeClock:
    """Monotonic time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class WayIn(Protocol):
    """A way in that serves a handler at a port of loopback."""

    handler: FakeHandler

    async def connect(self) -> Client:
        """Return a new connection."""
        ...


class _Loopback:
    def __init__(self, handler: FakeHandler) -> None:
        self.handler = handler
        self.port = 0
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        """Return a new connection."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))
        self.clients.append(client)
        return client

    async def disconnect(self) -> None:
        """Close all connections."""
        for client in self.clients:
            await client.close()


class OurServer(_Loopback):
    """Our own server, whose time a test sets."""

    def __init__(self, handler: FakeHandler) -> None:
        super().__init__(handler)
        self.clock = FakeClock()
        self.server = HttpServer(handler, clock=self.clock, wall_clock=lambda: 1_700_000_000.0)

    async def settle(self) -> None:
        """Wait until the server has seen all that clients have done."""
        loop = asyncio.get_running_loop()
        if sys.platform == "win32":
            pytest.skip("what is sent on Windows may still be on its way when the loop is idle")
        assert isinstance(loop, IdleLoop)
        await loop.idle()

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.server.sweep()


@asynccontextmanager
async def our_server() -> AsyncIterator[OurServer]:
    """Serve a handler with our server."""
    ours = OurServer(FakeHandler())
    (address,) = await ours.server.open(TcpAddress(port=0))
    ours.port = address.port
    try:
        yield ours
    finally:
        await ours.server.abort()
        await ours.disconnect()


class Uvicorn(_Loopback):
    """The ASGI application, run by uvicorn."""


@asynccontextmanager
async def uvicorn_with(make_app: Callable[[Handler], object]) -> AsyncIterator[Uvicorn]:
    """Serve a handler with an ASGI application under uvicorn."""
    handler = FakeHandler()
    app = make_app(handler)
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none", http="httptools")  # type: ignore[arg-type]
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    await server.on_tick(0)  # which makes the Date
    way_in = Uvicorn(handler)
    way_in.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield way_in
    finally:
        for call in handler.calls:
            call.exchange.abort()
        await way_in.disconnect()
        server.force_exit = True
        await server.shutdown()


@asynccontextmanager
async def asgi() -> AsyncIterator[Uvicorn]:
    """Serve a handler as an ASGI application."""
    async with uvicorn_with(AsgiApp) as way_in:
        yield way_in
