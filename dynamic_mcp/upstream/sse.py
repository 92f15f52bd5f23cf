"""The older HTTP+SSE transport (MCP 2024-11-05): one event stream for all that the server says, and POSTs to it.

The stream is the link: when it ends, so does the link.
"""

from __future__ import annotations

import asyncio
import logging

import httpx2

from dynamic_mcp.errors import DynamicMcpError, HttpError, LinkLost, NotSent, ProtocolViolation, TimedOut
from dynamic_mcp.mcp.event_stream import Event, EventStream
from dynamic_mcp.mcp.lines import Oversized
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.endpoint import Headers, HttpEndpoint, chunks, is_within, media_type
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.upstream.outbox import Outbox

log = logging.getLogger(__name__)

_GET: Headers = ((b"accept", b"text/event-stream"), (b"cache-control", b"no-store"))
_POST: Headers = ((b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream"))


class SseTransport:
    """One session with a server that speaks HTTP+SSE; `attach` a link, then `start`."""

    def __init__(self, site: HttpEndpoint, max_message_bytes: int) -> None:
        self._site = site
        self._logger = group_logger(log, site.group)
        self._stream = EventStream(max_message_bytes)
        self._link: Link
        self._outbox = Outbox(site.group, self)
        self._endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Task[None] | None = None

    def attach(self, link: Link) -> None:
        """Say who gets what the server sends."""
        self._link = self._outbox.link = link

    async def start(self, within_s: float) -> None:
        """Open the stream and learn where to post. Raises UpstreamError and LoginNeeded."""
        self._reading = asyncio.create_task(self._read(), name=f"stream of {self._site.group}")
        try:
            async with asyncio.timeout(within_s):
                await asyncio.wait([self._endpoint])
            self._endpoint.result()
        except TimeoutError:
            why = f"`{self._site.host}` sent no endpoint for messages within {within_s:g} s"
            raise TimedOut(self._site.group, why, hint="check the path in the `url`; it is often `/sse`") from None

    # --- Transport -------------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Post one message; what becomes of it the link learns later. Raises NotSent when the link is ending."""
        self._outbox.send(line)

    async def close(self) -> None:
        """Break off what is under way, and the stream."""
        try:
            await self._outbox.close()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait([self._reading])
        finally:
            await self._site.close()

    # --- Postman ---------------------------------------------------------------------------------------

    async def ask(self, id: bytes, method: str, body: bytes) -> None:
        """Post a request, whose answer comes on the stream."""
        try:
            async with asyncio.timeout(self._link.left_s(id)):
                await self._post(body, id)
        except TimeoutError:
            pass  # the link says so itself

    async def tell(self, body: bytes) -> None:
        """Post a notification or an answer."""
        await self._post(body, b"")

    def greeted(self) -> None:
        """Do nothing: the stream is open already."""

    async def _post(self, body: bytes, id: bytes) -> None:
        endpoint = self._endpoint.result()

        def patience() -> float:
            return self._link.left_s(id) if id else 10.0

        async with self._site.exchange("POST", _POST, body, url=endpoint, patience=patience) as response:
            said = await self._site.beginning(response)
            if response.status_code == 404:
                raise NotSent(self._site.group, f"`{self._site.host}` no longer knows the session")
            if response.status_code >= 300:
                raise await self._site.refusal(response, said)

    # --- the stream ------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            await self._receive()
            error: DynamicMcpError = LinkLost(self._site.group, f"`{self._site.host}` ended its event stream")
        except DynamicMcpError as exc:
            error = exc
        except Exception as exc:
            self._logger.exception("a bug: the stream of group %s ends", self._site.group)
            error = LinkLost(self._site.group, f"internal error of the proxy: {exc}")
        if not self._endpoint.done():
            self._endpoint.set_exception(error)
        elif isinstance(error, LinkLost):
            self._link.lost(error)
        else:
            self._link.lost(LinkLost(self._site.group, str(error.message)))

    async def _receive(self) -> None:
        async with self._site.exchange("GET", _GET) as response:
            if response.status_code != 200 or media_type(response) != "text/event-stream":
                raise await self._refusal(response)
            async with chunks(response) as parts:
                async for part in parts:
                    for event in self._stream.feed(part):
                        self._take(event)

    async def _refusal(self, response: httpx2.Response) -> HttpError:
        if response.status_code != 200:
            return await self._site.refusal(response)
        what = f"sent `{media_type(response) or 'no content type'}` instead of an event stream"
        hint = "check the path in the `url`; it is often `/sse`"
        return HttpError(self._site.group, f"`{self._site.host}` {what}", status=200, hint=hint)

    def _take(self, event: Event) -> None:
        match event.name:
            case "endpoint" if not self._endpoint.done():
                self._endpoint.set_result(self._url_of(event.data))
            case "message" if isinstance(event.data, Oversized):
                self._link.receive(event.data, b"")
            case "message":
                self._link.receive(event.data.replace(b"\n", b" "), b"")

    def _url_of(self, endpoint: bytes) -> httpx2.URL:
        try:
            url = self._site.url.join(endpoint.decode("utf-8", "replace").strip())
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if not is_within(url, self._site.url):
            shown = self._site.excerpt(endpoint.partition(b"?")[0])
            why = f"`{self._site.host}` wants messages to be sent elsewhere, to `{shown}`"
            raise ProtocolViolation(self._site.group, why, hint="nothing was sent there; do not trust this server")
        return url
