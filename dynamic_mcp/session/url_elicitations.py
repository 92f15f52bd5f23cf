"""Calls that a legacy server refuses until the user has opened a URL (-32042, MCP 2025-11-25, client/elicitation).

Modern clients do not know this code. They are asked to open the URLs, and then the call is repeated: it was refused,
so it has not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.elicitation import required_elicitations
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request

# How often a call is repeated.
_MAX_ROUNDS = 10


async def elicit_urls(request: Request, result: Frame, answer: Callable[[Request], Awaitable[Frame]]) -> Frame:
    """Repeat a request each time its client has opened the URLs for which the server refused it."""
    for _ in range(_MAX_ROUNDS):
        elicitations = required_elicitations(result.error)
        if not elicitations or not await _have_been_opened(request, elicitations):
            break
        result = await answer(request)
    return _without_code(result, request.method) if required_elicitations(result.error) else result


async def _have_been_opened(request: Request, elicitations: list[Raw]) -> bool:
    capabilities = request.client.hello.capabilities
    if not len(wire.member(capabilities, "elicitation", "url")):
        return False
    frames = [Frame(method="elicitation/create", params=_as_url_mode(each)) for each in elicitations]
    answers = await asyncio.gather(*(request.ask(frame, lambda _: None) for frame in frames))
    return all(wire.text(wire.member(each.result, "action")) == "accept" for each in answers)


def _as_url_mode(elicitation: Raw) -> Raw:
    return wire.with_member(elicitation, "url", "mode")


def _without_code(answer: Frame, method: str) -> Frame:
    """Return the answer as a result with the URLs for the model, if the client did not open them."""
    if method != "tools/call":
        return answer
    urls = [wire.text(wire.member(each, "url")) or "" for each in required_elicitations(answer.error)]
    message = wire.text(wire.member(answer.error, "message")) or "the user must open a URL first"
    text = "\n".join((message, *(f"open {url}, then call again" for url in urls if url)))
    return wire.result_frame({"content": [{"type": "text", "text": text}], "isError": True})
