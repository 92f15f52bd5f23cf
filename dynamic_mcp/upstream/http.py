"""Streamable HTTP (MCP 2025-11-25, basic/transports): each message a POST, its answer JSON or an event stream.

A POST that fails costs its own request. The link is lost only when the session is gone or the server unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Callable
from functools import partial

import httpx2

from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent, ProtocolViolation
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.event_stream import Event, EventStream
from dynamic_mcp.mcp.lines import Oversized
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream.endpoint import Headers, HttpEndpoint, chunks, media_type
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.listening import Listening
from dynamic_mcp.upstream.outbox import Outbox

log = logging.getLogger(__name__)

SESSION = "mcp-session-id"
JSON, EVENTS = "application/json", "text/event-stream"
# How long a stream may take to end after its answer, so that its connection can be used again.
_END_WITHIN_S = 1.0
_DELETE_WITHIN_S = 1.5
# So often in a row a server may refuse to take a broken stream up again, and so long is waited where it does not say.
_MAX_FAILURES = 5
_RESUME_AFTER_S = 0.1
_POST: Headers = ((b"content-type", JSON.encode()), (b"accept", f"{JSON}, {EVENTS}".encode()))
_GET: Headers = ((b"accept", EVENTS.encode()),)
_PING = b'{"jsonrpc":"2.0","id":"session","method":"ping"}'
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")
_VERSION = re.compile(r"[\w.-]{1,40}", re.ASCII)
_EVENT_ID = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")
# Servers that know no session say so with 400 as well, in words of their own.
_NO_SESSION = re.compile(rb"session|not initialized", re.IGNORECASE)


class HttpTransport:
    """One session with a server that speaks streamable HTTP; `attach` a link before anything is sent."""

    def __init__(
        self, site: HttpEndpoint, max_message_bytes: int, jitter: Callable[[], float] = random.random
    ) -> None:
        self._site = site
        self._logger = group_logger(log, site.group)
        self._limit = max_message_bytes
        self._jitter = jitter
        self._link: Link
        self._outbox = Outbox(site.group, self)
        self._listening: asyncio.Task[None] | None = None
        self._session: Headers = ()
        self._version: Headers | None = None
        self._is_gone = False

    def attach(self, link: Link) -> None:
        """Say who gets what the server sends."""
        self._link = self._outbox.link = link

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Post one message; what becomes of it the link learns later. Raises NotSent when the link is ending."""
        self._outbox.send(line)

    async def close(self) -> None:
        """Break off what is under way and end the session."""
        try:
            await self._outbox.close()
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.wait([self._listening])
            if self._session and not self._is_gone:
                await self._end_session()
        finally:
            await self._site.close()

    async def _end_session(self) -> None:
        with contextlib.suppress(TimeoutError, DynamicMcpError):
            async with asyncio.timeout(_DELETE_WITHIN_S), self._site.exchange("DELETE", self._common()):
                pass  # 405 is a fine answer as well

    # --- Postman ---------------------------------------------------------------------------------------

    async def ask(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request and hand over what comes back, until its answer was among it."""
        stream = EventStream(self._limit)
        patience = partial(self._link.left_s, id)
        try:
            async with self._site.exchange("POST", _POST + self._common(), body, patience=patience) as response:
                await self._check(response, id, method)
                await self._answer(response, id, stream)
        except NotSent:
            raise
        except LinkLost:
            if not stream.last_id:
                raise
        if self._link.awaits(id):
            await self._resume(id, stream)

    async def tell(self, body: bytes) -> None:
        """Post a notification or an answer."""
        async with self._site.exchange("POST", _POST + self._common(), body, patience=lambda: 10.0) as response:
            said = await self._site.beginning(response)
            if response.status_code >= 300:
                self._notice_loss(response, said)
                raise await self._site.refusal(response, said)

    def greeted(self) -> None:
        """Listen to what the server says without being asked, from now on."""
        listening = Listening(self._site, self.headers_of_get, self._heard, self._limit, jitter=self._jitter)
        self._listening = asyncio.create_task(self._listen(listening), name=f"listening to {self._site.group}")

    # --- an answer -------------------------------------------------------------------------------------

    async def _check(self, response: httpx2.Response, id: bytes, method: str) -> None:
        """Take the session from the answer to `initialize`, and raise what a status says."""
        status = response.status_code
        if 200 <= status < 300:
            if method == "initialize" and SESSION in response.headers:
                self._session = ((SESSION.encode(), self._session_id(response)),)
            return
        said = await self._site.beginning(response)
        if method != "initialize":
            self._notice_loss(response, said)
            if self._is_gone:
                raise NotSent(self._site.group, f"`{self._site.host}` no longer knows the session")
            if bytes(wire.member(said, "id")) == id and len(wire.member(said, "error")):
                self._deliver(said, id)
                return
        raise await self._site.refusal(response, said)

    def _notice_loss(self, response: httpx2.Response, said: bytes) -> None:
        """Learn that the session is gone: by 404, or by 400 from servers that say it in words."""
        status = response.status_code
        if (status == 404 and self._session) or (status == 400 and _NO_SESSION.search(said)):
            self._is_gone = True
            self._outbox.is_gone(NotSent(self._site.group, f"`{self._site.host}` no longer knows the session"))

    def _session_id(self, response: httpx2.Response) -> bytes:
        session: str = response.headers[SESSION]
        if not _SESSION_ID.fullmatch(session):
            raise ProtocolViolation(
                self._site.group, f"`{self._site.host}` gave a session id that cannot be sent back"
            )
        return session.encode()

    async def _answer(self, response: httpx2.Response, id: bytes, stream: EventStream) -> None:
        if not self._link.awaits(id):
            return  # it came with the status
        match media_type(response):
            case "application/json":
                body = await self._site.read(response, self._limit)
                if body.strip():
                    self._deliver(body, id)
                    self._insist(id, "sent JSON that does not answer the request")
                self._insist(id, "sent nothing as the answer")
            case "text/event-stream":
                await self._follow(response, id, stream)
            case kind:
                said = await self._site.beginning(response)
                what = f"sent `{kind or 'no content type'}`, which is not an MCP message: {self._site.excerpt(said)}"
                self._insist(id, what if said else f"answered {response.status_code} and sent nothing")

    def _insist(self, id: bytes, otherwise: str) -> None:
        if self._link.awaits(id):
            hint = "check the path in the `url`; the request may have run"
            raise ProtocolViolation(self._site.group, f"`{self._site.host}` {otherwise}", hint=hint)

    async def _follow(self, response: httpx2.Response, id: bytes, stream: EventStream) -> None:
        """Hand over events until the request is answered; after that the stream may end on its own, soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as end, chunks(response) as parts:
                async for part in parts:
                    for event in stream.feed(part):
                        self._take(event, id)
                    if end.when() is None and not self._link.awaits(id):
                        end.reschedule(asyncio.get_running_loop().time() + _END_WITHIN_S)
        rest = stream.rest()
        if rest is not None:
            with contextlib.suppress(wire.Malformed):  # half a message says nothing
                wire.parse(rest.data)
                self._take(rest, id)

    async def _resume(self, id: bytes, stream: EventStream) -> None:
        """Take a broken stream up where it broke; the request is not sent again, since it may have run."""
        failures, pauses = 0, delays(_RESUME_AFTER_S, 8.0, self._jitter)
        while failures < _MAX_FAILURES and _EVENT_ID.fullmatch(stream.last_id):
            pause_s = next(pauses) if stream.retry_s is None else max(stream.retry_s, _RESUME_AFTER_S)
            await asyncio.sleep(pause_s)
            failures = 0 if await self._is_resumed(id, stream) else failures + 1
            if not self._link.awaits(id):
                return
        why = f"`{self._site.host}` ended the stream before the answer"
        raise LinkLost(self._site.group, why)

    async def _is_resumed(self, id: bytes, stream: EventStream) -> bool:
        headers = (*self.headers_of_get(), (b"last-event-id", stream.last_id))
        stream.reconnected()
        patience = partial(self._link.left_s, id)
        is_there = False
        with contextlib.suppress(LinkLost):
            async with self._site.exchange("GET", headers, patience=patience) as response:
                is_there = response.status_code == 200 and media_type(response) == EVENTS
                if is_there:
                    await self._follow(response, id, stream)
        return is_there

    # --- shared ------------------------------------------------------------------------------------------

    def headers_of_get(self) -> Headers:
        """Return the headers with which a stream is asked for."""
        return _GET + self._common()

    async def _listen(self, listening: Listening) -> None:
        try:
            if await listening.until_refused():
                await self.tell(_PING)  # the status tells whether the session is still there
        except (DynamicMcpError, TimeoutError) as exc:
            self._logger.debug("group %s: no longer listening: %s", self._site.group, exc)
        except Exception:
            self._logger.exception("a bug: group %s is no longer listened to", self._site.group)

    def _heard(self, event: Event) -> None:
        self._take(event, b"")

    def _take(self, event: Event, id: bytes) -> None:
        if event.name == "message":
            self._deliver(event.data, id)

    def _deliver(self, message: bytes, id: bytes) -> None:
        """Give the link one message, in one line as all others are."""
        if not isinstance(message, Oversized):
            if b"\n" in message or b"\r" in message:  # white space, since JSON strings have none of these
                message = message.replace(b"\n", b" ").replace(b"\r", b" ").strip()
            if self._version is None and id:
                self._learn_version(message)
        self._link.receive(message, id)

    def _learn_version(self, message: bytes) -> None:
        version = wire.text(wire.member(message, "result", "protocolVersion"))
        if version is not None and _VERSION.fullmatch(version):
            self._version = ((b"mcp-protocol-version", version.encode()),)

    def _common(self) -> Headers:
        return self._session + (self._version or ())
