"""Events that a client may request again after a broken connection, bounded by bytes, number and time."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

# Per session. The newest event is always kept: it may be the answer that a client has missed.
_MAX_BYTES = 1 << 20
_MAX_EVENTS = 1000
# For all sessions; a session over this limit loses its oldest events.
_MAX_BYTES_OF_ALL = 64 << 20
KEEP_FOR_S = 300.0


class _Event(Struct, frozen=True, gc=False):
    stream: int
    number: int
    data: bytes
    sent_at: float


class ReplayBudget:
    """The bytes that the events of all sessions take."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class ReplayStore:
    """The last events of one session, in the order in which they were sent."""

    __slots__ = ("_budget", "_bytes", "_events")

    def __init__(self, budget: ReplayBudget) -> None:
        self._budget = budget
        self._events = deque[_Event]()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, stream: int, number: int, data: bytes, now: float) -> None:
        """Store an event. The numbers of a stream are consecutive, from 1."""
        self._events.append(_Event(stream, number, data, now))
        self._count(len(data))
        while len(self._events) > 1 and self._is_full():
            self._evict()

    def after(self, stream: int, number: int) -> list[bytes] | None:
        """Return the events of a stream after the one with this number; None if some are no longer stored."""
        kept = [event for event in self._events if event.stream == stream]
        missed = [event for event in kept if event.number > number]
        if not kept or (missed and missed[0].number != number + 1):
            return None
        return [event.data for event in missed]

    def evict_older(self, than: float) -> None:
        """Remove events that were sent before this time."""
        while self._events and self._events[0].sent_at < than:
            self._evict()

    def clear(self) -> None:
        self._events.clear()
        self._count(-self._bytes)

    def _is_full(self) -> bool:
        return self._bytes > _MAX_BYTES or len(self._events) > _MAX_EVENTS or self._budget.used > _MAX_BYTES_OF_ALL

    def _evict(self) -> None:
        self._count(-len(self._events.popleft().data))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._budget.used += size
