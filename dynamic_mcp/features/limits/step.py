"""The limits steps: count one proxy's calls, or those of all replicas that share a store.

The counts survive a reload. Which of both it is, is decided when a chain is compiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dynamic_mcp.errors import Busy, RateLimited, TimedOut
from dynamic_mcp.features.limits.limits import (
    Buckets,
    ConcurrencyLimit,
    CountNames,
    LimitRules,
    RateLimit,
    RateRefusal,
)
from dynamic_mcp.groups.activity import MAX_QUEUED
from dynamic_mcp.groups.limiter import Limiter
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.text import pluralize

if TYPE_CHECKING:
    from dynamic_mcp.features.limits.shared import SharedPlaces, SharedRates
    from dynamic_mcp.proxy.view import GroupView
    from dynamic_mcp.system.shared_store import SharedStore

# The number of limiters, including unused ones.
MAX_LIMITERS = 2000

FindNames = Callable[[Hashable], Sequence[Hashable]]


def _find_store(services: Services) -> SharedStore | None:
    """Return where calls are counted with those of other processes; None if this one counts alone."""
    return services.shared_store if services.open_counts is None else services.open_counts()


class LimitRate(Step):
    """Counts calls by the limits of their servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._clock = services.clock
        self._buckets = Buckets()

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        limits = group.find_rules("limits", LimitRules)
        return tool is not None and limits is not None and bool(limits.rates_for(tool))

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        limits = group.find_rules("limits", LimitRules)
        rates = () if limits is None else limits.rates_for(tool or "")
        find_names, store = CountNames(rates, tool or "").find, _find_store(self.services)
        if store is None:
            return partial(self._count, rates, find_names, next)
        from dynamic_mcp.features.limits.shared import SharedRates

        return partial(self._count_together, SharedRates(store, self._take), rates, find_names, next)

    def _take(self, rates: Sequence[RateLimit], names: Sequence[Hashable]) -> RateRefusal | None:
        return self._buckets.take(rates, names, self._clock.now())

    def _count(
        self, rates: Sequence[RateLimit], find_names: FindNames, next: Next, call: UpstreamRequest
    ) -> Awaitable[Frame]:
        """Count a call. Raises RateLimited if there were too many."""
        refusal = self._buckets.take(rates, find_names(call.request.client.principal), self._clock.now())
        if refusal is not None:
            raise _to_error(refusal, call)
        return next(call)

    async def _count_together(
        self,
        shared: SharedRates,
        rates: Sequence[RateLimit],
        find_names: FindNames,
        next: Next,
        call: UpstreamRequest,
    ) -> Frame:
        """Count a call with those of other replicas. Raises RateLimited and StoreDown."""
        refusal = await shared.take(rates, find_names(call.request.client.principal), _label(call))
        if refusal is not None:
            raise _to_error(refusal, call)
        return await next(call)


