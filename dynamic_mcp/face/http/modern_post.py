"""One POST of a modern client: its request, and the answer as JSON or, where something comes before it, as a stream.

The stream belongs to the request alone: no event has an id, and nobody comes back to it. Who closes it cancels the
request (MCP 2026-07-28, streamable HTTP).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from dynamic_mcp.face import limits
from dynamic_mcp.face.http.arrival import Arrival, Arrived
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.messages import id_for_answer, parse_message
from dynamic_mcp.face.http.responses import ACCEPTED, EVENTS, JSON, RETRY_AFTER, Headers, refusal, with_headers
from dynamic_mcp.face.http.scopes import missing_in, with_body
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.legacy import MAY_BE_MISSED

# An answer that takes longer comes as a stream, which is kept alive on the way.
_ANSWER_AS_JSON_WITHIN_S = 5.0
_KEEP_ALIVE_EVERY_S = 15.0
_ALIVE = b": alive\n\n"
_LISTEN = "subscriptions/listen"

_STATUS_BY_CODE = {
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
}
# Of what is refused before anything was done: an invalid envelope, and more than may be in flight.
_STATUS_OF_REFUSAL = {**_STATUS_BY_CODE, INVALID_PARAMS: 400, INTERNAL_ERROR: 503}


class Call(Protocol):
    """A request that is being answered."""

    def cancel(self, reason: str) -> None:
        """Take it that the client no longer waits for the answer."""
        ...


class Requests(Protocol):
    """Whoever takes requests: all that modern clients have in flight at one face."""

    def refuse(self, post: ModernPost, frame: Frame) -> Response | None:
        """Return why a request is not taken; None if it is."""
        ...

    def begin(self, post: ModernPost, frame: Frame) -> Call | None:
        """Start to answer a request. None: it is answered already."""
        ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes."""
        ...

    def end(self, post: ModernPost) -> None:
        """Take it that nothing more comes of a request."""
        ...

    def now(self) -> float:
        """Return the time, in seconds of any clock that only goes forward."""
        ...


