"""A raw client of HTTP/1.1 for tests: every byte of an answer can be seen, and a connection cut anywhere.

`tests/mcp_client.py` speaks MCP on top of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, cast
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 16
_HEAD_BYTES = 1 << 20
_WITHOUT_BODY = (204, 304)


class Disconnected(Exception):
    """The connection ended before the answer did. `received` is what had come of a head."""

    def __init__(self, connection: HttpConnection, received: bytes = b"") -> None:
        super().__init__(f"the connection ended after {received!r}")
        self.connection = connection
        self.received = received


@dataclass(frozen=True)
class ServerEvent:
    """An event of a stream. `id` is None where it has none, and `data` empty where it has none."""

    data: bytes
    id: str | None = None
    name: str = "message"
    retry_ms: int | None = None


class EventParser:
    """Splits a stream into events, by https://html.spec.whatwg.org/multipage/server-sent-events.html."""

    def __init__(self) -> None:
        self.comments = 0
        self._rest = b""
        self._fields: list[tuple[str, bytes]] = []

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take bytes, and return the events that end with them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if event := self._take(line.removesuffix(b"\r")):
                yield event

    def _take(self, line: bytes) -> ServerEvent | None:
        if line:
            name, _, value = line.partition(b":")
            self.comments += not name
            self._fields.append((name.decode(), value.removeprefix(b" ")))
            return None
        fields, self._fields = [each for each in self._fields if each[0]], []
        if not fields:
            return None
        data = b"\n".join(value for name, value in fields if name == "data")
        last = {name: value.decode() for name, value in fields if name != "data"}
        retry = int(last["retry"]) if last.get("retry", "").isdigit() else None
        return ServerEvent(data, last.get("id"), last.get("event") or "message", retry)


class Response:
    """An answer whose head has come. Its connection is free again once the body has been read to its end."""

    def __init__(self, connection: HttpConnection, status: int, headers: Mapping[str, str], body: _Body) -> None:
        self.connection = connection
        self.status = status
        self.headers = headers
        self.has_ended = False
        self._body = body
        self._parser = EventParser()
        self._events: deque[ServerEvent] = deque()

    def __repr__(self) -> str:
        return f"<Response {self.status} {dict(self.headers)}>"

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get("content-type", "").partition(";")[0].strip() == "text/event-stream"

    @property
    def comments(self) -> int:
        """How many comments have come in the events that were read."""
        return self._parser.comments

    async def pieces(self) -> AsyncIterator[bytes]:
        """Return the body as it comes. Raises Disconnected if the connection ends before it."""
        while piece := await self.next_piece():
            yield piece

    async def next_piece(self) -> bytes:
        """Wait for more of the body; nothing says that it has ended. Raises Disconnected."""
        if self.has_ended:
            return b""
        try:
            piece = await self._body.next_piece(self.connection.reader)
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise Disconnected(self.connection) from exc
        if not piece:
            self.has_ended = True
            self.connection.release()
        return piece

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def events(self) -> AsyncIterator[ServerEvent]:
        """Return the events as they come, until the stream ends."""
        while event := await self.next_event():
            yield event

    async def next_event(self) -> ServerEvent | None:
        """Wait for the next event; None says that the stream has ended. One that is cut off does not count."""
        if not self._events and not self.has_ended:
            while not self._events and (piece := await self.next_piece()):
                self._events.extend(self._parser.feed(piece))
        return self._events.popleft() if self._events else None

    def abort(self) -> None:
        """Cut the connection, wherever the answer is."""
        self.connection.abort()


class _Body:
    """How a body is framed, and how much of it is still to come; a wait that is cancelled loses nothing."""

    def __init__(self, *, length: int | None = None, is_chunked: bool = False) -> None:
        self.ends_with_connection = length is None and not is_chunked
        self._left = length
        self._is_chunked = is_chunked

    async def next_piece(self, reader: asyncio.StreamReader) -> bytes:
        if self._is_chunked:
            return await self._next_chunk(reader)
        if self._left is None:
            return await reader.read(_PIECE_BYTES)
        piece = await reader.read(min(self._left, _PIECE_BYTES)) if self._left else b""
        if self._left and not piece:
            raise ConnectionError
        self._left -= len(piece)
        return piece

    async def _next_chunk(self, reader: asyncio.StreamReader) -> bytes:
        if self._left is None:
            self._left = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if not self._left:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass  # a trailer
            return b""
        chunk = await reader.readexactly(self._left + 2)
        assert chunk.endswith(b"\r\n"), f"a chunk of {self._left} bytes does not end: {chunk[-20:]!r}"
        self._left = None
        return chunk[:-2]


