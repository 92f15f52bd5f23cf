"""How failed attempts to connect are repeated: soon at first, then less and less often."""

from collections.abc import Callable
from itertools import chain, islice

from dynamic_mcp.system.clock import delays

FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 8.0
FIRST_REVIVAL_S, LONGEST_REVIVAL_S = 30.0, 300.0
# What has just failed is not tried again by every use that comes along.
COOL_DOWN_S = 1.0


class Attempts:
    """Failures in a row: soon tried again so many times, then ever more seldom."""

    def __init__(self, retries: int, jitter: Callable[[], float]) -> None:
        self._retries = retries
        self._jitter = jitter
        self._failed_at = float("-inf")
        self.reset()

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0
        soon = islice(delays(FIRST_RETRY_S, LONGEST_RETRY_S, self._jitter), self._retries)
        self._delays = chain(soon, delays(FIRST_REVIVAL_S, LONGEST_REVIVAL_S, self._jitter))

    def note_failure(self, now: float) -> None:
        """Count a failure."""
        self._failures += 1
        self._failed_at = now

    def are_spent(self) -> bool:
        """Tell whether there were more failures than are tried again soon."""
        return self._failures > self._retries

    def are_cooling_down(self, now: float) -> bool:
        """Tell whether the last failure was just now."""
        return now - self._failed_at < COOL_DOWN_S

    def next_pause_s(self) -> float:
        """Return how long to wait before the next attempt, and go on to the one after it."""
        return next(self._delays)
