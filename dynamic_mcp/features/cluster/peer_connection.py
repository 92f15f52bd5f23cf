"""A connection to another replica: one request after another over HTTP/1.1, each answer passed on as it comes."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Protocol, cast
from urllib.parse import unquote, urlsplit

import httptools
from msgspec import Struct

# The server closes a connection that was idle for 75 s; one that it may be about to close is not used again.
_IDLE_FOR_S = 30.0
_MAX_IDLE = 256
_CONNECT_WITHIN_S = 2.0
_MAX_HEAD_BYTES = 64 << 10
UNIX = "http+unix"
# What this machine lacks, whatever the other replica does.
_OWN_LACKS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


class NoConnectionLeft(Exception):
    """This machine can open no more connections now."""


class Endpoint(Struct, frozen=True):
    """Where a replica listens: an address and a port, or the path of a Unix socket. `host` is set for TLS."""

    address: str
    port: int = 0
    host: str | None = None

    @staticmethod
    def of(url: str) -> Endpoint:
        """Return the endpoint of a URL, whose path does not matter but for that of a Unix socket."""
        parts = urlsplit(url)
        if parts.scheme == UNIX:
            return Endpoint(unquote(parts.netloc))
        is_secure = parts.scheme == "https"
        host = parts.hostname or ""
        return Endpoint(host, parts.port or (443 if is_secure else 80), host if is_secure else None)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}" if self.port else self.address


class AnswerReceiver(Protocol):
    """Takes the answer to one request. After `answer_ended` or `answer_lost` nothing follows."""

    def request_sent(self) -> None:
        """Called when the system has taken a request that was too long to be taken at once."""
        ...

    def answer_begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...

    def answer_continued(self, data: bytes) -> None: ...

    def answer_ended(self) -> None: ...

    def answer_lost(self) -> None:
        """Called if the connection ends before the answer has."""
        ...


class _UnwantedAnswer(Exception):
    """An interim answer, or an upgrade, neither of which we ask for."""


class PeerConnection(asyncio.Protocol):
    """One connection; `send` is for one request at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._receiver: AnswerReceiver | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0  # of a head that has not ended, at least
        self._has_head = False
        self.is_paused = False
        self.has_sent = True  # but for what is in the buffer of the system, and a little

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, receiver: AnswerReceiver) -> None:
        """Send a request, and pass its answer on to the receiver."""
        self._receiver = receiver
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._head_bytes, self._has_head = 0, False
        if body:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head)

    def pause_reading(self) -> None:
        if not self.is_paused and self.is_open:
            self.is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_paused and self.is_open:
            self.is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """End the request in progress, by closing the connection."""
        self._receiver = None
        self._transport.abort()

    def close(self) -> None:
        """Close the connection; an answer that has not ended is lost."""
        self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:  # nothing was asked
            self._transport.abort()
            return
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.abort()
            return
        if not self._has_head and parser is self._parser:  # or the next request was sent
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._transport.abort()

    def pause_writing(self) -> None:
        self.has_sent = False

    def resume_writing(self) -> None:
        self.has_sent = True
        if self._receiver is not None:
            self._receiver.request_sent()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.remove(self)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.answer_lost()

    # --- called by httptools ---------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self._parser is not None and self._parser.get_status_code() < 200:
            raise _UnwantedAnswer
        if self._receiver is not None and self._parser is not None:
            self._receiver.answer_begun(self._parser.get_status_code(), self._headers)

    def on_body(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.answer_continued(data)

    def on_message_complete(self) -> None:
        receiver, self._receiver = self._receiver, None
        parser, self._parser = self._parser, None
        if receiver is None or parser is None:
            return
        self.resume_reading()
        if parser.should_keep_alive():
            self._pool.put(self)
        else:  # the replica ends: it may be about to close the idle ones, and a request on these would be lost
            self._transport.close()
            self._pool.close_idle()
        receiver.answer_ended()


class ConnectionPool:
    """The connections to one replica."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> None:
        self.endpoint = endpoint
        self._tls = tls
        self._idle: dict[PeerConnection, None] = {}  # the one that was used last is the last one
        self._open: set[PeerConnection] = set()

    @property
    def is_used(self) -> bool:
        """Whether a request is in progress."""
        return len(self._open) > len(self._idle)

    def take(self, wanted: PeerConnection | None = None) -> PeerConnection | None:
        """Return an open connection without a request, the wanted one if it is free; None if there is none."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            if wanted is not None and wanted in self._idle:
                connection = wanted
                del self._idle[wanted]
            else:
                connection, _ = self._idle.popitem()
            if connection.is_open and now - connection.idle_since < _IDLE_FOR_S:
                return connection
            connection.abort()
        return None

    async def connect(self) -> PeerConnection:
        """Return a new connection. Raises NoConnectionLeft, and OSError, of which TimeoutError is one."""
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                connection = await self._connect()
        except OSError as exc:
            if exc.errno in _OWN_LACKS:
                raise NoConnectionLeft(str(exc)) from exc
            raise
        except UnicodeError as exc:  # a label of its name is empty, or too long
            raise socket.gaierror(socket.EAI_NONAME, "it is no name of a host") from exc
        self._open.add(connection)
        return connection

    async def _connect(self) -> PeerConnection:
        loop, endpoint = asyncio.get_running_loop(), self.endpoint
        if endpoint.port:
            _, connection = await loop.create_connection(
                lambda: PeerConnection(self),
                endpoint.address,
                endpoint.port,
                ssl=self._tls,
                server_hostname=endpoint.host,
            )
        else:
            _, connection = await loop.create_unix_connection(lambda: PeerConnection(self), endpoint.address)
        return connection

    def put(self, connection: PeerConnection) -> None:
        """Keep a connection whose request has been answered."""
        if len(self._idle) >= _MAX_IDLE or connection not in self._open:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle[connection] = None

    def close_idle(self) -> None:
        for connection in [*self._idle]:
            connection.abort()
        self._idle.clear()

    def remove(self, connection: PeerConnection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def close(self) -> None:
        """End all connections; requests in progress are lost."""
        for connection in [*self._open]:
            connection.close()
