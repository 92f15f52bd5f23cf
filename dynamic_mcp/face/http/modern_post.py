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
from dynamic_mcp.face.http.arrival import Arrival, Arrived
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.face.http.post_answer import BEGINNING, OVER, STREAMING, WAITING, PostAnswer, Streams
from dynamic_mcp.face.http.responses import ACCEPTED, RETRY_AFTER, Headers, refusal, too_long
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.wire import Frame

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


class Requests(Streams, Protocol):
    """Takes requests: all that modern clients have in flight at one face."""

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

    __slots__ = ("_answer", "_call", "_is_listening", "_reason", "_requests", "id", "max_body_bytes", "members")

    def __init__(self, requests: Requests, arrival: Arrival, *, cors: Headers, max_body_bytes: int) -> None:
        self.arrival = arrival
        self.max_body_bytes = max_body_bytes
        self.members: RequestMembers | None = None
        self._requests = requests
        self._answer = PostAnswer(arrival, cors, requests.lacks_scope)
        self._call: Call | None = None
        self.id: Raw = wire.NULL
        self._is_listening = False
        self._reason = ""  # why it was cancelled, which may happen while it begins

    def __repr__(self) -> str:
        return f"<ModernPost {bytes(self.id).decode()[:50]}, {self._answer.state.name.lower()}>"

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Take the message."""
        try:
            frame = parse_message(body)
        except wire.Malformed as exc:
            why = "a body is one message: this revision has no batches" if wire.is_batch(body) else str(exc)
            self._answer.respond(refusal(400, why, code=exc.code, id=exc.id))
            return
        self.id = wire.id_for_answer(frame)
        if not frame.method:
            self._answer.respond(refusal(400, "a body is one request or notification", id=wire.NULL))
        elif not len(frame.id):  # what it could be about is not known: every request stands alone
            self._answer.respond(ACCEPTED)
        elif (refused := self._requests.refuse(self, frame)) is not None:
            self._answer.respond(refused)
        else:
            self._begin(frame)

    def refuse_body(self) -> None:
        """Answer a message that is too long."""
        self._answer.respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Called when the client has gone: its request is cancelled."""
        if self._answer.state is not OVER:
            self._answer.abandon()
            self._cancel("the client has closed the connection")

    def _begin(self, frame: Frame) -> None:
        answer, requests = self._answer, self._requests
        self._is_listening = frame.method == _LISTEN
        answer.begin(requests, requests.now())
        self._call = requests.begin(self, frame)
        answer.wait()
        if self._reason:
            self._cancel(self._reason)
        elif self._is_listening and answer.state is WAITING:
            answer.open_stream()

    # --- Channel ---------------------------------------------------------------------------------------

    def notify(self, frame: Frame) -> None:
        """Send a notification on the stream that answers the request."""
        if self._answer.state is not OVER:
            self._answer.notify(frame)
            self._cancel_if_unread()

    def answer(self, frame: Frame) -> None:
        """Send the answer, the last that is sent."""
        answer = self._answer
        if answer.state is not OVER:
            self._requests.end(self)
            answer.finish(wire.answer_line(self.id, frame), self._status_of(frame))
            self._cancel_if_unread()

    # --- time, and the end -----------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Begin a stream if the answer takes its time, and keep one alive."""
        self._answer.check(now)
        self._answer.keep_alive(now)
        self._cancel_if_unread()

    def end_expired(self, is_valid: Callable[[Authentication], bool]) -> None:
        """End a stream that listens if its client's credential counts no more; a call goes on to its answer."""
        is_stream = self._is_listening and self._answer.state is STREAMING
        if is_stream and not is_valid(self.arrival.authentication):
            self._answer.end_stream()
            self._cancel("the credential of the client is not valid any more")

    def fail(self) -> None:
        """End without an answer, because the server ends."""
        self._requests.end(self)
        if self._answer.state is STREAMING:
            self._answer.abort()
        elif self._answer.state is not OVER:
            ended = refusal(503, "the server has ended", RETRY_AFTER, code=INTERNAL_ERROR, id=self.id)
            self._answer.respond(ended)

    def _cancel_if_unread(self) -> None:
        if self._answer.is_unread:
            self._answer.abandon()
            self._cancel("the client does not read")

    def _cancel(self, reason: str) -> None:
        self._requests.end(self)
        call, self._call, self._reason = self._call, None, reason
        if call is not None:
            call.cancel(reason)

    def _status_of(self, answer: Frame) -> int:
        if not len(answer.error):
            return 200
        code = wire.value(wire.member(answer.error, "code"))
        statuses = _STATUS_OF_REFUSAL if self._answer.state is BEGINNING else _STATUS_BY_CODE
        return statuses.get(code, 200) if isinstance(code, int) else 200
