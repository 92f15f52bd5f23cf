"""Shares the event loop with calls: pages work in pieces of a millisecond, one piece of one page in a turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import ParamSpec, TypeVar

from dynamic_mcp.system.workers import Workers

_PIECE_S = 0.001
_SWITCH_S = 0.0002

P = ParamSpec("P")
T = TypeVar("T")


class PageTurns:
    """The turns of all pages. Between two of them, every call that can go on does."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._worker = Workers("pages", count=1)
        self._brisk = 0
        self._usual_s = 0.0

    async def take(self) -> None:
        """Go on in a turn in which no other page does."""
        async with self._lock:
            await asyncio.sleep(0)

    async def split(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items, and take a turn after each millisecond of work on them."""
        began = perf_counter()
        for item in items:
            yield item
            if perf_counter() - began > _PIECE_S:
                await self.take()
                began = perf_counter()

    async def run_apart(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Do work in the one thread of all pages: with more of them, the loop would wait for each in turn."""
        return await self._worker.run(partial(work, *args, **options))

    @contextmanager
    def keep_brisk(self) -> Iterator[None]:
        """While a page is made, have threads hand the interpreter to the loop sooner than after the usual 5 ms."""
        if not self._brisk:
            self._usual_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
        self._brisk += 1
        try:
            yield
        finally:
            self._brisk -= 1
            if not self._brisk:
                sys.setswitchinterval(self._usual_s)
