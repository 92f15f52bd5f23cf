"""Time as a parameter: a clock, retry delays, and waiting with a timeout."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol


class Clock(Protocol):
    """The time source of a group. Tests pass a fake one and never wait."""

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


class LoopClock:
    """The system's monotonic time. uvloop's clock counts whole milliseconds: too coarse to measure a call."""

    now = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def delays(first_s: float, longest_s: float, jitter: Callable[[], float]) -> Iterator[float]:
    """Yield delays forever: `first_s`, doubled each time up to `longest_s`, each multiplied by 0.8 to 1.2.

    `jitter` returns a number from 0 up to 1, as `random.random` does.
    """
    delay_s = first_s
    while True:
        yield delay_s * (0.8 + 0.4 * jitter())
        delay_s = min(delay_s * 2, longest_s)


async def wait_for_event(event: asyncio.Event, seconds: float, clock: Clock) -> None:
    """Wait until an event is set, or until `seconds` have passed; infinity means no timeout."""
    if seconds == math.inf:
        await event.wait()
        return
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
