"""HTTP+SSE, the transport of MCP 2024-11-05: a client posts its messages, and gets every answer over one stream."""

from __future__ import annotations

from dynamic_mcp.face.http.exchange import Exchange, Response
from dynamic_mcp.face.http.messages import check_utf8
from dynamic_mcp.face.http.post import Sessions
from dynamic_mcp.face.http.responses import ACCEPTED, Headers, refusal, too_long, with_headers
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.lines import on_one_line


class OldPost:
    """Takes the body of a POST to the messages of a session."""

    needs_client = False

    __slots__ = ("_cors", "_exchange", "_session", "_sessions", "max_body_bytes")

    def __init__(
        self, sessions: Sessions, session: HttpSession, exchange: Exchange, cors: Headers, max_body_bytes: int
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._sessions = sessions
        self._session = session
        self._exchange = exchange
        self._cors = cors

    def receive_body(self, body: bytes) -> None:
        """Receive the message; its answer goes over the stream."""
        if self._session.session.is_closed:
            self._respond(ENDED)
            return
        try:
            check_utf8(body)
        except wire.Malformed as exc:
            self._respond(refusal(400, str(exc), code=exc.code))
            return
        requests = _count_requests(body)
        refused = self._sessions.refuse_requests(self._session, requests) if requests else None
        if refused is not None:
            self._respond(refused)
            return
        self._respond(ACCEPTED)
        self._session.session.receive(on_one_line(body))

    @property
    def sender(self) -> Authentication:
        return self._session.session.authentication

    def refuse_body(self) -> None:
        self._respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Called when the client closes this connection; its stream is another one."""

    def _respond(self, response: Response) -> None:
        self._exchange.respond(with_headers(response, self._cors))


def _count_requests(body: bytes) -> int:
    """Return how many requests a body has; an unreadable one has none, and the session refuses it."""
    if wire.is_batch(body):
        return wire.count_members(body)
    try:
        frame = wire.parse(on_one_line(body))
    except wire.Malformed:
        return 0
    return 1 if frame.method and len(frame.id) else 0
