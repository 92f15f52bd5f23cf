"""Calls that a legacy server refuses until a person has been to a URL (-32042, MCP 2025-11-25, client/elicitation).

Modern clients do not know the code. They are asked to open the URLs, and then the call is made again: it was refused,
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

# How often a call is made again.
_MAX_ROUNDS = 10


async def elicit_urls(request: Request, found: Frame, answer: Callable[[Request], Awaitable[Frame]]) -> Frame:
    """Answer a request again each time that its client has opened the URLs for which the server has refused it."""
    for _ in range(_MAX_ROUNDS):
        elicitations = required_elicitations(found.error)
        if not elicitations or not await _have_been_opened(request, elicitations):
            break
        found = await answer(request)
    return _without_code(found, request.method) if required_elicitations(found.error) else found


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
    """Tell a model what a person has to do, where the client cannot be asked, or the person does not want to."""
    if method != "tools/call":
        return answer
    urls = [wire.text(wire.member(each, "url")) or "" for each in required_elicitations(answer.error)]
    message = wire.text(wire.member(answer.error, "message")) or "a person has to open a URL first"
    text = "\n".join((message, *(f"open {url}, then call again" for url in urls if url)))
    return wire.result_frame({"content": [{"type": "text", "text": text}], "isError": True})
