"""Streams of server-sent events: messages to a client, in order.

A stream of a session uses one connection at a time. Its messages have ids, `<stream>-<number>`. A client that
reconnects with the last id that it received gets the messages after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import Exchange, Response
from dynamic_mcp.face.http.responses import EVENTS, Headers
from dynamic_mcp.face.limits import UNREAD_BYTES
from dynamic_mcp.identity import LOCAL_USER, Authentication

# How long a client waits before it reconnects to an unfinished stream.
_RETRY_MS = 1000
_RETRY = b"retry: %d\n\n" % _RETRY_MS
# nginx holds the head of an answer back until the first bytes of its body.
ALIVE = b": alive\n\n"
# Something is written on a stream at least this often.
_KEEP_ALIVE_EVERY_S = 15.0


class StreamOwner(Protocol):
    """The session that a stream belongs to."""

    @property
    def may_poll(self) -> bool:
        """True if the client reconnects when a stream ends before the answer (MCP 2025-11-25)."""
        ...

    def now(self) -> float:
        """Return the time, in seconds of a monotonic clock."""
        ...

    def store(self, stream: int, number: int, event: bytes) -> None:
        """Store an event for a client that reconnects."""
        ...

    def finish_stream(self, stream: SessionStream) -> None: ...

    def stream_disconnected(self, stream: SessionStream) -> None:
        """Called when a stream loses its connection."""
        ...


def event_of(line: bytes) -> bytes:
    """Return the event for a message, a line of JSON."""
    return b"event: message\ndata: %s\n\n" % line.rstrip(b"\n")


class Stream:
    """Messages over one connection; what is sent after it closes is lost."""

    __slots__ = ("_exchange", "_now", "is_unread", "written_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_unread = False
        """True if the connection was closed because the client does not read."""
        self.written_at = 0.0
        self._now = now
        self._exchange: Exchange | None = None

    @property
    def is_connected(self) -> bool:
        return self._exchange is not None

    def start(self, exchange: Exchange, headers: Headers, first: bytes) -> None:
        """Answer a request with this stream, which starts with the bytes `first`."""
        self._exchange = exchange
        self.written_at = self._now()
        exchange.start(Response(200, EVENTS + headers, first))

    def send(self, line: bytes) -> None:
        """Send a message, a line of JSON."""
        self._write(event_of(line))

    def close(self) -> None:
        """End the stream."""
        self.finish()

    def finish(self) -> None:
        """End the connection."""
        if self._exchange is not None:
            self._exchange.end()
            self._exchange = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self._exchange is not None:
            self._exchange.abort()
            self._exchange = None

    def keep_alive(self, now: float) -> None:
        """Send a comment if it is time, so that proxies do not close the connection."""
        if now - self.written_at >= _KEEP_ALIVE_EVERY_S:
            self._write(ALIVE)

    def buffered_bytes(self) -> int:
        """Return how many bytes the client has not read."""
        return 0 if self._exchange is None else self._exchange.buffered_bytes()

    def disconnected(self) -> None:
        """Called when the client disconnects."""
        self._exchange = None

    def _write(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.buffered_bytes() > UNREAD_BYTES:
            self.is_unread = True
            exchange.abort()
            self.disconnected()
            return
        exchange.write(data)  # of any length: one message alone is never too much
        self.written_at = self._now()


class SessionStream(Stream):
    """A stream of a session. Without a connection, its messages are only stored."""

    __slots__ = ("_owner", "authentication", "connected_at", "last_number", "number")

    max_body_bytes = 1 << 16
    needs_client = False
    sender = None

    def __init__(self, owner: StreamOwner, number: int) -> None:
        super().__init__(owner.now)
        self.number = number
        self.last_number = 0
        self.connected_at = 0.0
        self.authentication: Authentication = LOCAL_USER
        """That of the current connection, or of the last one."""
        self._owner = owner

    def __repr__(self) -> str:
        return (
            f"<SessionStream {self.number}, {self.last_number} sent, {'' if self.is_connected else 'not '}connected>"
        )

    def connect(self, arrival: Arrival, headers: Headers = (), missed: tuple[bytes, ...] | list[bytes] = ()) -> None:
        """Continue over this connection, starting with the `missed` events; an older connection ends."""
        if self._exchange is not None:
            if self._exchange.buffered_bytes():  # these bytes are sent again over the new connection
                self._exchange.abort()
            else:
                self._exchange.end()
        self.authentication = arrival.authentication
        first = (
            b"id: %d-%d\nretry: %d\ndata: \n\n" % (self.number, self.last_number, _RETRY_MS)
            if self._owner.may_poll
            else ALIVE
        )
        self.start(arrival.exchange, headers, b"".join((*missed, b"" if missed else first)))
        self.connected_at = self.written_at

    def send(self, line: bytes) -> None:
        self.last_number += 1
        event = b"id: %d-%d\n%s" % (self.number, self.last_number, event_of(line))
        self._owner.store(self.number, self.last_number, event)
        self._write(event)

    def close(self) -> None:
        self._owner.finish_stream(self)

    def pause(self) -> None:
        """End the connection; the client reconnects for later messages."""
        if self._exchange is not None:
            self._exchange.write(_RETRY)
            self.finish()
            self._owner.stream_disconnected(self)

    def expire(self) -> None:
        """End the connection, since its credential is no longer valid; the client may reconnect with a new one."""
        self.pause()

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Ignore the body of the GET request."""

    def refuse_body(self) -> None:
        """Ignore the long body of the GET request."""

    def disconnected(self) -> None:
        self._exchange = None
        self._owner.stream_disconnected(self)


class OldStream(SessionStream):
    """The only stream of a client of the older transport: without message ids; it ends with its connection."""

    __slots__ = ("_on_end",)

    def __init__(self, owner: StreamOwner, *, on_end: Callable[[], None]) -> None:
        super().__init__(owner, 0)
        self._on_end = on_end

    def open(self, arrival: Arrival, headers: Headers, messages: bytes) -> None:
        """Start with the URL to which the client posts its messages (MCP 2024-11-05, transports)."""
        self.connect(arrival, headers, [b"event: endpoint\ndata: %s\n\n" % messages])

    def send(self, line: bytes) -> None:
        self._write(event_of(line))

    def expire(self) -> None:
        """End the session, which the client cannot resume."""
        self._on_end()

    def disconnected(self) -> None:
        super().disconnected()
        self._on_end()