class ModernPost(Arrived):
    """Takes the body of a POST; it is the channel that the request in it is answered on."""

    # a client that has closed looks like one that sends nothing more, and the close is how it cancels
    needs_client = True

    __slots__ = (
        "_began_at",
        "_call",
        "_cors",
        "_exchange",
        "_id",
        "_is_beginning",
        "_is_listening",
        "_is_over",
        "_is_stream",
        "_reason",
        "_requests",
        "_written_at",
        "max_body_bytes",
        "members",
    )

    def __init__(
        self,
        requests: Requests,
        arrival: Arrival,
        *,
        cors: Headers,
        max_body_bytes: int,
    ) -> None:
        self.arrival = arrival
        self.max_body_bytes = max_body_bytes
        self._requests = requests
        self._exchange = arrival.exchange
        self._cors = cors
        self.members: RequestMembers | None = None
        self._call: Call | None = None
        self._id: Raw = wire.NULL
        self._began_at = self._written_at = 0.0
        self._reason = ""  # why it was cancelled, which may happen while it begins
        self._is_beginning = self._is_listening = self._is_stream = self._is_over = False

    def __repr__(self) -> str:
        state = "over" if self._is_over else "streaming" if self._is_stream else "waiting"
        return f"<ModernPost {bytes(self._id).decode()[:50]}, {state}>"

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Take the message."""
        try:
            frame = parse_message(body)
        except wire.Malformed as exc:
            why = "a body is one message: this revision has no batches" if wire.is_batch(body) else str(exc)
            self._respond(refusal(400, why, code=exc.code, id=exc.id))
            return
        self._id = id_for_answer(frame)
        if not frame.method:
            self._respond(refusal(400, "a body is one request or notification", id=wire.NULL))
        elif not len(frame.id):  # what it could be about is not known: every request stands alone
            self._respond(ACCEPTED)
        elif (refused := self._requests.refuse(self, frame)) is not None:
            self._respond(refused)
        else:
            self._begin(frame)

    def refuse_body(self) -> None:
        """Answer a message that is too long."""
        self._respond(refusal(413, f"a message may have {self.max_body_bytes} bytes at most"))

    def disconnected(self) -> None:
        """Cancel the request, because the client has gone."""
        if not self._is_over:
            self._end()
            self._cancel("the client has closed the connection")

    def _begin(self, frame: Frame) -> None:
        self._began_at = self._requests.now()
        self._is_beginning = True
        self._is_listening = frame.method == _LISTEN
        call = self._requests.begin(self, frame)
        self._is_beginning = False
        self._call = call
        if self._is_over:
            self._cancel(self._reason)
        elif self._is_listening and not self._is_stream:
            self._open_stream(_ALIVE)

    # --- Channel ---------------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification on the stream that answers the request."""
        if self._is_over or (frame.method in MAY_BE_MISSED and self._is_flooded()):
            return
        event = _event(wire.notification_line(frame.method, frame.params))
        if self._is_stream:
            self._write(event)
        else:
            self._open_stream(event)

    def answer(self, frame: Frame) -> None:
        """Send the answer, the last that is sent."""
        if self._is_over:
            return
        line = wire.answer_line(self._id, frame)
        if not self._is_stream:
            if scopes := missing_in(frame.error):
                self._respond(with_body(self._requests.lacks_scope(scopes), line))
                return
            status = self._status_of(frame)
            more = RETRY_AFTER if status == 503 else ()
            self._respond(Response(status, JSON + more, line))
            return
        self._write(_event(line))
        if not self._is_over:  # it is, if the client does not read
            self._end()
            self._exchange.end()

    # --- time, and the end -----------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Begin a stream if the answer takes its time, and keep one alive."""
        if self._is_over:
            return
        if not self._is_stream:
            if now - self._began_at >= _ANSWER_AS_JSON_WITHIN_S:
                self._open_stream(_ALIVE)
        elif now - self._written_at >= _KEEP_ALIVE_EVERY_S:
            self._write(_ALIVE)

    def end_expired(self, is_valid: Callable[[Authentication], bool]) -> None:
        """End a stream that listens if its client's credential counts no more; a call goes on to its answer."""
        if self._is_listening and self._is_stream and not self._is_over and not is_valid(self.arrival.authentication):
            self._end()
            self._exchange.end()
            self._cancel("the credential of the client is not valid any more")

    def fail(self) -> None:
        """End without an answer, because the server ends."""
        if self._is_over:
            return
        if self._is_stream:
            self._end()
            self._exchange.abort()
        else:
            self._respond(refusal(503, "the server has ended", RETRY_AFTER, code=INTERNAL_ERROR, id=self._id))

    def _end(self) -> None:
        self._is_over = True
        self._requests.end(self)

    def _cancel(self, reason: str) -> None:
        call, self._call, self._reason = self._call, None, reason
        if call is not None and reason:
            call.cancel(reason)

    # --- to the client ---------------------------------------------------------------------------------

    def _status_of(self, answer: Frame) -> int:
        if not len(answer.error):
            return 200
        code = wire.value(wire.member(answer.error, "code"))
        statuses = _STATUS_OF_REFUSAL if self._is_beginning else _STATUS_BY_CODE
        return statuses.get(code, 200) if isinstance(code, int) else 200

    def _respond(self, response: Response) -> None:
        """Send a whole response."""
        self._end()
        self._exchange.respond(with_headers(response, self._cors))

    def _open_stream(self, first: bytes) -> None:
        """Begin a stream; without a first piece, nginx would keep back its head."""
        self._is_stream = True
        self._written_at = self._requests.now()
        self._exchange.start(Response(200, EVENTS + self._cors, first))

    def _is_flooded(self) -> bool:
        return self._is_stream and self._exchange.buffered_bytes() > limits.FLOOD_BYTES

    def _write(self, data: bytes) -> None:
        if self._exchange.buffered_bytes() > limits.UNREAD_BYTES:
            self._end()
            self._exchange.abort()
            self._cancel("the client does not read")
            return
        self._exchange.write(data)  # however long it is: one message alone is never too much
        self._written_at = self._requests.now()


def _event(line: bytes) -> bytes:
    return b"event: message\ndata: %s\n\n" % line.rstrip(b"\n")
