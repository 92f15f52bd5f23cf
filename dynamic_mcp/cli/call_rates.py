"""How many calls a second each group of the running proxies has had lately, by what was seen of their counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dynamic_mcp.observe.proxies import RunningProxy

# Proxies publish every two seconds, so a rate since the last look would be 0 every other time.
WINDOW_S = 10.0

# A group of one life of a proxy: its pid, the time when it started, and the group's name.
_Key = tuple[int, float, str]


class CallRates:
    """The call counters that were seen within the window, by group."""

    def __init__(self) -> None:
        self._samples: dict[_Key, deque[tuple[float, int]]] = {}

    def note(self, proxies: Sequence[RunningProxy], now: float) -> None:
        """Note what the counters say at this time, in monotonic seconds; forget groups that are gone."""
        before, self._samples = self._samples, {}
        for running in proxies:
            for group in running.status.groups:
                key = (running.pid, running.started_at, group.name)
                samples = before.get(key, deque())
                if samples and samples[-1][1] > group.calls:  # the group has started anew
                    samples.clear()
                samples.append((now, group.calls))
                while len(samples) > 1 and samples[1][0] <= now - WINDOW_S:
                    samples.popleft()
                self._samples[key] = samples

    def rate(self, running: RunningProxy, group: str) -> float | None:
        """Return the calls per second of a group; None until it has been seen at two times."""
        samples = self._samples.get((running.pid, running.started_at, group), deque())
        if len(samples) < 2:
            return None
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) / (ended - began) if ended > began else None
