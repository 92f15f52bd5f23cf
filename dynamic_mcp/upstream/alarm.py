"""One timer for many deadlines: one for each call would cost more than all else that a call needs of the loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Calls `on_ring` once, by the first of the times that it was given, which is `at`, and forgets the others."""

    __slots__ = ("_loop", "_on_ring", "_timer", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], None]) -> None:
        self._loop = loop
        self._on_ring = on_ring
        self.at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def ring_by(self, time: float) -> None:
        """Ring at this time of the loop at the latest."""
        if time < self.at:
            self.stop()
            self.at = time
            self._timer = self._loop.call_at(time, self._ring)

    def stop(self) -> None:
        """Do not ring."""
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self.at, self._timer = math.inf, None
        self._on_ring()
