"""One POST of a client with a session, or the first one of a session. A request survives its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.errors import HEADER_MISMATCH, INVALID_REQUEST
from dynamic_mcp.face.http.arrival import Arrival, Arrived
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.messages import has_envelope, parse_message
from dynamic_mcp.face.http.post_answer import BEGINNING, GONE, OVER, STREAMING, PostAnswer
from dynamic_mcp.face.http.responses import ACCEPTED, Headers, refusal, too_long
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.lines import on_one_line
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.answers import disconnected
from dynamic_mcp.session.legacy import Session

# What another replica has to know to go on with a session.
_RECORDED = frozenset(("initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"))


class Sessions(Protocol):
    """The sessions of the HTTP face."""

    def refuse_requests(self, session: HttpSession, requests: int) -> Response | None: ...

    def begin_session(self, post: Post, *, is_initialize: bool) -> HttpSession | Response: ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response: ...

    def end(self, session: HttpSession) -> None: ...

    def record(self, session: HttpSession) -> None:
        """Called when a client has begun a session, or has said what it wants to hear of in it."""
        ...


class Post(Arrived):
    """Takes the body of a POST, and is the channel of the request in it. `session` is None for the first message."""

    needs_client = False

    log_level = ""  # set for the whole session
    is_parked = False

    __slots__ = ("_answer", "_is_recorded", "_sessions", "max_body_bytes", "session")

    def __init__(
        self,
        sessions: Sessions,
        arrival: Arrival,
        *,
        session: HttpSession | None,
        cors: Headers,
        max_body_bytes: int,
    ) -> None:
        self.arrival = arrival
        self.session = session
        self.max_body_bytes = max_body_bytes
        self._sessions = sessions
        self._is_recorded = False
        self._answer = PostAnswer(arrival, cors, sessions.lacks_scope)

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        try:
            frame = parse_message(body)
        except wire.Malformed as exc:
            self._receive_malformed(body, exc)
            return
        headers = self.arrival.head.headers
        if b"mcp-protocol-version" not in headers and has_envelope(body, frame):
            why = "missing header `MCP-Protocol-Version`, which the protocol version in the body requires"
            self._answer.respond(refusal(400, why, code=HEADER_MISMATCH, id=wire.id_for_answer(frame)))
            return
        method = headers.get(b"mcp-method")
        if method is not None and method != frame.method.encode():
            self._answer.respond(refusal(400, "the header `Mcp-Method` does not match the body"))
            return
        is_request = bool(frame.method) and len(frame.id) > 0
        self._is_recorded = frame.method in _RECORDED
        session = self._begin(is_initialize=is_request and frame.method == "initialize", requests=int(is_request))
        if session is not None:
            session.session.receive_frame(frame, self.reply, self)
            self._answer.wait()

    def refuse_body(self) -> None:
        self._answer.respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Called when the client disconnects: its request continues until it is cancelled."""
        self._answer.lose_client()

    def _receive_malformed(self, body: bytes, exc: wire.Malformed) -> None:
        if not (wire.is_batch(body) and exc.code == INVALID_REQUEST):
            self._answer.respond(refusal(400, str(exc), code=exc.code))
            return
        session = self._begin(is_initialize=False, requests=wire.count_members(body))
        if session is not None:
            session.session.receive_batch(on_one_line(body), self.reply, self)
            self._answer.wait()

    def _begin(self, *, is_initialize: bool, requests: int) -> HttpSession | None:
        """Return the session of the message; None if it is refused."""
        session = self.session
        if session is None:
            result = self._sessions.begin_session(self, is_initialize=is_initialize)
            if isinstance(result, Response):
                self._answer.respond(result)
                return None
            session = self.session = result
        elif session.session.is_closed:
            self._answer.respond(ENDED)
            return None
        session.session.authentication = self.arrival.authentication
        if requests:
            refused = self._sessions.refuse_requests(session, requests)
            if refused is not None:
                self._answer.respond(refused)
                return None
            session.in_flight.add(self)
        session.used_at = now = session.now()
        self._answer.begin(session, now)
        return session

    # --- the answer ------------------------------------------------------------------------------------

    def reply(self, line: bytes) -> None:
        """Send the answer; an empty line if there is none."""
        session, answer = self.session, self._answer
        assert session is not None
        session.in_flight.discard(self)
        state, is_first = answer.state, b"mcp-session-id" not in self.arrival.head.headers
        has_begun = session.session.is_initialized
        if line:
            status = 400 if state is BEGINNING else 200
            answer.finish(line, status, session.id_header if is_first and has_begun else ())
        elif state is STREAMING:
            answer.end_stream()
        else:
            answer.respond(ACCEPTED)
        if is_first and not (has_begun and state is not GONE):  # no client knows its id
            self._sessions.end(session)
        elif self._is_recorded:
            self._sessions.record(session)

    def check(self, now: float) -> None:
        self._answer.check(now)

    def fail(self, response: Response) -> None:
        """Answer a request that will have no result."""
        if self._answer.state is STREAMING:
            self._answer.end_stream()
        else:
            self._answer.respond(response)

    # --- Caller ----------------------------------------------------------------------------------------

    @property
    def client(self) -> Session:
        assert self.session is not None
        return self.session.session

    @property
    def recipient(self) -> Session:
        return self.client

    @property
    def stream(self) -> Post | Session:
        """The stream of the answer, if the client has also opened one for what no request has caused."""
        assert self.session is not None
        return self if self.session.has_listened else self.client

    def notify(self, frame: Frame) -> None:
        """Send a notification over the stream that answers the request."""
        state = self._answer.state
        if state is OVER:  # a task continues after the answer
            self.client.notify(frame)
        elif state is not GONE:
            self._answer.notify(frame)

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request over the stream that answers its own, and return the answer."""
        state = self._answer.state
        if state is OVER:
            return await self.client.ask(frame, on_status)
        if state is GONE:
            return disconnected()
        return await self.client.ask(frame, on_status, self._answer.send)
