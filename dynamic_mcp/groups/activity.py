"""Tracks how an instance is used: its calls, when the last one ended, their durations, and the upstream's answers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

from msgspec import Struct

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import Busy
from dynamic_mcp.groups.limiter import Limiter
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.clock import Clock

# Calls of one client that wait for a place.
MAX_QUEUED = 1024
# A group that connected only to read its catalog is closed after this if no client has used it.
UNUSED_IDLE_S = 60.0
# After so many timeouts in a row a server is asked whether it lives.
SUSPICIOUS_TIMEOUTS = 2
# So many of the latest calls count.
LATEST = 512


class Activity:
    """The use of one instance. `has_served` is about its link; `is_subscribed` is true while clients want updates.

    `calls` are those of clients; what the proxy asks by itself is not among them.
    """

    def __init__(self, config: GroupConfig, clock: Clock) -> None:
        self.config = config
        self.has_served = False
        self.is_subscribed = False
        self.calls = 0
        self.failures = 0
        self.durations = Durations()
        self._clock = clock
        self._limiter = Limiter(config.concurrency, MAX_QUEUED)
        self._timeouts = 0
        self._last = -math.inf

    @property
    def in_flight(self) -> int:
        return self._limiter.in_use

    @property
    def queued(self) -> int:
        return self._limiter.queued

    @property
    def status(self) -> str:
        calls = f"{self.in_flight} calls"
        return calls if self.config.idle_after_s is None else f"{calls}, idle in {self.idle_left_s():.0f} s"

    @property
    def last_use(self) -> float:
        """The time at which a call last ended, or the link was opened."""
        return self._last

    def reconfigure(self, config: GroupConfig) -> None:
        self.config = config
        self._limiter.resize(config.concurrency)

    def begin(self) -> None:
        """Reset for a new link."""
        self.has_served = False
        self.touch()

    def touch(self) -> None:
        self._last = self._clock.now()

    def begin_call_now(self) -> bool:
        """Begin a call if a place is free, and return whether one was; `end_call` ends it."""
        limiter = self._limiter  # as its `take_free`, without the call of it
        if limiter.in_use >= limiter.limit:
            return False
        limiter.in_use += 1
        return True

    async def begin_call(self, client: Hashable = None) -> None:
        """Wait for a place, which `end_call` releases. Raises Busy if too many calls of the client wait already."""
        if self._limiter.is_full(client):
            why = f"{self.in_flight} calls are in flight and {MAX_QUEUED} wait: no more are accepted"
            raise Busy(self.config.name, why)
        await self._limiter.acquire(client)

    def note_answer(self, duration_s: float, answer: Frame) -> None:
        """Record that the upstream works: it has answered a call within this time."""
        self.durations.latest.append(duration_s)
        self.has_served = True
        self.failures += len(answer.error) > 0
        self._timeouts = 0

    def note_failure(self, *, has_timed_out: bool) -> None:
        """Record a failed call, after which the upstream may be down."""
        self.failures += 1
        self._timeouts += has_timed_out

    def end_call(self) -> None:
        self._limiter.release()
        self._last = self._clock.now()

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call has a place, at most this many seconds; return whether none has."""
        return await self._limiter.wait_until_idle(seconds)

    def is_suspicious(self) -> bool:
        """Return whether so many calls timed out that the upstream should be pinged."""
        return self._timeouts >= SUSPICIOUS_TIMEOUTS

    def clear_suspicion(self) -> None:
        """Reset the count of timeouts, because the upstream is being pinged."""
        self._timeouts = 0

    def idle_left_s(self) -> float:
        """Return the seconds until the link is idle if nothing uses it."""
        after_s = math.inf if self.config.idle_after_s is None else self.config.idle_after_s
        if not self.has_served and not self.config.eager and after_s < math.inf:
            after_s = min(after_s, UNUSED_IDLE_S)
        return after_s if self.in_flight or self.is_subscribed else self._last + after_s - self._clock.now()


class Percentiles(Struct, frozen=True):
    """Half of the calls took no longer than `p50_s`, and 95 of 100 no longer than `p95_s`."""

    p50_s: float
    p95_s: float


class Durations:
    """The durations of the `latest` calls, in seconds. Percentiles are computed when asked for, not for each call."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=LATEST)

    def percentiles(self) -> Percentiles | None:
        """Return the percentiles, by nearest rank, so each is the duration of a real call; None if there is none."""
        if not self.latest:
            return None
        in_order = sorted(self.latest)
        return Percentiles(p50_s=_at_rank(in_order, 50), p95_s=_at_rank(in_order, 95))


def _at_rank(in_order: list[float], percent: int) -> float:
    return in_order[math.ceil(len(in_order) * percent / 100) - 1]
