"""One POST: its message, the answer as JSON, or as a stream where something has to be said before the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.errors import HEADER_MISMATCH, INVALID_REQUEST
from dynamic_mcp.face import limits
from dynamic_mcp.face.http.arrival import Arrival, Arrived
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.messages import has_envelope, id_for_answer, parse_message
from dynamic_mcp.face.http.responses import ACCEPTED, JSON, Headers, refusal, with_headers
from dynamic_mcp.face.http.scopes import find_missing, with_body
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.face.http.stream import Stream
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.lines import on_one_line
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.session.answers import gone
from dynamic_mcp.session.legacy import MAY_BE_MISSED, Session

# An answer that takes longer comes as a stream: it is kept alive on the way, and who loses it can come back.
_ANSWER_AS_JSON_WITHIN_S = 5.0


class Sessions(Protocol):
    """Whoever begins sessions."""

    def refuse_requests(self, session: HttpSession, requests: int) -> Response | None:
        """Return why so many requests of a session are not taken now; None if they are."""
        ...

    def begin_session(self, post: Post, *, is_initialize: bool) -> HttpSession | Response:
        """Begin a session for its first message, or say why there is none."""
        ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes."""
        ...

    def end(self, session: HttpSession) -> None:
        """End a session."""
        ...


class Post(Arrived):
    """Takes the body of a POST; it is the channel of the request in it. `session` is None for the first message."""

    needs_client = False

    log_level = ""  # the client sets its level once for all
    is_parked = False

    __slots__ = (
        "_began_at",
        "_cors",
        "_exchange",
        "_is_connected",
        "_is_done",
        "_is_receiving",
        "_sessions",
        "_stream",
        "head",
        "max_body_bytes",
        "session",
    )

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
        self.head = arrival.head
        self.session = session
        self.max_body_bytes = max_body_bytes
        self._sessions = sessions
        self._exchange = arrival.exchange
        self._cors = cors
        self._stream: Stream | None = None
        self._began_at = 0.0
        self._is_connected = True
        self._is_receiving = self._is_done = False

    # --- Receiver --------------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        """Take the message, or the batch."""
        try:
            frame = parse_message(body)
        except wire.Malformed as exc:
            self._receive_malformed(body, exc)
            return
        if b"mcp-protocol-version" not in self.head.headers and has_envelope(body, frame):
            why = "the header `MCP-Protocol-Version` is missing, and the body names a revision that has it"
            self.respond(refusal(400, why, code=HEADER_MISMATCH, id=id_for_answer(frame)))
            return
        method = self.head.headers.get(b"mcp-method")
        if method is not None and method != frame.method.encode():
            self.respond(refusal(400, "the header `Mcp-Method` names another method than the body"))
            return
        is_request = bool(frame.method) and len(frame.id) > 0
        session = self._find_session(
            is_initialize=is_request and frame.method == "initialize", requests=1 if is_request else 0
        )
        if session is not None:
            self._is_receiving = True
            self._note_request(session, is_request=is_request)
            session.session.receive_frame(frame, self.reply, self)
            self._is_receiving = False

    def refuse_body(self) -> None:
        """Answer a message that is too long."""
        self.respond(refusal(413, f"a message may have {self.max_body_bytes} bytes at most"))

    def disconnected(self) -> None:
        """Take it that the client has gone: its request goes on, until it is cancelled."""
        self._is_connected = False
        if self._stream is not None:
            self._stream.disconnected()

    def _receive_malformed(self, body: bytes, exc: wire.Malformed) -> None:
        if not (wire.is_batch(body) and exc.code == INVALID_REQUEST):
            self.respond(refusal(400, str(exc), code=exc.code))
            return
        session = self._find_session(is_initialize=False, requests=wire.count_members(body))
        if session is not None:
            self._is_receiving = True
            self._note_request(session, is_request=True)
            session.session.receive_batch(on_one_line(body), self.reply, self)
            self._is_receiving = False

    def _find_session(self, *, is_initialize: bool, requests: int) -> HttpSession | None:
        if self.session is None:
            begun = self._sessions.begin_session(self, is_initialize=is_initialize)
            if isinstance(begun, Response):
                self.respond(begun)
                return None
            self.session = begun
        elif self.session.session.is_closed:
            self.respond(ENDED)
            return None
        self.session.session.authentication = self.arrival.authentication
        refused = self._sessions.refuse_requests(self.session, requests) if requests else None
        if refused is not None:
            self.respond(refused)
            return None
        return self.session

    def _note_request(self, session: HttpSession, *, is_request: bool) -> None:
        session.used_at = self._began_at = session.now()
        if is_request:
            session.in_flight.add(self)

    # --- the answer ------------------------------------------------------------------------------------

    def reply(self, line: bytes) -> None:
        """Send the answer; nothing for what gets none."""
        session = self.session
        assert session is not None
        session.in_flight.discard(self)
        self._is_done = True
        is_first = b"mcp-session-id" not in self.head.headers
        has_begun = session.session.is_greeted
        if self._stream is not None:
            if line:
                self._stream.send(line)
            session.finish(self._stream)
        elif line and (scopes := find_missing(line)):
            self.respond(with_body(self._sessions.lacks_scope(scopes), line))
        elif line:
            headers = _name(session) if is_first and has_begun else ()
            self.respond(Response(400 if self._is_receiving else 200, JSON + headers, line))
        else:
            self.respond(ACCEPTED)
        is_known = self._is_connected or self._stream is not None
        if is_first and not (has_begun and is_known):  # nobody will ever come back to it
            self._sessions.end(session)

    def answer_soon(self, now: float) -> None:
        """Begin a stream if the answer takes its time."""
        if self._stream is None and self._is_connected and now - self._began_at >= _ANSWER_AS_JSON_WITHIN_S:
            self._open_stream()

    def fail(self, response: Response) -> None:
        """Answer at once that there will be no answer."""
        self._is_done = True
        if self._stream is not None:
            self._stream.finish()
        else:
            self.respond(response)

    def respond(self, response: Response) -> None:
        """Send a whole response."""
        if self._is_connected:
            self._exchange.respond(with_headers(response, self._cors))

    def _open_stream(self) -> Stream:
        assert self.session is not None
        headers = () if b"mcp-session-id" in self.head.headers else _name(self.session)
        self._stream = self.session.open_stream(self.arrival, headers + self._cors)
        return self._stream

    # --- Caller ----------------------------------------------------------------------------------------

    @property
    def client(self) -> Session:
        """The client behind the request."""
        assert self.session is not None
        return self.session.session

    @property
    def recipient(self) -> Session:
        """The client, which gets what is said without a request."""
        return self.client

    def notify(self, frame: Frame) -> None:
        """Send the client a notification over the stream that answers its request."""
        if self._is_done:  # a task goes on after the answer
            self.client.notify(frame)
            return
        stream = self._stream or (self._open_stream() if self._is_connected else None)
        if stream is None or (frame.method in MAY_BE_MISSED and stream.buffered_bytes() > limits.FLOOD_BYTES):
            return
        stream.send(wire.notification_line(frame.method, frame.params))

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Send the client a request over the stream that answers its own, and return the answer."""
        if self._is_done:
            return await self.client.ask(frame, on_status)
        if self._stream is None and not self._is_connected:
            return gone()
        return await self.client.ask(frame, on_status, self._send)

    def _send(self, line: bytes) -> None:
        (self._stream or self._open_stream()).send(line)


def _name(session: HttpSession) -> Headers:
    return ((b"mcp-session-id", session.id.encode()),)
