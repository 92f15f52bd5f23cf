"""So many at once, so many in a queue, and no more: the places of calls in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class Limiter:
    """A bounded number of places with a bounded, fair queue before them."""

    def __init__(self, most: int, longest_queue: int) -> None:
        self.taken = 0
        self._most = most
        self._longest_queue = longest_queue
        self._empty = asyncio.Event()
        self._queue: deque[asyncio.Future[None]] = deque()

    def is_full(self) -> bool:
        """Tell whether even the queue is full."""
        return self.taken >= self._most and len(self._queue) >= self._longest_queue

    def resize(self, most: int) -> None:
        """Have another number of places; who is in stays in."""
        self._most = most
        while self._queue and self.taken < self._most:
            self.taken += 1
            self.release()

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nobody has a place, for so many seconds at most; tell whether nobody has."""
        if self.taken:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
        return not self.taken

    async def acquire(self) -> None:
        """Take a place, waiting for one if need be. Ask `is_full` first."""
        if self.taken < self._most:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place came together with the cancellation
            raise

    def release(self) -> None:
        """Give a place back, or on to the first in the queue."""
        while self._queue and self.taken <= self._most:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
        if not self.taken:
            self._empty.set()
