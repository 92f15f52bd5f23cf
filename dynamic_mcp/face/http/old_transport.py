"""HTTP+SSE, the transport of MCP 2024-11-05: a client posts its messages, and gets every answer over one stream."""

from __future__ import annotations

from dynamic_mcp.face.http.exchange import Exchange, Response
from dynamic_mcp.face.http.responses import ACCEPTED, Headers, refusal, with_headers
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.mcp.lines import on_one_line


class OldPost:
    """Takes the body of a POST to the messages of a session."""

    needs_client = False

    __slots__ = ("_cors", "_exchange", "_session", "max_body_bytes")

    def __init__(self, session: HttpSession, exchange: Exchange, cors: Headers, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._session = session
        self._exchange = exchange
        self._cors = cors

    def receive_body(self, body: bytes) -> None:
        """Take the message; its answer goes over the stream."""
        if self._session.session.is_closed:
            self._respond(ENDED)
            return
        self._respond(ACCEPTED)
        self._session.session.receive(on_one_line(body))

    def refuse_body(self) -> None:
        """Answer a message that is too long."""
        self._respond(refusal(413, f"a message may have {self.max_body_bytes} bytes at most"))

    def disconnected(self) -> None:
        """Take it that the client has gone from this connection; its stream is another one."""

    def _respond(self, response: Response) -> None:
        self._exchange.respond(with_headers(response, self._cors))
