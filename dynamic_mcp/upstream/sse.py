"""The older HTTP+SSE transport (MCP 2024-11-05): one event stream for everything the server sends, and POSTs to it.

The stream is the link: when it ends, the link ends.
"""

from __future__ import annotations

import asyncio
import logging

import httpx2

from dynamic_mcp.errors import DynamicMcpError, HttpError, LinkLost, NotSent, ProtocolViolation, TimedOut
from dynamic_mcp.mcp.event_stream import EventStream, ServerSentEvent
from dynamic_mcp.mcp.lines import Oversized
from dynamic_mcp.upstream.endpoint import (
    Headers,
    HttpEndpoint,
    is_event_stream,
    is_same_origin,
    media_type,
    read_events,
)
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.outbox import Outbox

log = logging.getLogger(__name__)

_GET: Headers = ((b"accept", b"text/event-stream"), (b"cache-control", b"no-store"))
_POST: Headers = ((b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream"))
_PATH_HINT = "check the path in the `url`; it is often `/sse`"


class SseTransport:
    """One session with a server that speaks HTTP+SSE; `attach` a link, then `start`."""

    def __init__(self, endpoint: HttpEndpoint, max_message_bytes: int) -> None:
        self._endpoint = endpoint
        self._stream = EventStream(max_message_bytes)
        self._link: Link
        self._outbox = Outbox(endpoint.group, self)
        self._message_url: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()
        self._reader: asyncio.Task[None] | None = None

    def attach(self, link: Link) -> None:
        self._link = self._outbox.link = link

    async def start(self, within_s: float) -> None:
        """Open the stream and wait for the URL to post messages to. Raises UpstreamError and LoginNeeded."""
        self._reader = asyncio.create_task(self._read(), name=f"stream of {self._endpoint.group}")
        try:
            async with asyncio.timeout(within_s):
                await asyncio.wait([self._message_url])
            self._message_url.result()
        except TimeoutError:
            why = f"`{self._endpoint.host}` sent no endpoint for messages within {within_s:g} s"
            raise TimedOut(self._endpoint.group, why, hint=_PATH_HINT) from None

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Post one message; a failure is reported to the link later. Raises NotSent if the link is ending."""
        self._outbox.send(line)

    async def close(self) -> None:
        try:
            await self._outbox.close()
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])
        finally:
            await self._endpoint.close()

    # --- MessagePoster ---------------------------------------------------------------------------------

    async def post_request(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request; its answer arrives on the stream."""
        try:
            async with asyncio.timeout(self._link.left_s(id)):
                await self._post(body, id)
        except TimeoutError:
            pass  # the link reports it

    async def post_message(self, body: bytes) -> None:
        await self._post(body, b"")

    def start_listening(self) -> None:
        """Do nothing: the stream is already open."""

    async def _post(self, body: bytes, id: bytes) -> None:
        url = self._message_url.result()

        def left_s() -> float:
            return self._link.left_s(id) if id else 10.0

        async with self._endpoint.exchange("POST", _POST, body, url=url, left_s=left_s) as response:
            content = await self._endpoint.read_beginning(response)
            if response.status_code == 404:
                raise NotSent(self._endpoint.group, f"`{self._endpoint.host}` no longer knows the session")
            if response.status_code >= 300:
                raise await self._endpoint.status_error(response, content)

    # --- the stream ------------------------------------------------------------------------------------

    async def _read(self) -> None:
        group, host = self._endpoint.group, self._endpoint.host
        try:
            await self._read_stream()
            error: DynamicMcpError = LinkLost(group, f"`{host}` ended its event stream")
        except DynamicMcpError as exc:
            error = exc
        except Exception as exc:
            log.exception("a bug: the stream of group %s ends", group, extra={"group": group})
            error = LinkLost(group, f"internal error of the proxy: {exc}")
        if not self._message_url.done():
            self._message_url.set_exception(error)
        else:
            self._link.lose(error if isinstance(error, LinkLost) else LinkLost(group, str(error.message)))

    async def _read_stream(self) -> None:
        async with self._endpoint.exchange("GET", _GET) as response:
            if not is_event_stream(response):
                raise await self._stream_error(response)
            await read_events(response, self._stream, self._take)

    async def _stream_error(self, response: httpx2.Response) -> HttpError:
        if response.status_code != 200:
            return await self._endpoint.status_error(response)
        what = f"sent `{media_type(response) or 'no content type'}` instead of an event stream"
        return HttpError(self._endpoint.group, f"`{self._endpoint.host}` {what}", status=200, hint=_PATH_HINT)

    def _take(self, event: ServerSentEvent) -> None:
        match event.name:
            case "endpoint" if not self._message_url.done():
                self._message_url.set_result(self._resolve_message_url(event.data))
            case "message" if isinstance(event.data, Oversized):
                self._link.receive(event.data, b"")
            case "message":
                self._link.receive(event.data.replace(b"\n", b" "), b"")

    def _resolve_message_url(self, reference: bytes) -> httpx2.URL:
        try:
            url = self._endpoint.url.join(reference.decode("utf-8", "replace").strip())
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if not is_same_origin(url, self._endpoint.url):
            excerpt = self._endpoint.excerpt(reference.partition(b"?")[0])
            why = f"`{self._endpoint.host}` wants messages to be sent elsewhere, to `{excerpt}`"
            hint = "nothing was sent there; do not trust this server"
            raise ProtocolViolation(self._endpoint.group, why, hint=hint)
        return url
