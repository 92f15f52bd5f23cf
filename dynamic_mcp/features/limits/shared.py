"""Limits that replicas count together, in the store that they share.

A call under limits costs one round trip for its rates, and one for its places, which are given back after its answer.
While the store cannot be used, each replica counts by itself, or refuses what a limit says is not to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Hashable, Sequence
from itertools import count

from dynamic_mcp.errors import StoreDown
from dynamic_mcp.features.limits.limits import CallLimit, ConcurrencyLimit, RateLimit, RateRefusal
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import Lease, Rate, SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

RATES = StoreSpace("rates")
PLACES = StoreSpace("places")
# A replica that is killed keeps its places for so long; the others renew theirs.
HELD_S = 30.0
_RENEW_EVERY_S = 10.0
# A message that a place is free may be lost.
_LOOK_EVERY_S = 1.0
_MAX_NAMES = 10_000

CountHere = Callable[[Sequence[RateLimit], Sequence[Hashable]], RateRefusal | None]


class SharedRates:
    """Counts calls with the other replicas; `count_here` counts them in this one alone."""

    def __init__(self, store: SharedStore, count_here: CountHere) -> None:
        self._store = store
        self._count_here = count_here
        self._names = StoredNames()

    async def take(self, limits: Sequence[RateLimit], names: Sequence[Hashable], label: str) -> RateRefusal | None:
        """Count a call for all limits, or for none if one of them refuses. Raises StoreDown."""
        rates = [
            Rate(self._names.find(name), limit.interval_s, limit.slack_s)
            for limit, name in zip(limits, names, strict=True)
        ]
        try:
            wait = await self._store.count(RATES, rates)
        except StoreUnavailable as exc:
            _refuse_without_store(limits, label, exc)
            return self._count_here(limits, names)
        return None if wait is None else RateRefusal(limits[wait.index].id, wait.wait_s)


class SharedPlaces:
    """The places that calls of all replicas take."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._names = StoredNames()
        self._numbers = count()
        self._process = secrets.token_hex(8)
        self._held: dict[str, list[Lease]] = {}  # by their holders
        self._tasks = TaskSet(log)
        self._keeping: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()
        self._unsubscribe = store.subscribe(PLACES, lambda message: self._wake_waiting())
        self._forget_reset = store.on_reset(self._restore)

    def __repr__(self) -> str:
        return f"<SharedPlaces, {len(self._held)} calls>"

    async def acquire(self, limits: Sequence[ConcurrencyLimit], names: Sequence[Hashable], label: str) -> str:
        """Return who holds a place of each limit from now on, once all are free. Raises StoreDown."""
        holder = f"{self._process}-{next(self._numbers)}"
        leases = [Lease(self._names.find(name), limit.places) for limit, name in zip(limits, names, strict=True)]
        try:
            await self._wait_for(leases, holder)
        except StoreUnavailable as exc:
            self._give_back(leases, holder)  # it may have been acquired
            _refuse_without_store(limits, label, exc)
        except BaseException:
            self._give_back(leases, holder)
            raise
        else:
            self._hold(leases, holder)
        return holder

    async def _wait_for(self, leases: Sequence[Lease], holder: str) -> None:
        while True:
            freed = self._freed  # of this moment: a place may be freed while the store answers
            wait = await self._store.acquire(PLACES, leases, holder, HELD_S)
            if wait is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait.wait_s, _LOOK_EVERY_S)):
                    await freed.wait()

    def _hold(self, leases: list[Lease], holder: str) -> None:
        self._held[holder] = leases
        if self._keeping is None:
            self._keeping = self._tasks.create(self._keep(), name="places of calls")

    def release(self, holder: str) -> None:
        """Give the places of a holder back, if it has any, in the background."""
        leases = self._held.pop(holder, None)
        if leases is not None:
            self._give_back(leases, holder)

    def _give_back(self, leases: Sequence[Lease], holder: str) -> None:
        self._tasks.create(self._release(leases, holder), name="release of a place")

    async def _release(self, leases: Sequence[Lease], holder: str) -> None:
        with contextlib.suppress(StoreUnavailable):  # they expire
            await self._store.release(PLACES, leases, holder)

    async def _keep(self) -> None:
        """Renew the places of calls that last, until there are none."""
        try:
            while self._held:
                await asyncio.sleep(_RENEW_EVERY_S)
                for holder, leases in [*self._held.items()]:
                    if holder in self._held:  # still
                        with contextlib.suppress(StoreUnavailable):  # tried again before they expire
                            await self._store.renew(PLACES, leases, holder, HELD_S)
        finally:
            self._keeping = None

    def _restore(self) -> None:
        """Called when the store may have been emptied: calls that run take their places again."""
        if self._held:
            self._tasks.create(self._take_again(), name="places in an emptied store")

    async def _take_again(self) -> None:
        for holder, leases in [*self._held.items()]:
            if holder not in self._held:  # its call has ended
                continue
            with contextlib.suppress(StoreUnavailable):
                await self._store.acquire(PLACES, leases, holder, HELD_S)
            if holder not in self._held:  # it may have been released before
                self._give_back(leases, holder)

    def _wake_waiting(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def end(self) -> None:
        """Renew nothing any more: what is held expires, unless it is released."""
        self._unsubscribe()
        self._forget_reset()
        if self._keeping is not None:
            self._keeping.cancel()

    async def close(self) -> None:
        """Wait until what is released is."""
        self.end()
        await self._tasks.wait()


class StoredNames:
    """What counts are called in the store, by their names here; the latest ones are kept."""

    def __init__(self) -> None:
        self._found: BoundedDict[Hashable, str] = BoundedDict(_MAX_NAMES)

    def find(self, name: Hashable) -> str:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = wire.encode(name).decode()
        return found


def _refuse_without_store(limits: Sequence[CallLimit], label: str, exc: StoreUnavailable) -> None:
    """Raise StoreDown if one of the limits wants that."""
    strict = next((each for each in limits if each.needs_store), None)
    if strict is not None:
        reason = f"`{strict.id}` cannot be counted: the shared store {exc.failure.value}"
        raise StoreDown(label, reason) from exc
