"""Checks what is in front of a service, as its client through the public URL: what it removes, collects or cuts.

It opens a session, keeps a stream open for a while without calling anything, and ends the session.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx2
from msgspec import Struct

from dynamic_mcp import __version__
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.doctor.public_url import find_text
from dynamic_mcp.mcp.revisions import MODERN, NEWEST
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.web.guarded_client import explain

WHERE = "settings.http.public_url"
_WITHIN_S = 10.0
# More than nginx takes by itself.
LARGE_BYTES = 1_500_000
_MOST_BYTES = 1 << 20
_META = "io.modelcontextprotocol/"
_INFO = {"name": "dynamic-mcp doctor", "version": __version__}
_BUFFERS = (
    "let the reverse proxy pass bytes on as they come: `proxy_buffering off` in nginx, `flush_interval -1` in Caddy"
)


class StreamTimes(Struct, frozen=True):
    """How long to wait for the first bytes of a stream, and for those after a silence, which is at least `gap_s`.

    A stream that is never silent is watched for `most_s`.
    """

    first_s: float = 4.0
    silence_s: float = 18.0
    gap_s: float = 10.0
    most_s: float = 40.0


class _Answer(Struct, frozen=True):
    """A response that was read whole, as much as is used of it."""

    status: int
    headers: Mapping[str, str]
    document: dict[str, object]

    @property
    def reason(self) -> str:
        """The message of an error of dynamic-mcp; empty if it has not answered."""
        return find_text(self.document.get("error"), "message") if "jsonrpc" in self.document else ""


async def check_front(url: str, headers: Mapping[str, str], *, times: StreamTimes | None = None) -> list[Finding]:
    """Be a client of the service at its public URL, with these headers; return what is found."""
    try:
        async with httpx2.AsyncClient(timeout=_WITHIN_S, follow_redirects=False, headers=dict(headers)) as client:
            return await _Visit(client, url, times or StreamTimes()).findings()
    except REQUEST_ERRORS as exc:
        hint = "do dynamic-mcp and the reverse proxy run? This machine may also see another address than clients do"
        return [warning(WHERE, f"`{url}` {explain(exc)}", hint)]


class _Visit:
    """One session with the service."""

    def __init__(self, client: httpx2.AsyncClient, url: str, times: StreamTimes) -> None:
        self._client = client
        self._url = url
        self._times = times
        self._session: dict[str, str] = {}

    async def findings(self) -> list[Finding]:
        params = {"protocolVersion": NEWEST.name, "capabilities": {}, "clientInfo": _INFO}
        began = time.time()
        answer = await self._post("initialize", params)
        clock = check_clock(WHERE, answer.headers.get("date", ""), began, time.time())
        if answer.status != 200 or "result" not in answer.document:
            return [clock, self._judge_refusal(answer)]
        session = answer.headers.get("mcp-session-id")
        if session is None:
            hint = "let the reverse proxy pass on all headers of answers"
            return [clock, warning(WHERE, "answers arrive without `Mcp-Session-Id`", hint)]
        self._session = {"mcp-session-id": session, "mcp-protocol-version": NEWEST.name}
        reached = Finding(Level.OK, WHERE, f"a client reaches dynamic-mcp at `{self._url}`")
        return [clock, reached, *await self._check_session()]

    async def _check_session(self) -> list[Finding]:
        """Use the session, and end it."""
        found: list[Finding | None] = []
        try:
            await self._post("notifications/initialized", None)
            found += [await self._check_headers(), await self._check_size(), *await self._check_stream()]
        finally:
            ended = await self._client.delete(self._url, headers=self._session)
        if ended.status_code >= 400:
            hint = "let the reverse proxy pass on DELETE, by which clients end their sessions"
            found.append(warning(WHERE, f"DELETE is answered {ended.status_code}", hint))
        return [each for each in found if each is not None]

    async def _check_headers(self) -> Finding | None:
        """Send what a client of 2026-07-28 says in headers besides."""
        meta = {"protocolVersion": MODERN.name, "clientInfo": _INFO, "clientCapabilities": {}}
        params = {"_meta": {f"{_META}{name}": value for name, value in meta.items()}}
        headers = {"mcp-protocol-version": MODERN.name, "mcp-method": "server/discover"}
        answer = await self._post("server/discover", params, headers)
        if answer.status == 200:
            return None
        hint = "let the reverse proxy pass on all headers whose names begin with `Mcp-`"
        return warning(WHERE, f"clients of {MODERN.name} are answered {answer.status}: {answer.reason}", hint)

    async def _check_size(self) -> Finding | None:
        answer = await self._post("ping", {"_meta": {"padding": "x" * LARGE_BYTES}}, self._session)
        if answer.status == 200 or answer.reason:
            return None
        hint = "`client_max_body_size 64m` in nginx, as `max_message_bytes` has it"
        what = f"a message of {LARGE_BYTES / 1e6:.1f} MB is answered {answer.status} by what is in front"
        return warning(WHERE, what, hint)

    async def _check_stream(self) -> list[Finding]:
        """Keep the stream of the session open until nothing has come over it for a while, and then something."""
        loop = asyncio.get_running_loop()
        times, headers, found = self._times, {**self._session, "accept": "text/event-stream"}, list[Finding]()
        ends_at, heard_at, silence_s = loop.time() + times.most_s, 0.0, 0.0
        try:
            async with (
                asyncio.timeout(times.first_s) as bound,
                self._client.stream("GET", self._url, headers=headers, timeout=None) as answer,
            ):
                if answer.status_code != 200:
                    hint = "let the reverse proxy pass on GET as it does POST"
                    return [warning(WHERE, f"the stream of a session is answered {answer.status_code}", hint)]
                found += _check_encoding(answer.headers.get("content-encoding", ""))
                pieces = answer.aiter_raw()
                while silence_s < times.gap_s and loop.time() < ends_at:
                    await anext(pieces)
                    now = loop.time()
                    silence_s, heard_at = now - (heard_at or now), now
                    bound.reschedule(now + times.silence_s)
        except TimeoutError:
            what = "what is sent over a stream does not arrive at once"
            if heard_at:
                what = f"nothing came over a stream for {times.silence_s:.0f} s, and something is sent every 15 s"
            return [*found, warning(WHERE, what, _BUFFERS)]
        except (*REQUEST_ERRORS, StopAsyncIteration):
            hint = "its time limit must be more than 15 s: `proxy_read_timeout 1h` in nginx"
            ended_s = loop.time() - (heard_at or loop.time())
            return [*found, warning(WHERE, f"a stream was ended after {ended_s:.0f} s of silence", hint)]
        return [*found, Finding(Level.OK, WHERE, f"streams arrive at once, and outlive {silence_s:.0f} s of silence")]

    def _judge_refusal(self, answer: _Answer) -> Finding:
        """Return why there is no session."""
        status, why = answer.status, answer.reason
        has_sent = "authorization" in self._client.headers
        if status == 401 and why and has_sent and "required" in why:
            return warning(
                WHERE, "`Authorization` does not arrive", "let the reverse proxy pass it on, if it does not use it"
            )
        if status == 403 and "unknown host" in why:
            hint = "let the reverse proxy pass `Host` on: `proxy_set_header Host $http_host;` in nginx"
            return warning(WHERE, f"the service does not know its host: {why}", hint)
        if why:
            level = Level.NOTE if status == 401 else Level.WARNING
            hint = (
                "`--header 'Authorization: Bearer ${TOKEN}'` looks further, with a token of a client"
                if status == 401
                else ""
            )
            return Finding(level, WHERE, f"`{self._url}` is answered {status}: {why}", hint)
        if status in (401, 403) or 300 <= status < 400:
            hint = "`--header 'Authorization: ${PASSWORD}'` looks further, with a password of a client"
            return Finding(Level.NOTE, WHERE, f"what is in front asks for a password or a login ({status})", hint)
        if status in (502, 503, 504):
            return warning(WHERE, f"what is in front does not reach dynamic-mcp ({status})", "does it run there?")
        hint = "let the reverse proxy pass the path on as it is, or name what it removes in `root_path`"
        return warning(WHERE, f"`{self._url}` is answered {status}, and not by dynamic-mcp", hint)

    async def _post(
        self, method: str, params: Mapping[str, object] | None, headers: Mapping[str, str] | None = None
    ) -> _Answer:
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message |= {"id": 1, "params": params}
        own = {"accept": "application/json, text/event-stream", **(self._session if headers is None else headers)}
        async with self._client.stream("POST", self._url, json=message, headers=own) as response:
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MOST_BYTES:
                    break
        return _Answer(response.status_code, response.headers, _parse(body))


def _check_encoding(encoding: str) -> list[Finding]:
    if not encoding:
        return []
    hint = "exclude `text/event-stream` from compression, which collects what it compresses"
    return [warning(WHERE, f"streams are compressed (`{encoding}`)", hint)]


def check_clock(where: str, date: str, began: float, ended: float, *, most_s: float = 5.0) -> Finding:
    """Return the finding about a `Date` that was read between two moments of this machine's clock."""
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return Finding(Level.NOTE, where, "says no time, so the clocks were not compared")
    # it has whole seconds
    ahead_s = max(began - 1 - theirs, 0.0) if theirs < began else -max(theirs - ended, 0.0)
    if abs(ahead_s) <= most_s:
        return Finding(Level.OK, where, "its clock is that of this machine")
    how = "ahead of" if ahead_s > 0 else "behind"
    hint = "synchronize it (`timedatectl set-ntp true`): tokens of logins are refused before and after their time"
    return warning(where, f"the clock of this machine is {abs(ahead_s):.0f} s {how} its own", hint)


def _parse(body: bytes) -> dict[str, object]:
    """Parse a JSON object, or the first one in a stream of events; anything else is an empty one."""
    for line in (body, *(each.removeprefix(b"data:") for each in body.splitlines() if each.startswith(b"data: {"))):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return document if isinstance(document, dict) else {}
    return {}
