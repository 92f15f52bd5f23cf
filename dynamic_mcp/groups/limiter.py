"""Limits the calls that an instance has in flight: clients take turns, each with a bounded queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable


class Limiter:
    """At most `limit` places. A client that waits for many gets no more of them than one that waits for a few.

    `resize` changes the limit.
    """

    def __init__(self, limit: int, max_queued: int) -> None:
        self.in_use = 0
        self.limit = limit
        self._max_queued = max_queued
        self._idle: asyncio.Event | None = None  # made by who waits for it: most limiters are only counted
        # the client whose turn it is comes first
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @property
    def queued(self) -> int:
        return sum(map(len, self._queues.values()))

    def is_full(self, client: Hashable = None) -> bool:
        """Return whether a client's queue is full."""
        return self.in_use >= self.limit and len(self._queues.get(client, ())) >= self._max_queued

    def resize(self, limit: int) -> None:
        """Change the number of places; places in use stay so."""
        self.limit = limit
        while self._queues and self.in_use < self.limit:
            self.in_use += 1
            self.release()

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no place is in use, at most this many seconds; return whether none is."""
        if self.in_use:
            idle = self._idle = self._idle or asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await idle.wait()
        return not self.in_use

    def take_free(self) -> bool:
        """Acquire a place without waiting; return whether one was free."""
        if self.in_use >= self.limit:
            return False
        self.in_use += 1
        return True

    async def acquire(self, client: Hashable = None) -> None:
        """Acquire a place, waiting for one if need be. Call `is_full` first."""
        if self.take_free():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place came together with the cancellation
            else:
                self._leave_queue(client, turn)
            raise

    def release(self) -> None:
        """Free a place, or pass it on to the client whose turn it is."""
        while self._queues and self.in_use <= self.limit:
            turn = self._next_turn()
            if not turn.done():  # cancelled just now, and not yet out of the queue
                turn.set_result(None)
                return
        self.in_use -= 1
        if self._idle is not None and not self.in_use:
            self._idle.set()
            self._idle = None

    def _next_turn(self) -> asyncio.Future[None]:
        """Remove the first waiter of the client whose turn it is; the client's others wait for its next turn."""
        client = next(iter(self._queues))
        queue = self._queues.pop(client)
        turn = queue.popleft()
        if queue:
            self._queues[client] = queue
        return turn

    def _leave_queue(self, client: Hashable, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(client)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[client]