class LimitConcurrency(Step):
    """Makes calls wait for places of their limits; at most `max_queued` per client."""

    def __init__(self, services: Services, *, max_queued: int = MAX_QUEUED) -> None:
        super().__init__(services)
        self._max_queued = max_queued
        self._limiters: dict[Hashable, Limiter] = {}
        self._shared: SharedPlaces | None = None

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        limits = group.find_rules("limits", LimitRules)
        return tool is not None and limits is not None and bool(limits.concurrency_for(tool))

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        limits = group.find_rules("limits", LimitRules)
        found = () if limits is None else limits.concurrency_for(tool or "")
        find_names, store = CountNames(found, tool or "").find, _find_store(self.services)
        if store is not None:  # after a place here, so that clients take turns and few calls wait in the store
            next = partial(self._pass_together, self._find_shared(store), found, find_names, next)
        return partial(self._pass, found, find_names, next)

    def share(self, store: SharedStore | None) -> None:
        if self._shared is not None:
            self._shared.end()
            self._shared = None

    def _find_shared(self, store: SharedStore) -> SharedPlaces:
        if self._shared is None:
            from dynamic_mcp.features.limits.shared import SharedPlaces

            self._shared = SharedPlaces(store)
        return self._shared

    async def _pass_together(
        self,
        shared: SharedPlaces,
        limits: Sequence[ConcurrencyLimit],
        find_names: FindNames,
        next: Next,
        call: UpstreamRequest,
    ) -> Frame:
        """Pass a call on while it holds a place among the calls of all replicas. Raises StoreDown and TimedOut."""
        try:
            async with asyncio.timeout(call.timeout_s):
                holder = await shared.acquire(limits, find_names(call.request.client.principal), _label(call))
        except TimeoutError:
            raise _too_late(limits[0], call) from None
        try:
            return await next(call)
        finally:
            shared.release(holder)

    async def _pass(
        self, limits: Sequence[ConcurrencyLimit], find_names: FindNames, next: Next, call: UpstreamRequest
    ) -> Frame:
        """Pass a call on while it holds its places. Raises Busy and TimedOut."""
        held: list[Limiter] = []  # one place per limit, taken in order
        names, limiters = find_names(call.request.client.principal), self._limiters
        try:
            for limit, name in zip(limits, names):  # noqa: B905 - `strict` costs as much as a round
                limiter = limiters.get(name)
                if limiter is None or limiter.limit != limit.places:
                    limiter = self._find_limiter(limit, name)
                if limiter.in_use >= limiter.limit:
                    await self._wait(limits[len(held) :], names[len(held) :], held, call)
                    break
                limiter.in_use += 1  # as its `take_free`, without the call of it
                held.append(limiter)
            return await next(call)
        finally:
            while held:
                held.pop().release()

    async def _wait(
        self,
        limits: Sequence[ConcurrencyLimit],
        names: Sequence[Hashable],
        held: list[Limiter],
        call: UpstreamRequest,
    ) -> None:
        """Wait for the remaining places. Raises TimedOut, and Busy if too many calls of the client wait already."""
        limit = limits[0]
        try:
            async with asyncio.timeout(call.timeout_s):
                for limit, name in zip(limits, names, strict=True):
                    held.append(await self._acquire(limit, name, call))
        except TimeoutError:
            raise _too_late(limit, call) from None

    async def _acquire(self, limit: ConcurrencyLimit, name: Hashable, call: UpstreamRequest) -> Limiter:
        client, limiter = call.request.client, self._find_limiter(limit, name)
        if limiter.is_full(client):
            why = f"{_in_words(limit)} are in use and {self._max_queued} calls wait"
            raise Busy(call.group.name, f"{_label(call)} was not sent: {why}")
        await limiter.acquire(client)
        return limiter

    def _find_limiter(self, limit: ConcurrencyLimit, name: Hashable) -> Limiter:
        limiter = self._limiters.get(name)
        if limiter is None:
            _forget_idle(self._limiters)
            limiter = self._limiters[name] = Limiter(limit.places, self._max_queued)
        elif limiter.limit != limit.places:
            limiter.resize(limit.places)
        return limiter

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()


def _to_error(refusal: RateRefusal, call: UpstreamRequest) -> RateLimited:
    if call.request.observation is not None:
        call.request.observation.note_refusal(refusal.rule)
    return RateLimited(_label(call), refusal.rule, refusal.wait_s)


def _too_late(limit: ConcurrencyLimit, call: UpstreamRequest) -> TimedOut:
    why = f"waited {call.timeout_s:g} s for one of {_in_words(limit)}; nothing was sent"
    return TimedOut(call.group.name, f"{_label(call)} {why}")


def _label(call: UpstreamRequest) -> str:
    return call.label or f"`{call.group.shown_name(call.tool or '')}`"


def _forget_idle(limiters: dict[Hashable, Limiter]) -> None:
    """Forget unused limiters if there are many: each user and each tool may have its own."""
    if len(limiters) >= MAX_LIMITERS:
        for key in [key for key, limiter in limiters.items() if not limiter.in_use]:
            del limiters[key]


def _in_words(limit: ConcurrencyLimit) -> str:
    return f"{pluralize(limit.places, 'place')} of `{limit.id}`"
