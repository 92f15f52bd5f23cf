"""How long the latest calls of an instance took. Percentiles are computed when asked for, not for each call."""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct

# So many of the latest calls count.
LATEST = 512


class Percentiles(Struct, frozen=True):
    """Half of the calls took no longer than `p50_s`, and 95 of 100 no longer than `p95_s`."""

    p50_s: float
    p95_s: float


class Durations:
    """The durations of the latest calls, in seconds."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=LATEST)
        self._percentiles: Percentiles | None = None

    def add(self, seconds: float) -> None:
        """Add the duration of a call; the oldest goes once there are enough."""
        self._latest.append(seconds)
        self._percentiles = None

    def percentiles(self) -> Percentiles | None:
        """Return the percentiles, by nearest rank, so each is the duration of a real call; None if there is none."""
        if self._percentiles is None and self._latest:
            in_order = sorted(self._latest)
            self._percentiles = Percentiles(p50_s=_at_rank(in_order, 50), p95_s=_at_rank(in_order, 95))
        return self._percentiles


def _at_rank(in_order: list[float], percent: int) -> float:
    return in_order[math.ceil(len(in_order) * percent / 100) - 1]
