"""How the body of a response is read: in chunks, or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import httpx2

from dynamic_mcp.mcp.event_stream import Event, EventStream

JSON, EVENTS = "application/json", "text/event-stream"


def media_type(response: httpx2.Response) -> str:
    """Return the media type of a body, without parameters; empty if the response names none."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def is_event_stream(response: httpx2.Response) -> bool:
    """Tell whether a request for a stream of events was accepted."""
    return response.status_code == 200 and media_type(response) == EVENTS


def chunks(response: httpx2.Response) -> aclosing[AsyncGenerator[bytes, None]]:
    """Return the chunks of a body as they arrive, decompressed; close the generator after use."""
    if "content-encoding" in response.headers:
        return aclosing(response.aiter_bytes())
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    stream = aiter(response.stream)  # as above, without the layer that decompresses
    assert isinstance(stream, AsyncGenerator)
    return aclosing(stream)


async def read_events(response: httpx2.Response, stream: EventStream, take: Callable[[Event], None]) -> None:
    """Hand over the events of a body until it ends."""
    async with chunks(response) as parts:
        async for part in parts:
            for event in stream.feed(part):
                take(event)
