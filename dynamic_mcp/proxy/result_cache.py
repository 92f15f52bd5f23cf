"""Results that are kept for a while, so that the same call of a tool that only reads is not made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamic_mcp.mcp.wire import Frame

if TYPE_CHECKING:
    from dynamic_mcp.proxy.pipeline import Next, UpstreamRequest


class ResultCache:
    """The results that one proxy keeps."""

    async def send(self, message: UpstreamRequest, following: Next) -> Frame:
        """Answer from what is kept, or have the request sent, and keep its result."""
        return await following(message)
