"""Time, as something that is passed in: a clock, and how long to wait between attempts."""

import asyncio
import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Protocol

FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 8.0
FIRST_REVIVAL_S, LONGEST_REVIVAL_S = 30.0, 300.0
# What has just failed is not tried again by every use that comes along.
COOL_DOWN_S = 1.0


class Clock(Protocol):
    """Time as a group sees it; a test brings its own and never waits."""

    def now(self) -> float:
        """Return seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class LoopClock:
    """The event loop's monotonic time."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


def delays(first_s: float, longest_s: float, jitter: Callable[[], float]) -> Iterator[float]:
    """Yield seconds without end: `first_s`, twice that, … up to `longest_s`, each times 0.8 to 1.2.

    `jitter` returns a number from 0 up to 1, as `random.random` does.
    """
    delay_s = first_s
    while True:
        yield delay_s * (0.8 + 0.4 * jitter())
        delay_s = min(delay_s * 2, longest_s)


async def set_or_passed(event: asyncio.Event, seconds: float, clock: Clock) -> None:
    """Wait until an event is set, for so many seconds at most; infinity is no bound."""
    if seconds == math.inf:
        await event.wait()
        return
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class Attempts:
    """Failures in a row: soon tried again so many times, then ever more seldom."""

    def __init__(self, retries: int, jitter: Callable[[], float]) -> None:
        self._retries = retries
        self._jitter = jitter
        self._failed_at = float("-inf")
        self.forget()

    def forget(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0
        soon = islice(delays(FIRST_RETRY_S, LONGEST_RETRY_S, self._jitter), self._retries)
        self._delays = chain(soon, delays(FIRST_REVIVAL_S, LONGEST_REVIVAL_S, self._jitter))

    def failed(self, now: float) -> None:
        """Count a failure."""
        self._failures += 1
        self._failed_at = now

    def are_spent(self) -> bool:
        """Tell whether there were more failures than are tried again soon."""
        return self._failures > self._retries

    def are_cooling_down(self, now: float) -> bool:
        """Tell whether the last failure was just now."""
        return now - self._failed_at < COOL_DOWN_S

    def pause_s(self) -> float:
        """Return how long to wait before the next attempt."""
        return next(self._delays)
