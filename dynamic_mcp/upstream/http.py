"""Streamable HTTP (MCP 2025-11-25, basic/transports): each message is a POST, answered with JSON or an event stream.

A POST that fails affects only its own request. The link is lost only with the session or the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Callable, Iterator
from functools import partial

import httpx2

from dynamic_mcp.errors import DynamicMcpError, HttpError, LinkLost, NotSent, ProtocolViolation
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.event_stream import EventStream, ServerSentEvent
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import delays
from dynamic_mcp.upstream.answer_reader import AnswerReader
from dynamic_mcp.upstream.endpoint import EVENTS, JSON, Headers, HttpEndpoint, is_event_stream, read_events
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.outbox import Outbox

log = logging.getLogger(__name__)

SESSION = "mcp-session-id"
_DELETE_WITHIN_S = 1.5
# Consecutive refusals to resume a stream, and the first delay if the server does not name one.
_MAX_FAILURES = 5
_RESUME_AFTER_S = 0.1
_POST: Headers = ((b"content-type", JSON.encode()), (b"accept", f"{JSON}, {EVENTS}".encode()))
_GET: Headers = ((b"accept", EVENTS.encode()),)
_PING = b'{"jsonrpc":"2.0","id":"session","method":"ping"}'
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")
_VERSION = re.compile(r"[\w.-]{1,40}", re.ASCII)
_EVENT_ID = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")
# Some servers answer 400 for an unknown session, with these words in the body.
_NO_SESSION = re.compile(rb"session|not initialized", re.IGNORECASE)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0
# After a stream that lived this long, the delays restart.
_LONG_LIVED_S = 10.0


class HttpTransport:
    """One session with a server that speaks streamable HTTP; `attach` a link before anything is sent."""

    def __init__(self, endpoint: HttpEndpoint, max_message_bytes: int) -> None:
        self._endpoint = endpoint
        self._limit = max_message_bytes
        self._link: Link
        self._outbox = Outbox(endpoint.group, self)
        self._reader = AnswerReader(endpoint, max_message_bytes, self._learn_version)
        self._listener: asyncio.Task[None] | None = None
        self._session: Headers = ()
        self._version: Headers | None = None
        self._is_session_lost = False

    def attach(self, link: Link) -> None:
        self._link = self._outbox.link = self._reader.link = link

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Post one message; a failure is reported to the link later. Raises NotSent if the link is ending."""
        self._outbox.send(line)

    async def close(self) -> None:
        """Cancel everything in flight and end the session."""
        try:
            await self._outbox.close()
            if self._listener is not None:
                self._listener.cancel()
                await asyncio.wait([self._listener])
            if self._session and not self._is_session_lost:
                await self._end_session()
        finally:
            await self._endpoint.close()

    async def _end_session(self) -> None:
        with contextlib.suppress(TimeoutError, DynamicMcpError):
            async with asyncio.timeout(_DELETE_WITHIN_S), self._endpoint.exchange("DELETE", self._session_headers()):
                pass  # 405 is fine, too

    # --- MessagePoster ---------------------------------------------------------------------------------

    async def post_request(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request and hand over the response, until the request is answered."""
        stream = EventStream(self._limit)
        headers, left_s = _POST + self._session_headers(), partial(self._link.left_s, id)
        try:
            async with self._endpoint.exchange("POST", headers, body, left_s=left_s) as response:
                await self._check_status(response, id, method)
                await self._reader.read(response, id, stream)
        except NotSent:
            raise
        except LinkLost:
            if not stream.last_id:
                raise
        if self._link.is_awaiting(id):
            await self._resume(id, stream)

    async def post_message(self, body: bytes) -> None:
        headers = _POST + self._session_headers()
        async with self._endpoint.exchange("POST", headers, body, left_s=lambda: 10.0) as response:
            content = await self._endpoint.read_beginning(response)
            if response.status_code >= 300:
                if self._is_session_unknown(response, content):
                    self._lose_session()
                raise await self._endpoint.status_error(response, content)

    def start_listening(self) -> None:
        """Open the stream for notifications, and keep it open."""
        take = partial(self._reader.take, id=b"")
        stream = _NotificationStream(self._endpoint, self._stream_headers, take, self._limit)
        self._listener = asyncio.create_task(self._listen(stream), name=f"listening to {self._endpoint.group}")

    # --- an answer -------------------------------------------------------------------------------------

    async def _check_status(self, response: httpx2.Response, id: bytes, method: str) -> None:
        """Read the session id from the answer to `initialize`; raise the error for a status."""
        status = response.status_code
        if 200 <= status < 300:
            if method == "initialize" and SESSION in response.headers:
                self._session = ((SESSION.encode(), self._session_id(response)),)
            return
        content = await self._endpoint.read_beginning(response)
        if method != "initialize":
            if self._is_session_unknown(response, content):
                self._lose_session()
            if self._is_session_lost:
                raise self._session_error()
            if bytes(wire.member(content, "id")) == id and len(wire.member(content, "error")):
                self._reader.deliver(content, id)
                return
        raise await self._endpoint.status_error(response, content)

    def _is_session_unknown(self, response: httpx2.Response, content: bytes) -> bool:
        """Return whether a response rejects the session: by 404, or by 400 and words in the body."""
        status = response.status_code
        return (status == 404 and bool(self._session)) or (status == 400 and _NO_SESSION.search(content) is not None)

    def _lose_session(self) -> None:
        self._is_session_lost = True
        self._outbox.end_link(self._session_error())

    def _session_error(self) -> NotSent:
        return NotSent(self._endpoint.group, f"`{self._endpoint.host}` no longer knows the session")

    def _session_id(self, response: httpx2.Response) -> bytes:
        session: str = response.headers[SESSION]
        if not _SESSION_ID.fullmatch(session):
            raise ProtocolViolation(
                self._endpoint.group, f"`{self._endpoint.host}` gave a session id that cannot be sent back"
            )
        return session.encode()

    async def _resume(self, id: bytes, stream: EventStream) -> None:
        """Resume a broken stream; the request is not sent again, because it may have run."""
        failures, delays_s = 0, delays(_RESUME_AFTER_S, 8.0, random.random)
        while failures < _MAX_FAILURES and _EVENT_ID.fullmatch(stream.last_id):
            delay_s = next(delays_s) if stream.retry_s is None else max(stream.retry_s, _RESUME_AFTER_S)
            await asyncio.sleep(delay_s)
            failures = 0 if await self._reopen(id, stream) else failures + 1
            if not self._link.is_awaiting(id):
                return
        raise LinkLost(self._endpoint.group, f"`{self._endpoint.host}` ended the stream before the answer")

    async def _reopen(self, id: bytes, stream: EventStream) -> bool:
        """Ask for the rest of a stream and read it; return whether the server had it."""
        headers = (*self._stream_headers(), (b"last-event-id", stream.last_id))
        stream.restart()
        is_open = False
        with contextlib.suppress(LinkLost):
            async with self._endpoint.exchange("GET", headers, left_s=partial(self._link.left_s, id)) as response:
                is_open = is_event_stream(response)
                if is_open:
                    await self._reader.read_stream(response, id, stream)
        return is_open

    # --- shared ------------------------------------------------------------------------------------------

    def _stream_headers(self) -> Headers:
        return _GET + self._session_headers()

    async def _listen(self, stream: _NotificationStream) -> None:
        try:
            if await stream.read_until_refused():
                await self.post_message(_PING)  # its status tells whether the session still exists
        except (DynamicMcpError, TimeoutError) as exc:
            group_logger(log, self._endpoint.group).debug(
                "group %s: no longer listening: %s", self._endpoint.group, exc
            )
        except Exception:
            log.exception(
                "a bug: group %s: no longer listening", self._endpoint.group, extra={"group": self._endpoint.group}
            )

    def _learn_version(self, message: bytes) -> None:
        if self._version is not None:
            return
        version = wire.text(wire.member(message, "result", "protocolVersion"))
        if version is not None and _VERSION.fullmatch(version):
            self._version = ((b"mcp-protocol-version", version.encode()),)

    def _session_headers(self) -> Headers:
        return self._session + (self._version or ())


class _NotificationStream:
    """Keeps a stream for notifications open, with growing delays between attempts; `take` receives its events.

    Failures of the stream never affect requests.
    """

    def __init__(
        self,
        endpoint: HttpEndpoint,
        headers: Callable[[], Headers],
        take: Callable[[ServerSentEvent], None],
        limit: int,
    ) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._take = take
        self._stream = EventStream(limit)
        self._was_open = False

    async def read_until_refused(self) -> bool:
        """Read the stream until the server refuses it; return whether it was open before."""
        loop = asyncio.get_running_loop()
        group, delays_s = self._endpoint.group, self._delays()
        while True:
            began = loop.time()
            try:
                await self._read()
            except HttpError as exc:
                if exc.status < 500 and exc.status != 429:
                    group_logger(log, group).debug("group %s: no stream for notifications: %s", group, exc.message)
                    return self._was_open
            except DynamicMcpError as exc:
                group_logger(log, group).debug("group %s: the stream for notifications ended: %s", group, exc.message)
            if loop.time() - began >= _LONG_LIVED_S:
                delays_s = self._delays()
            await asyncio.sleep(max(next(delays_s), self._stream.retry_s or 0.0))

    def _delays(self) -> Iterator[float]:
        return delays(_FIRST_DELAY_S, _LONGEST_DELAY_S, random.random)

    async def _read(self) -> None:
        headers = self._headers()
        if self._stream.last_id:
            headers += ((b"last-event-id", self._stream.last_id),)
        self._stream.restart()
        async with self._endpoint.exchange("GET", headers) as response:
            if not is_event_stream(response):
                raise await self._endpoint.status_error(response)
            self._was_open = True
            await read_events(response, self._stream, self._take)
