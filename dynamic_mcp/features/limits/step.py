"""How often, and how many at once, tools may be called: the counts of one proxy, which outlast a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Hashable, Sequence
from typing import TYPE_CHECKING

from dynamic_mcp.errors import Busy, RateLimited, TimedOut
from dynamic_mcp.features.limits.limits import Buckets, Limits, Room
from dynamic_mcp.groups.activity import MAX_QUEUED
from dynamic_mcp.groups.limiter import Limiter
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.clock import LoopClock
from dynamic_mcp.system.text import pluralize

if TYPE_CHECKING:
    from dynamic_mcp.proxy.view import GroupView

# Places that are remembered while nobody has them.
MAX_GATES = 2000


class LimitRate(Step):
    """Counts calls by the limits of their servers."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._clock = services.clock or LoopClock()
        self._buckets = Buckets()

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether a limit says how often a tool may be called."""
        limits = _limits_of(group)
        return tool is not None and limits is not None and bool(limits.rates_for(tool))

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Count a call. Raises RateLimited if there were too many."""
        tool, limits = call.tool or "", _limits_of(call.group)
        rates = () if limits is None else limits.rates_for(tool)
        refusal = self._buckets.take(rates, call.request.principal, tool, self._clock.now())
        if refusal is not None:
            if call.request.observation is not None:
                call.request.observation.note_refusal(refusal.rule)
            raise RateLimited(_label(call, tool), refusal.rule, refusal.wait_s)
        return next(call)


class LimitConcurrency(Step):
    """Has calls wait for the places that their limits have; at most `max_queued` of one client."""

    def __init__(self, services: Services, *, max_queued: int = MAX_QUEUED) -> None:
        super().__init__(services)
        self._max_queued = max_queued
        self._gates: dict[Hashable, Limiter] = {}

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        """Return whether a limit says how many calls of a tool may run at once."""
        limits = _limits_of(group)
        return tool is not None and limits is not None and bool(limits.rooms_for(tool))

    async def __call__(self, call: UpstreamRequest, next: Next) -> Frame:
        """Pass a call on while it has its places. Raises Busy and TimedOut."""
        tool, limits = call.tool or "", _limits_of(call.group)
        rooms = () if limits is None else limits.rooms_for(tool)
        places = Places(self._gates, rooms, call, tool, self._max_queued)
        try:
            if not places.take_free():
                await places.wait()
            return await next(call)
        finally:
            places.give_back()


class Places:
    """The places that one call takes, one by each of its limits, each once the one before is taken.

    Whoever takes them gives them back, also those of a call that did not get all.
    """

    def __init__(
        self,
        gates: dict[Hashable, Limiter],
        rooms: Sequence[Room],
        message: UpstreamRequest,
        tool: str,
        max_queued: int,
    ) -> None:
        self._gates = gates
        self._rooms = rooms
        self._message = message
        self._tool = tool
        self._max_queued = max_queued
        self._held: list[Limiter] = []

    def take_free(self) -> bool:
        """Take the places that are free, up to the first that is not; tell whether these are all."""
        for room in self._rooms:
            gate = self._gate(room)
            if not gate.take_free():
                return False
            self._held.append(gate)
        return True

    async def wait(self) -> None:
        """Wait for the rest of the places. Raises Busy if too many calls of the client wait already, and TimedOut."""
        timeout_s = self._message.timeout_s
        room = self._rooms[0]
        try:
            async with asyncio.timeout(timeout_s):
                for room in self._rooms[len(self._held) :]:
                    await self._acquire(room)
        except TimeoutError:
            why = f"waited {timeout_s:g} s for one of {_in_words(room)}; nothing was sent"
            raise TimedOut(self._message.group.name, f"{_label(self._message, self._tool)} {why}") from None

    async def _acquire(self, room: Room) -> None:
        client = self._message.request.client
        gate = self._gate(room)
        if gate.is_full(client):
            why = f"{_in_words(room)} are in use and {self._max_queued} calls wait"
            raise Busy(self._message.group.name, f"{_label(self._message, self._tool)} was not sent: {why}")
        await gate.acquire(client)
        self._held.append(gate)

    def _gate(self, room: Room) -> Limiter:
        key: Hashable = room.key
        if room.per_person or room.per_tool:
            key = room.gate_of(self._message.request.principal, self._tool)
        gate = self._gates.get(key)
        if gate is None:
            _forget_idle(self._gates)
            gate = self._gates[key] = Limiter(room.places, self._max_queued)
        elif gate.limit != room.places:
            gate.resize(room.places)
        return gate

    def give_back(self) -> None:
        """Give back the places, the last one first."""
        while self._held:
            self._held.pop().release()


def _limits_of(group: GroupView) -> Limits | None:
    found = None if group.call_rules is None else group.call_rules.sets.get("limits")
    assert found is None or isinstance(found, Limits)
    return found


def _label(message: UpstreamRequest, tool: str) -> str:
    return message.label or f"`{message.group.shown_name(tool)}`"


def _forget_idle(gates: dict[Hashable, Limiter]) -> None:
    """Forget the places that nobody has, if there are many: each person, and each tool, may have its own."""
    if len(gates) >= MAX_GATES:
        for key in [key for key, gate in gates.items() if not gate.in_use]:
            del gates[key]


def _in_words(room: Room) -> str:
    return f"{pluralize(room.places, 'place')} of `{room.id}`"
