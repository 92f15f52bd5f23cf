"""How often, and how many at once, tools may be called: the counts of one proxy, which outlast a reload."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynamic_mcp.proxy.pipeline import UpstreamRequest


class CallLimits:
    """Counts calls by the limits of their servers."""

    def take(self, message: UpstreamRequest, tool: str) -> None:
        """Count a call. Raises RateLimited if there were too many."""

    @asynccontextmanager
    async def place(self, message: UpstreamRequest, tool: str) -> AsyncIterator[None]:
        """Have a call take one of the places of its tool while it runs, waiting for one if need be."""
        yield
