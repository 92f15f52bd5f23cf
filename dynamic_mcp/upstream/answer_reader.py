"""Reads the response to a POST, be it JSON or a stream of events, until the request is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import httpx2

from dynamic_mcp.errors import ProtocolViolation
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.event_stream import EventStream, ServerSentEvent
from dynamic_mcp.mcp.lines import Oversized, on_one_line
from dynamic_mcp.upstream.endpoint import HttpEndpoint, chunks, media_type

# Time for a stream to end after its answer; only then can its connection be reused.
_END_WITHIN_S = 1.0


class MessageReceiver(Protocol):
    """The receiver of messages: a link, or a transport in front of it."""

    def is_awaiting(self, id: bytes) -> bool:
        """Return whether a request still waits for its answer."""
        ...

    def receive(self, line: bytes, for_id: bytes | None = None) -> None:
        """Receive one message, and the id of the request that it came in response to."""
        ...


class AnswerReader:
    """Hands over the messages of a server, one a line; set `link` before anything is read.

    `learn` receives each message in the response to a request, before the link does.
    """

    def __init__(self, endpoint: HttpEndpoint, limit: int, learn: Callable[[bytes], None] | None = None) -> None:
        self._endpoint = endpoint
        self._limit = limit
        self._learn = learn
        self.link: MessageReceiver

    async def read(self, response: httpx2.Response, id: bytes, stream: EventStream) -> None:
        """Read the answer to a request. Raises ProtocolViolation if the body is not an answer."""
        if not self.link.is_awaiting(id):
            return  # the answer came with an error status
        match media_type(response):
            case "application/json":
                body = await self._endpoint.read_body(response, self._limit)
                if body.strip():
                    self.deliver(body, id)
                    self._check_answered(id, "sent JSON that does not answer the request")
                self._check_answered(id, "sent an empty answer")
            case "text/event-stream":
                await self.read_stream(response, id, stream)
            case kind:
                content = await self._endpoint.read_beginning(response)
                excerpt = self._endpoint.excerpt(content)
                what = f"sent `{kind or 'no content type'}`, which is not an MCP message: {excerpt}"
                self._check_answered(id, what if content else f"answered {response.status_code} with an empty body")

    def _check_answered(self, id: bytes, what: str) -> None:
        """Raise ProtocolViolation if a request has no answer yet; `what` describes the response of the server."""
        if self.link.is_awaiting(id):
            hint = "check the path in the `url`; the request may have run"
            raise ProtocolViolation(self._endpoint.group, f"`{self._endpoint.host}` {what}", hint=hint)

    async def read_stream(self, response: httpx2.Response, id: bytes, stream: EventStream) -> None:
        """Hand over events until the request is answered; then wait a moment for the end of the stream."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as end, chunks(response) as parts:
                async for part in parts:
                    for event in stream.feed(part):
                        self.take(event, id)
                    if end.when() is None and not self.link.is_awaiting(id):
                        end.reschedule(asyncio.get_running_loop().time() + _END_WITHIN_S)
        rest = stream.take_rest()
        if rest is not None:
            with contextlib.suppress(wire.Malformed):  # it is only half a message
                wire.parse(rest.data)
                self.take(rest, id)

    def take(self, event: ServerSentEvent, id: bytes) -> None:
        """Hand over an event of a request's stream; `id` is empty for a stream without a request."""
        if event.name == "message":
            self.deliver(event.data, id)

    def deliver(self, message: bytes, id: bytes) -> None:
        """Give the link one message, as a single line."""
        if not isinstance(message, Oversized):
            if b"\n" in message or b"\r" in message:
                message = on_one_line(message).strip()
            if self._learn is not None and id:
                self._learn(message)
        self.link.receive(message, id)
