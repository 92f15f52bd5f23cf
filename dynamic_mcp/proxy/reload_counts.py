"""How often the config was reloaded, or could not be."""

from __future__ import annotations

import time
from collections.abc import Callable


class ReloadCounts:
    """Counts reloads. `last_success` is when the config in use was read, in seconds since 1970."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.successes = 0
        self.failures = 0
        self.last_success = now()
        self._now = now

    def record_success(self, *_: object) -> None:
        """Count a config that is used now."""
        self.successes += 1
        self.last_success = self._now()

    def record_failure(self) -> None:
        """Count a config that cannot be used."""
        self.failures += 1
