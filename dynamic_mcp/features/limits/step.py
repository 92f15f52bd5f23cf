"""How often, and how many at once, tools may be called: the counts of one proxy, which outlast a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dynamic_mcp.errors import Busy, RateLimited, TimedOut
from dynamic_mcp.features.limits.limits import Buckets, Limits, Rate, Room
from dynamic_mcp.groups.activity import MAX_QUEUED
from dynamic_mcp.groups.limiter import Limiter
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.text import pluralize

if TYPE_CHECKING:
    from dynamic_mcp.proxy.view import GroupView

# Places that are remembered while nobody has them.
MAX_GATES = 2000


class LimitRate(Step):
    """Counts calls by the limits of their servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._clock = services.clock
        self._buckets = Buckets()

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether a limit says how often a tool may be called."""
        limits = group.find_rules("limits", Limits)
        return tool is not None and limits is not None and bool(limits.rates_for(tool))

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        """Return the step for calls of one tool."""
        limits = group.find_rules("limits", Limits)
        return partial(self._count, () if limits is None else limits.rates_for(tool or ""), next)

    def _count(self, rates: Sequence[Rate], next: Next, call: UpstreamRequest) -> Awaitable[Frame]:
        """Count a call. Raises RateLimited if there were too many."""
        tool = call.tool or ""
        refusal = self._buckets.take(rates, call.request.principal, tool, self._clock.now())
        if refusal is not None:
            if call.request.observation is not None:
                call.request.observation.note_refusal(refusal.rule)
            raise RateLimited(_label(call), refusal.rule, refusal.wait_s)
        return next(call)


class LimitConcurrency(Step):
    """Has calls wait for the places that their limits have; at most `max_queued` of one client."""

    def __init__(self, services: Services, *, max_queued: int = MAX_QUEUED) -> None:
        super().__init__(services)
        self._max_queued = max_queued
        self._gates: dict[Hashable, Limiter] = {}

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether a limit says how many calls of a tool may run at once."""
        limits = group.find_rules("limits", Limits)
        return tool is not None and limits is not None and bool(limits.rooms_for(tool))

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        """Return the step for calls of one tool."""
        limits = group.find_rules("limits", Limits)
        return partial(self._pass, () if limits is None else limits.rooms_for(tool or ""), next)

    async def _pass(self, rooms: Sequence[Room], next: Next, call: UpstreamRequest) -> Frame:
        """Pass a call on while it has its places. Raises Busy and TimedOut."""
        held: list[Limiter] = []  # one place by each limit, each taken once the one before is
        try:
            for room in rooms:
                gate = self._gate(room, call)
                if not gate.take_free():
                    await self._wait(rooms[len(held) :], held, call)
                    break
                held.append(gate)
            return await next(call)
        finally:
            while held:
                held.pop().release()

    async def _wait(self, rooms: Sequence[Room], held: list[Limiter], call: UpstreamRequest) -> None:
        """Wait for the rest of the places. Raises Busy if too many calls of the client wait already, and TimedOut."""
        room = rooms[0]
        try:
            async with asyncio.timeout(call.timeout_s):
                for room in rooms:
                    held.append(await self._acquire(room, call))
        except TimeoutError:
            why = f"waited {call.timeout_s:g} s for one of {_in_words(room)}; nothing was sent"
            raise TimedOut(call.group.name, f"{_label(call)} {why}") from None

    async def _acquire(self, room: Room, call: UpstreamRequest) -> Limiter:
        client, gate = call.request.client, self._gate(room, call)
        if gate.is_full(client):
            why = f"{_in_words(room)} are in use and {self._max_queued} calls wait"
            raise Busy(call.group.name, f"{_label(call)} was not sent: {why}")
        await gate.acquire(client)
        return gate

    def _gate(self, room: Room, call: UpstreamRequest) -> Limiter:
        key: Hashable = room.key
        if room.per_person or room.per_tool:
            key = room.name_for(call.request.principal, call.tool or "")
        gate = self._gates.get(key)
        if gate is None:
            _forget_idle(self._gates)
            gate = self._gates[key] = Limiter(room.places, self._max_queued)
        elif gate.limit != room.places:
            gate.resize(room.places)
        return gate


def _label(call: UpstreamRequest) -> str:
    return call.label or f"`{call.group.shown_name(call.tool or '')}`"


def _forget_idle(gates: dict[Hashable, Limiter]) -> None:
    """Forget the places that nobody has, if there are many: each person, and each tool, may have its own."""
    if len(gates) >= MAX_GATES:
        for key in [key for key, gate in gates.items() if not gate.in_use]:
            del gates[key]


def _in_words(room: Room) -> str:
    return f"{pluralize(room.places, 'place')} of `{room.id}`"
