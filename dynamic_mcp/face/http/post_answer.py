"""The answer to one POST of any revision: as JSON, or as a stream of events.

It is a stream if messages precede the answer, or the answer takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from dynamic_mcp.errors import INSUFFICIENT_SCOPE
from dynamic_mcp.face import limits
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON, RETRY_AFTER, Headers, with_headers
from dynamic_mcp.face.http.stream import Stream
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.legacy import MAY_BE_MISSED

_SCOPE_ERROR = b'"code":%d' % INSUFFICIENT_SCOPE
# An answer that takes longer is sent as a stream, which can be kept alive.
_ANSWER_AS_JSON_WITHIN_S = 5.0


class StreamOpener(Protocol):
    """Opens the streams that answer requests."""

    def open_stream(self, arrival: Arrival, cors: Headers, line: bytes = b"") -> Stream:
        """Answer with a stream, which starts with this message if there is one."""
        ...


class PostState(Enum):
    """The progress of the answer to a POST. BEGINNING → WAITING → STREAMING or GONE → OVER; each may be skipped."""

    BEGINNING = auto()
    """The message is being checked: an answer is a refusal."""
    WAITING = auto()
    """The request is being answered; nothing was sent."""
    STREAMING = auto()
    """A stream has begun, and the answer will be its last message."""
    GONE = auto()
    """The client disconnected before anything was sent, but its request continues."""
    OVER = auto()
    """Answered, or cancelled."""


# Reading a member from its class takes ten times as long, several times with each request.
BEGINNING, WAITING, STREAMING, GONE, OVER = PostState


class PostAnswer:
    """The answer to one POST. Call `begin` before sending messages."""

    __slots__ = ("_arrival", "_began_at", "_cors", "_lacks_scope", "_stream", "_streams", "state")

    def __init__(self, arrival: Arrival, cors: Headers, lacks_scope: Callable[[tuple[str, ...]], Response]) -> None:
        self.state = BEGINNING
        self._arrival = arrival
        self._cors = cors
        self._lacks_scope = lacks_scope
        self._streams: StreamOpener
        self._stream: Stream | None = None
        self._began_at = 0.0

    @property
    def is_unread(self) -> bool:
        """True if the stream was closed because the client does not read."""
        return self._stream is not None and self._stream.is_unread

    def begin(self, streams: StreamOpener, now: float) -> None:
        self._streams, self._began_at = streams, now

    def wait(self) -> None:
        """Called when the message was accepted."""
        if self.state is BEGINNING:
            self.state = WAITING

    def respond(self, response: Response) -> None:
        """Answer with a whole response, if the client is connected."""
        if self.state is not GONE:
            self._arrival.exchange.respond(with_headers(response, self._cors))
        self.state = OVER

    def notify(self, frame: Frame) -> None:
        """Send a notification before the answer; drop log messages and progress if the client does not read."""
        if frame.method not in MAY_BE_MISSED or not self._is_flooded():
            self.send(wire.notification_line(frame.method, frame.params))

    def send(self, line: bytes) -> None:
        """Send a message before the answer."""
        if self._stream is None:
            self.open_stream(line)
        else:
            self._stream.send(line)

    def finish(self, line: bytes, status: int = 200, headers: Headers = ()) -> None:
        """Send the answer, which is the last message; status and headers are for an answer in JSON."""
        if self._stream is not None:
            self._stream.send(line)
            self.end_stream()
        elif scopes := _find_missing_scopes(line):
            self.respond(_with_body(self._lacks_scope(scopes), line))
        else:
            self.respond(Response(status, JSON + headers if status != 503 else JSON + headers + RETRY_AFTER, line))

    def _is_flooded(self) -> bool:
        return self._stream is not None and self._stream.buffered_bytes() > limits.FLOOD_BYTES

    def open_stream(self, line: bytes = b"") -> None:
        self.state = STREAMING
        self._stream = self._streams.open_stream(self._arrival, self._cors, line)

    def end_stream(self) -> None:
        """End the stream without an answer."""
        assert self._stream is not None
        self.state = OVER
        self._stream.close()

    def lose_client(self) -> None:
        """Continue without the client, which may reconnect for the messages of a stream."""
        if self._stream is not None:
            self._stream.disconnected()
        else:
            self.state = GONE

    def abandon(self) -> None:
        """Send nothing more."""
        self.state = OVER

    def abort(self) -> None:
        """Close a stream at once."""
        assert self._stream is not None
        self.state = OVER
        self._stream.abort()

    def keep_alive(self, now: float) -> None:
        if self._stream is not None:
            self._stream.keep_alive(now)

    def check(self, now: float) -> None:
        """Start a stream if the answer takes long."""
        if self.state is WAITING and now - self._began_at >= _ANSWER_AS_JSON_WITHIN_S:
            self.open_stream()


def _find_missing_scopes(line: bytes) -> tuple[str, ...]:
    """Return the scopes that an answer names as missing; none for other answers."""
    if _SCOPE_ERROR not in line or wire.is_batch(line):
        return ()
    error = wire.parse(line).error
    if not len(error) or bytes(wire.member(error, "code")) != b"%d" % INSUFFICIENT_SCOPE:
        return ()
    scopes = wire.value(wire.member(error, "data", "scopes"))
    return tuple(map(str, scopes)) if isinstance(scopes, list) else ()


def _with_body(refusal: Response, line: bytes) -> Response:
    """Return a refusal with the answer as its body."""
    others = tuple(header for header in refusal.headers if header[0] != b"content-type")
    return Response(refusal.status, JSON + others, line)
