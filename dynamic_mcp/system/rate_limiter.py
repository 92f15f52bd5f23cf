"""Rate limiting: a burst, then a steady rate."""

from __future__ import annotations

from typing import Generic, TypeVar

from dynamic_mcp.system.bounded import BoundedDict

K = TypeVar("K")

_TOLERANCE_S = 1e-9


class RateLimiter(Generic[K]):
    """Gives each key `burst` permits, which are renewed one at a time, each after `interval_s`.

    With more than `most_keys`, the least recently used keys are forgotten. All times must come from one clock.
    """

    def __init__(self, burst: int, interval_s: float, *, most_keys: int = 10_000) -> None:
        self._interval_s = interval_s
        self._slack_s = interval_s * (burst - 1) + _TOLERANCE_S
        self._full_at: BoundedDict[K, float] = BoundedDict(most_keys)

    def take(self, key: K, now: float) -> bool:
        """Use one permit of a key; return whether it had one."""
        full_at = max(self._full_at.pop(key, now), now)
        has_one = full_at - now <= self._slack_s
        self._full_at[key] = full_at + self._interval_s if has_one else full_at
        return has_one

    def wait_s(self, key: K, now: float) -> float:
        """Return the time until a key has a permit again; 0 if it has one."""
        wait_s = self._full_at.get(key, now) - now - self._slack_s
        return wait_s if wait_s > 0 else 0.0
