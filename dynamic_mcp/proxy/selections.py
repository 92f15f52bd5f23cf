"""Selects from results in threads: one selection of a principal at a time, so that costly ones delay no other.

A selection is Python code that never waits. Many at once would block the event loop, and so all clients.
"""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import WeakValueDictionary

from msgspec import Raw

from dynamic_mcp.identity import Principal
from dynamic_mcp.system.workers import Workers
from dynamic_mcp.tools import results
from dynamic_mcp.tools.results import Keep

# One is left for others while a principal has a costly one.
_THREADS = 2


class Selections:
    """The selections of all clients."""

    def __init__(self) -> None:
        self._workers = Workers("selections", count=_THREADS)
        self._turns: WeakValueDictionary[Principal, asyncio.Lock] = WeakValueDictionary()

    async def select(self, principal: Principal, result: Raw, path: str, keep: Keep) -> Raw:
        """Return a result with what a path selects of it, once earlier selections of the principal are done."""
        turn = self._turns.get(principal)
        if turn is None:
            turn = self._turns[principal] = asyncio.Lock()
        async with turn:
            return await self._workers.run(partial(results.select, result, path, keep))
