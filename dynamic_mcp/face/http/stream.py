"""Streams of server-sent events: messages to a client, in order.

Those of a session go over one connection at a time. Each of their messages has an id, `<stream>-<number>`. Whoever
comes back with the last id that it has seen gets what it missed, and then what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import Exchange, Response
from dynamic_mcp.face.http.responses import EVENTS, Headers
from dynamic_mcp.face.limits import UNREAD_BYTES
from dynamic_mcp.identity import LOCAL_USER, Authentication

# How long a client waits before it comes back for a stream that is to go on.
_RETRY_MS = 1000
_RETRY = b"retry: %d\n\n" % _RETRY_MS
# nginx keeps the head of an answer until the first bytes of its body come.
ALIVE = b": alive\n\n"
# Something is written on a stream at least this often.
_KEEP_ALIVE_EVERY_S = 15.0


class Owner(Protocol):
    """The session that a stream belongs to."""

    @property
    def may_poll(self) -> bool:
        """Whether the client comes back when a stream ends before its answer has come (MCP 2025-11-25)."""
        ...

    def now(self) -> float:
        """Return the time, in seconds of any clock that only goes forward."""
        ...

    def store(self, stream: int, number: int, event: bytes) -> None:
        """Keep an event for a client that comes back."""
        ...

    def finish_stream(self, stream: SessionStream) -> None:
        """End a stream, on which nothing follows."""
        ...

    def stream_disconnected(self, stream: SessionStream) -> None:
        """Take it that nobody reads a stream at the moment."""
        ...


def event_of(line: bytes) -> bytes:
    """Return the event of a message, a line of JSON."""
    return b"event: message\ndata: %s\n\n" % line.rstrip(b"\n")


class Stream:
    """Messages over one connection; who closes it loses what follows."""

    __slots__ = ("_exchange", "_now", "is_unread", "written_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_unread = False
        """Whether the connection was closed because the client does not read."""
        self.written_at = 0.0
        self._now = now
        self._exchange: Exchange | None = None

    @property
    def is_connected(self) -> bool:
        """Whether somebody reads this stream."""
        return self._exchange is not None

    def start(self, exchange: Exchange, headers: Headers, first: bytes) -> None:
        """Answer with this stream, which begins with these bytes."""
        self._exchange = exchange
        self.written_at = self._now()
        exchange.start(Response(200, EVENTS + headers, first))

    def send(self, line: bytes) -> None:
        """Send one message, a line of JSON."""
        self._write(event_of(line))

    def close(self) -> None:
        """End the stream: nothing follows."""
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
        """Write something that means nothing if it is time, so that no proxy takes the connection for dead."""
        if now - self.written_at >= _KEEP_ALIVE_EVERY_S:
            self._write(ALIVE)

    def buffered_bytes(self) -> int:
        """Return how much the client has not read."""
        return 0 if self._exchange is None else self._exchange.buffered_bytes()

    def disconnected(self) -> None:
        """Called when the connection has gone."""
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
        exchange.write(data)  # however long it is: one message alone is never too much
        self.written_at = self._now()


class SessionStream(Stream):
    """A stream of a session. It goes on without a connection; then what is sent is only stored."""

    __slots__ = ("_owner", "authentication", "connected_at", "last_number", "number")

    max_body_bytes = 1 << 16
    needs_client = False
    sender = None

    def __init__(self, owner: Owner, number: int) -> None:
        super().__init__(owner.now)
        self.number = number
        self.last_number = 0
        self.connected_at = 0.0
        self.authentication: Authentication = LOCAL_USER
        """What was shown by whoever reads it now, or did last."""
        self._owner = owner

    def __repr__(self) -> str:
        return (
            f"<SessionStream {self.number}, {self.last_number} sent, {'' if self.is_connected else 'not '}connected>"
        )

    def connect(self, arrival: Arrival, headers: Headers = (), missed: tuple[bytes, ...] | list[bytes] = ()) -> None:
        """Go on over this connection, beginning with what was missed; an older connection ends."""
        if self._exchange is not None:
            if self._exchange.buffered_bytes():  # which comes again over the new connection
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
        """Send one message, a line of JSON."""
        self.last_number += 1
        event = b"id: %d-%d\n%s" % (self.number, self.last_number, event_of(line))
        self._owner.store(self.number, self.last_number, event)
        self._write(event)

    def close(self) -> None:
        """End the stream: nothing follows."""
        self._owner.finish_stream(self)

    def pause(self) -> None:
        """End the connection; the client is to come back for what follows."""
        if self._exchange is not None:
            self._exchange.write(_RETRY)
            self.finish()
            self._owner.stream_disconnected(self)

    def expire(self) -> None:
        """End the connection, since what its client has shown counts no more; with something new it may come back."""
        self.pause()

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Take the body of the GET request, which means nothing."""

    def refuse_body(self) -> None:
        """Take it that the GET request has a long body, which means nothing either."""

    def disconnected(self) -> None:
        """Called when the connection has gone."""
        self._exchange = None
        self._owner.stream_disconnected(self)


class OldStream(SessionStream):
    """The one stream of a client of the older transport: its messages have no ids; it ends with its connection."""

    __slots__ = ("_on_end",)

    def __init__(self, owner: Owner, *, on_end: Callable[[], None]) -> None:
        super().__init__(owner, 0)
        self._on_end = on_end

    def open(self, arrival: Arrival, headers: Headers, messages: bytes) -> None:
        """Begin with where the client is to post its messages (MCP 2024-11-05, transports)."""
        self.connect(arrival, headers, [b"event: endpoint\ndata: %s\n\n" % messages])

    def send(self, line: bytes) -> None:
        """Send one message, a line of JSON."""
        self._write(event_of(line))

    def expire(self) -> None:
        """End the session: nobody can come back to it."""
        self._on_end()

    def disconnected(self) -> None:
        """Take it that the connection has gone, and the client with it."""
        super().disconnected()
        self._on_end()
