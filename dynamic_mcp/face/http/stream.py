"""One stream of server-sent events: the messages of a stream, over one connection at a time.

Each message has an id, `<stream>-<number>`. Whoever comes back with the last id that it has seen gets what it missed,
and then what follows.
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
_ALIVE = b": alive\n\n"


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

    def stream_disconnected(self, stream: Stream) -> None:
        """Take it that nobody reads a stream at the moment."""
        ...


class Stream:
    """Messages to a client, in order. It goes on without a connection; then what is sent is only stored."""

    __slots__ = ("_exchange", "_owner", "authentication", "connected_at", "last_number", "number", "written_at")

    max_body_bytes = 1 << 16
    needs_client = False
    sender = None

    def __init__(self, owner: Owner, number: int) -> None:
        self.number = number
        self.last_number = 0
        self.connected_at = self.written_at = 0.0
        self.authentication: Authentication = LOCAL_USER
        """What was shown by whoever reads it now, or did last."""
        self._owner = owner
        self._exchange: Exchange | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.number}, {self.last_number} sent, {'' if self.is_connected else 'not '}connected>"

    @property
    def is_connected(self) -> bool:
        """Whether somebody reads this stream."""
        return self._exchange is not None

    def connect(self, arrival: Arrival, headers: Headers = (), missed: tuple[bytes, ...] | list[bytes] = ()) -> None:
        """Go on over this connection, beginning with what was missed; an older connection ends."""
        if self._exchange is not None:
            if self._exchange.buffered_bytes():  # which comes again over the new connection
                self._exchange.abort()
            else:
                self._exchange.end()
        exchange = self._exchange = arrival.exchange
        self.authentication = arrival.authentication
        self.connected_at = self.written_at = self._owner.now()
        first = (
            b"id: %d-%d\nretry: %d\ndata: \n\n" % (self.number, self.last_number, _RETRY_MS)
            if self._owner.may_poll
            else _ALIVE  # nginx keeps the head of an answer until the first bytes of its body come
        )
        exchange.start(Response(200, EVENTS + headers, b"".join((*missed, b"" if missed else first))))

    def send(self, line: bytes) -> None:
        """Send one message, a line of JSON."""
        self.last_number += 1
        event = b"id: %d-%d\nevent: message\ndata: %s\n\n" % (self.number, self.last_number, line.rstrip(b"\n"))
        self._owner.store(self.number, self.last_number, event)
        self._write(event)

    def finish(self) -> None:
        """End the stream: nothing follows."""
        if self._exchange is not None:
            self._exchange.end()
            self._exchange = None

    def pause(self) -> None:
        """End the connection; the client is to come back for what follows."""
        if self._exchange is not None:
            self._exchange.write(_RETRY)
            self.finish()
            self._owner.stream_disconnected(self)

    def expire(self) -> None:
        """End the connection, since what its client has shown counts no more; with something new it may come back."""
        self.pause()

    def keep_alive(self) -> None:
        """Write something that means nothing, so that nobody on the way takes the connection for dead."""
        self._write(_ALIVE)

    def buffered_bytes(self) -> int:
        """Return how much the client has not read."""
        return 0 if self._exchange is None else self._exchange.buffered_bytes()

    def _write(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.buffered_bytes() > UNREAD_BYTES:  # it can come back for what is stored
            exchange.abort()
            self.disconnected()
            return
        exchange.write(data)  # however long it is: one message alone is never too much
        self.written_at = self._owner.now()

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Take the body of the GET request, which means nothing."""

    def refuse_body(self) -> None:
        """Take it that the GET request has a long body, which means nothing either."""

    def disconnected(self) -> None:
        """Take it that the connection has gone."""
        self._exchange = None
        self._owner.stream_disconnected(self)


class OldStream(Stream):
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
        self._write(b"event: message\ndata: %s\n\n" % line.rstrip(b"\n"))

    def expire(self) -> None:
        """End the session: nobody can come back to it."""
        self._on_end()

    def disconnected(self) -> None:
        """Take it that the connection has gone, and the client with it."""
        super().disconnected()
        self._on_end()