def _frame(method: str, status: int, headers: Mapping[str, str]) -> _Body:
    """Return how the body of an answer is framed, by RFC 9112, section 6.3."""
    if method == "HEAD" or status in _WITHOUT_BODY:
        return _Body(length=0)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _Body(is_chunked=True)
    return _Body(length=int(headers["content-length"])) if "content-length" in headers else _Body()


class HttpConnection:
    """One connection. It takes one request at a time, unless bytes are written as they are.

    `opened_at` is when it began to connect, by the clock of the loop.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pool: HttpClient | None) -> None:
        self.reader = reader
        self.writer = writer
        self.authority = "" if pool is None else pool.authority
        self.opened_at = 0.0
        self.may_be_reused = True
        self._pool = pool

    async def request(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Response:
        """Send a request and return its answer, of which the head has come. Raises Disconnected."""
        self.write_request(method, target, headers, body)
        return await self.read_response(method)

    def write_request(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Write a request; bytes that cannot be sent at once wait in memory."""
        fields = {"Host": "localhost", **(headers or {})}
        if body is not None:
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    async def read_response(self, method: str = "POST") -> Response:
        """Wait for the head of an answer to a request with this method; those that are only interim are left out."""
        while True:
            status, headers = await self._read_head()
            if status >= 200:
                break
        if headers.get("connection", "").lower() == "close":
            self.may_be_reused = False
        body = _frame(method, status, headers)
        if body.ends_with_connection:
            self.may_be_reused = False
        return Response(self, status, headers, body)

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as exc:
            raise Disconnected(self, exc.partial) from exc
        except OSError as exc:
            raise Disconnected(self) from exc
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        assert first.startswith("HTTP/1."), f"`{first}` is not the begin of an answer"
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = ", ".join(filter(None, (headers.get(name.lower()), value.strip())))
        return int(first.split(" ")[1]), headers

    def release(self) -> None:
        """Give the connection back to the client that has opened it."""
        if self._pool is not None:
            self._pool.take_back(self)
        elif not self.may_be_reused:
            self.writer.close()

    def pause(self) -> None:
        """Read nothing more."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def abort(self) -> None:
        """Cut the connection; what was not sent is not sent any more."""
        self.may_be_reused = False
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed."""
        self.may_be_reused = False
        self.writer.close()
        with contextlib.suppress(OSError):  # the peer was faster
            await self.writer.wait_closed()


class HttpClient:
    """Sends requests to one server, each over a connection that is free, or over a new one.

    `url` is `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH`; what follows it is ignored.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.opened = 0
        self._url = urlsplit(url)
        self._tls = tls
        self._free: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def authority(self) -> str:
        """What belongs into the header `Host`."""
        return self._url.netloc or "localhost"

    async def connect(self) -> HttpConnection:
        """Open a connection, which is closed with this client at the latest."""
        began_at = asyncio.get_running_loop().time()
        if self._url.scheme == "unix":
            reader, writer = await asyncio.open_unix_connection(self._url.path, limit=_HEAD_BYTES)
        else:
            reader, writer = await asyncio.open_connection(
                self._url.hostname, self._url.port, limit=_HEAD_BYTES, ssl=self._tls
            )
        self.opened += 1
        connection = HttpConnection(reader, writer, self)
        connection.opened_at = began_at
        self._all.add(connection)
        return connection

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        is_fresh: bool = False,
    ) -> Response:
        """Send a request and return its answer, of which the head has come. Raises Disconnected."""
        connection = await self.begin(method, target, headers, body, is_fresh=is_fresh)
        try:
            return await connection.read_response(method)
        except asyncio.CancelledError:
            connection.abort()  # or the answer would be taken for that of the next request
            raise

    async def begin(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        is_fresh: bool = False,
    ) -> HttpConnection:
        """Send a request, and return the connection on which its answer is to be read."""
        connection = None if is_fresh else self._find_free()
        if connection is None:
            connection = await self.connect()
        connection.write_request(method, target, {"Host": self.authority, **(headers or {})}, body)
        return connection

    def take_back(self, connection: HttpConnection) -> None:
        """Take a connection whose answer has ended."""
        if connection.may_be_reused and not connection.reader.at_eof():
            self._free.append(connection)
        else:
            self._all.discard(connection)
            if connection.writer.transport.get_write_buffer_size():  # of a request that was refused before its end
                connection.abort()
            else:
                connection.writer.close()

    def abort(self) -> None:
        """Cut every connection, as a client does that vanishes."""
        for connection in self._all:
            connection.abort()
        self._free.clear()
        self._all.clear()

    async def close(self) -> None:
        """Close every connection."""
        connections, self._all = self._all, set()
        self._free.clear()
        for connection in connections:
            await connection.close()

    def _find_free(self) -> HttpConnection | None:
        while self._free:
            connection = self._free.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            self._all.discard(connection)
            connection.writer.close()
        return None
