"""One POST of a modern client: its request, and the answer as JSON or, if messages precede it, as a stream.

The stream belongs to this request: its events have no ids, and cannot be requested again. Closing it cancels the
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
from dynamic_mcp.face.http.post_answer import BEGINNING, OVER, STREAMING, WAITING, PostAnswer, StreamOpener
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
# Before a request is started: an invalid envelope, or too many requests in flight.
_STATUS_OF_REFUSAL = {**_STATUS_BY_CODE, INVALID_PARAMS: 400, INTERNAL_ERROR: 503}


class PendingCall(Protocol):
    """A request that is being answered."""

    def cancel(self, reason: str) -> None:
        """Called when the client no longer waits for the answer."""
        ...


class Requests(StreamOpener, Protocol):
    """The requests of all modern clients that one face has in flight."""

    def refuse(self, post: ModernPost, frame: Frame) -> Response | None:
        """Return the refusal of a request; None if it is accepted."""
        ...

    def begin(self, post: ModernPost, frame: Frame) -> PendingCall | None:
        """Start answering a request. Returns None if it is already answered."""
        ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response: ...

    def end(self, post: ModernPost) -> None:
        """Called when a request has ended."""
        ...

    def now(self) -> float:
        """Return the time, in seconds of a monotonic clock."""
        ...


class ModernPost(Arrived):
    """Takes the body of a POST, and is the channel on which the request in it is answered."""

    # a client cancels by closing, which looks like the end of its input
    needs_client = True

    __slots__ = ("_answer", "_call", "_is_listening", "_reason", "_requests", "id", "max_body_bytes", "members")

    def __init__(self, requests: Requests, arrival: Arrival, *, cors: Headers, max_body_bytes: int) -> None:
        self.arrival = arrival
        self.max_body_bytes = max_body_bytes
        self.members: RequestMembers | None = None
        self._requests = requests
        self._answer = PostAnswer(arrival, cors, requests.lacks_scope)
        self._call: PendingCall | None = None
        self.id: Raw = wire.NULL
        self._is_listening = False
        self._reason = ""  # of a cancellation, which may happen during `begin`

    def __repr__(self) -> str:
        return f"<ModernPost {bytes(self.id).decode()[:50]}, {self._answer.state.name.lower()}>"

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        try:
            frame = parse_message(body)
        except wire.Malformed as exc:
            why = "batches are not supported in this protocol version" if wire.is_batch(body) else str(exc)
            self._answer.respond(refusal(400, why, code=exc.code, id=exc.id))
            return
        self.id = wire.id_for_answer(frame)
        if not frame.method:
            self._answer.respond(refusal(400, "a body must be one request or notification", id=wire.NULL))
        elif not len(frame.id):  # a notification is about no request: each stands alone
            self._answer.respond(ACCEPTED)
        elif (refused := self._requests.refuse(self, frame)) is not None:
            self._answer.respond(refused)
        else:
            self._begin(frame)

    def refuse_body(self) -> None:
        self._answer.respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Called when the client disconnects, which cancels its request."""
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
        """Send the answer, which is the last message."""
        answer = self._answer
        if answer.state is not OVER:
            self._requests.end(self)
            answer.finish(wire.answer_line(self.id, frame), self._status_of(frame))
            self._cancel_if_unread()

    # --- time, and the end -----------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Start a stream if the answer takes long, and keep it alive."""
        self._answer.check(now)
        self._answer.keep_alive(now)
        self._cancel_if_unread()

    def end_expired(self, is_valid: Callable[[Authentication], bool]) -> None:
        """End a listening stream if its client's credential is no longer valid; a call continues to its answer."""
        is_stream = self._is_listening and self._answer.state is STREAMING
        if is_stream and not is_valid(self.arrival.authentication):
            self._answer.end_stream()
            self._cancel("the client's credential is no longer valid")

    def fail(self) -> None:
        """End without an answer, because the server stops."""
        self._requests.end(self)
        if self._answer.state is STREAMING:
            self._answer.abort()
        elif self._answer.state is not OVER:
            ended = refusal(503, "the server has shut down", RETRY_AFTER, code=INTERNAL_ERROR, id=self.id)
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
