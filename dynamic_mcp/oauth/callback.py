"""Where the browser comes back to: a listener on 127.0.0.1 for one answer, with no patience for anything else.

Whatever else knocks (port scans, icons, other sites by DNS rebinding, a forged answer) gets an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from types import TracebackType
from urllib.parse import parse_qsl, urlsplit

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


@dataclass(frozen=True)
class Returned:
    """What an authorization server gave the browser to bring along: a code, or an error."""

    code: str | None
    error: str | None
    iss: str | None


class NotOurs(Exception):
    """An answer to something that was not asked; why, in words for a person."""


def returned(query: str, state: str) -> Returned:
    """Return what a redirect brings, if it is the answer to the request with this state. Raises NotOurs."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise NotOurs("this is not an answer to a login") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise NotOurs("it has a parameter twice")
    if not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise NotOurs("it is not the answer to the login that is under way: its `state` is missing or different")
    if not fields.get("code") and not fields.get("error"):
        raise NotOurs("it holds neither a code nor an error")
    return Returned(fields.get("code"), fields.get("error"), fields.get("iss"))


class Callback:
    """The listener; enter it as a context, send the browser to `redirect_uri`, then await `answer`."""

    def __init__(self, port: int | None, state: str) -> None:
        self._port = port
        self._state = state
        self._found: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
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
        self._found.cancel()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._port is not None
        return self._port

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server is to send the browser (RFC 8252, section 7.3)."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def answer(self) -> Returned:
        """Wait for the browser to come back with the answer."""
        return await self._found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answered(head.decode("latin-1").split("\r\n")))
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answered(self, lines: list[str]) -> bytes:
        method, _, rest = lines[0].partition(" ")
        target = urlsplit("http://_" + rest.partition(" ")[0]) if rest.startswith("/") else urlsplit("")
        if target.path != PATH:
            return _response(404, "Not found", "There is nothing here.")
        if method != "GET":
            return _response(405, "Not allowed", "This page is only for a browser that returns from a login.")
        if _fields(lines[1:]).get("host") not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return _response(400, "Refused", "This request was for another host.")
        try:
            found = returned(target.query, self._state)
        except NotOurs as exc:
            return _response(400, "Refused", f"This changes nothing: {exc}.")
        if self._found.done():
            return _response(400, "Refused", "This login is over.")
        self._found.set_result(found)
        if found.error is not None:
            return _response(400, "Not logged in", f"The server said `{found.error[:100]}`. {_DONE}")
        return _response(200, "Almost done", f"dynamic-mcp finishes the login now. {_DONE}")


def _fields(lines: list[str]) -> Mapping[str, str]:
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _response(status: int, title: str, text: str) -> bytes:
    body = _PAGE.format(title=escape(title), text=escape(text)).encode()
    return f"HTTP/1.1 {status} {title}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body
