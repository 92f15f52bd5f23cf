"""The redirect URI of a login: a listener on 127.0.0.1 that accepts one authorization response.

Everything else (port scans, requests for icons, other sites by DNS rebinding, forged responses) gets an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from html import escape
from types import TracebackType
from urllib.parse import urlsplit

from dynamic_mcp.web.authorization_response import AuthorizationResponse, UnexpectedResponse, parse_response

PATH = "/callback"
HEAD_S = 10.0
MAX_HEAD_BYTES = 16384
MAX_CONNECTIONS = 32

_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
    "Connection: close\r\n"
)
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>dynamic-mcp</title>"
    "<body style='font-family:sans-serif;max-width:36em;margin:4em auto'><h1>{title}</h1><p>{text}</p>"
)
_DONE = "You can close this window and go back to your work."


class Callback:
    """The listener: enter it as a context, send the user to the browser, then await `wait_for_response`."""

    def __init__(self, port: int | None, state: str) -> None:
        self._port = port
        self.state = state
        self._response: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Callback:
        """Listen. Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port or 0, limit=MAX_HEAD_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._connections:
            writer.close()
        self._response.cancel()

    @property
    def port(self) -> int:
        assert self._port is not None
        return self._port

    @property
    def redirect_uri(self) -> str:
        """The address on this machine for the browser to return to (RFC 8252, section 7.3)."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def wait_for_response(self) -> AuthorizationResponse:
        return await self._response

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._handle(head.decode("latin-1").split("\r\n")))
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    def _handle(self, lines: list[str]) -> bytes:
        method, _, rest = lines[0].partition(" ")
        target = urlsplit("http://_" + rest.partition(" ")[0]) if rest.startswith("/") else urlsplit("")
        if target.path != PATH:
            return _page(404, "Not found", "This page does not exist.")
        if method != "GET":
            return _page(405, "Not allowed", "Only a browser that returns from a login may use this page.")
        if _fields(lines[1:]).get("host") not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return _page(400, "Refused", "This request was for another host.")
        try:
            response = parse_response(target.query, self.state)
        except UnexpectedResponse as exc:
            return _page(400, "Refused", f"Nothing was changed: {exc}.")
        if self._response.done():
            return _page(400, "Refused", "This login has ended.")
        self._response.set_result(response)
        if response.error is not None:
            # without its text: only the login knows which server must have sent it (RFC 9207, section 2.4)
            return _page(400, "Not logged in", f"The login was refused; dynamic-mcp says why. {_DONE}")
        return _page(200, "Almost done", f"dynamic-mcp is finishing the login. {_DONE}")


def _fields(lines: list[str]) -> Mapping[str, str]:
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _page(status: int, title: str, text: str) -> bytes:
    body = _PAGE.format(title=escape(title), text=escape(text)).encode()
    return f"HTTP/1.1 {status} {title}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body
