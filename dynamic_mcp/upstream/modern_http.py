"""Streamable HTTP without sessions (MCP 2026-07-28): each request is a separate POST, whose end cancels it.

There is no stream besides those of requests, and none is resumed. A POST that fails affects only its own request.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import httpx2

from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.event_stream import EventStream
from dynamic_mcp.mcp.mirrored_headers import NAMED_BY, ToolHeaders, encode_value
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.answer_reader import AnswerReader
from dynamic_mcp.upstream.endpoint import EVENTS, JSON, Headers, HttpEndpoint
from dynamic_mcp.upstream.link import Link

log = logging.getLogger(__name__)

_HEADERS: Headers = (
    (b"content-type", JSON.encode()),
    (b"accept", f"{JSON}, {EVENTS}".encode()),
    (b"mcp-protocol-version", MODERN.name.encode()),
)
_METHOD = b'"method"'
# Their bodies add nothing to the credentials.
_ABOUT_CREDENTIALS = frozenset((401, 403))


class ModernHttpTransport:
    """The requests of one link to a server; `attach` the link before anything is sent."""

    def __init__(self, endpoint: HttpEndpoint, max_message_bytes: int) -> None:
        self.tool_headers = ToolHeaders()
        self._endpoint = endpoint
        self._logger = group_logger(log, endpoint.group)
        self._limit = max_message_bytes
        self._reader = AnswerReader(endpoint, max_message_bytes)
        self._reader.link = self
        self._link: Link
        self._requests: dict[bytes, asyncio.Task[None]] = {}
        self._is_closed = False

    def attach(self, link: Link) -> None:
        self._link = link

    def send(self, line: bytes) -> None:
        """Post one message, or end the request that it cancels. Raises NotSent if the link is ending."""
        if self._is_closed:
            raise NotSent(self._endpoint.group, "the link is being closed")
        frame, body = wire.parse(line), line.rstrip(b"\n")
        if frame.method == "notifications/cancelled":
            self._cancel(bytes(wire.member(frame.params, "requestId")))
        elif frame.method and len(frame.id):
            id = bytes(frame.id)
            task = self._requests[id] = asyncio.create_task(
                self._request(id, frame, body), name=f"request to {self._endpoint.group}"
            )
            task.add_done_callback(lambda _: self._requests.pop(id))
        # a modern server sends no requests, and accepts no other notification

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._requests.values()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self._endpoint.close()

    # --- MessageReceiver -------------------------------------------------------------------------------

    def is_awaiting(self, id: bytes) -> bool:
        return self._link.is_awaiting(id)

    def receive(self, line: bytes, for_id: bytes | None = None) -> None:
        """Receive one message; requests are dropped, because modern servers send none in a stream."""
        if _METHOD in line and _is_request(line):
            self._logger.debug("group %s: dropped a request, which modern servers do not make", self._endpoint.group)
        else:
            self._link.receive(line, for_id)

    # --- requests --------------------------------------------------------------------------------------

    def _cancel(self, id: bytes) -> None:
        if id in self._requests:
            self._requests[id].cancel()

    async def _request(self, id: bytes, frame: Frame, body: bytes) -> None:
        try:
            await self._post(id, frame, body)
        except DynamicMcpError as exc:
            self._link.fail_request(id, exc)
        except Exception:
            self._logger.exception("a bug: group %s: a request fails", self._endpoint.group)
            self._link.fail_request(id, LinkLost(self._endpoint.group, "internal error of the proxy"))

    async def _post(self, id: bytes, frame: Frame, body: bytes) -> None:
        """Post a request and hand over the response, until the request is answered."""
        headers, left_s = self._headers(frame), partial(self._link.left_s, id)
        async with self._endpoint.exchange("POST", headers, body, left_s=left_s) as response:
            if not 200 <= response.status_code < 300:
                await self._take_error(response, id)
            await self._reader.read(response, id, EventStream(self._limit))
        if self._link.is_awaiting(id):
            raise LinkLost(self._endpoint.group, f"`{self._endpoint.host}` ended the stream before the answer")

    async def _take_error(self, response: httpx2.Response, id: bytes) -> None:
        """Hand over the JSON-RPC error that comes with a status; raise the error for any other status."""
        content = await self._endpoint.read_beginning(response)
        error, of = wire.member(content, "error"), bytes(wire.member(content, "id"))
        is_error = len(wire.member(error, "code")) > 0 and of in (id, b"", b"null")
        if not is_error or response.status_code in _ABOUT_CREDENTIALS:
            raise await self._endpoint.status_error(response, content)
        self._reader.deliver(b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (id, bytes(error)), id)

    def _headers(self, frame: Frame) -> Headers:
        """Return the headers of a request, which repeat parts of its body."""
        method = frame.method
        headers = (*_HEADERS, (b"mcp-method", encode_value(method)))
        name_of = NAMED_BY.get(method)
        if name_of is None:
            return headers
        name = wire.text(wire.member(frame.params, name_of))
        if name is None:
            return headers
        headers = (*headers, (b"mcp-name", encode_value(name)))
        if method != "tools/call":
            return headers
        return headers + self.tool_headers.headers(name, wire.member(frame.params, "arguments"))


def _is_request(line: bytes) -> bool:
    try:
        frame = wire.parse(line)
    except wire.Malformed:
        return False  # the link reports the error
    return bool(frame.method) and len(frame.id) > 0
