"""Calls that wait until their modern client comes back with what an upstream has asked for.

A legacy upstream asks in the middle of a call, and waits. A modern client is answered `input_required`, and calls
again with the answers and a `requestState` that names the call which goes on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request_state import StateSeal, Ticket, find_kept, load_cipher
from dynamic_mcp.system.bounded import BoundedDict

# How many calls may wait, and how long each. Then it is cancelled upstream.
MAX_OF_ONE_PRINCIPAL = 16
MAX_PARKED = 256
PARKED_FOR_S = 300.0
# Expired calls that are remembered, so that a late client is told why it is refused.
_MAX_EXPIRED = 1024


class ModernChannel(Protocol):
    """The channel on which one request of a modern client is answered. A face makes one for each request."""

    @property
    def address(self) -> str: ...

    @property
    def port(self) -> int: ...

    def notify(self, frame: Frame) -> None:
        """Send a notification that the request has caused."""
        ...

    def answer(self, frame: Frame) -> None:
        """Send the answer, a result or an error; called once, unless the request was cancelled before."""
        ...


class Parked(Protocol):
    """A call that waits for its client."""

    @property
    def principal(self) -> Principal: ...

    def resume(self, responses: Mapping[str, Raw], channel: ModernChannel) -> None:
        """Go on with what the client says, and answer over another channel."""
        ...

    def expire(self) -> None:
        """End the call, because its client has not come back."""
        ...


class ParkedCalls:
    """The calls that wait, of all clients."""

    def __init__(self, parked_for_s: float = PARKED_FOR_S) -> None:
        self._parked_for_s = parked_for_s
        self._calls: dict[int, tuple[Parked, Ticket, asyncio.TimerHandle]] = {}
        self._numbers = itertools.count(1)
        self._expired: BoundedDict[int, None] = BoundedDict(_MAX_EXPIRED)
        self._seal: StateSeal | None = None

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def process(self) -> str:
        """The name of this process in states; empty before the first one."""
        return "" if self._seal is None else self._seal.process

    async def prepare(self) -> None:
        """Get ready to let a call wait, without holding up others."""
        if self._seal is None:
            await asyncio.to_thread(load_cipher)
            self._seal = self._seal or StateSeal()

    def has_room(self, principal: Principal) -> bool:
        """Return whether one more call of a principal may wait."""
        count = sum(call.principal == principal for call, _, _ in self._calls.values())
        return count < MAX_OF_ONE_PRINCIPAL and len(self._calls) < MAX_PARKED

    def park(
        self, call: Parked, binding: bytes, *, number: int | None, round_number: int, kept: str = ""
    ) -> tuple[int, str]:
        """Park a call; returns its number, which it keeps from round to round, and the state for its client.

        `kept` names it for another process.
        """
        seal = self._seal = self._seal or StateSeal()
        number = next(self._numbers) if number is None else number
        ticket = Ticket(number, round_number)
        timer = asyncio.get_running_loop().call_later(self._parked_for_s, self._expire, number)
        self._calls[number] = call, ticket, timer
        return number, seal.seal(ticket, binding, kept)

    def may_go_on_from_disk(self, state: str) -> bool:
        """Return whether another process has parked the call of a state, and has kept it."""
        return bool(find_kept(state)) and (self._seal is None or self._seal.is_of_other_process(state))

    def claim(self, state: str, binding: bytes) -> Parked:
        """Return the call that goes on, which waits no longer. Raises StateRefused."""
        seal = self._seal = self._seal or StateSeal()
        ticket = seal.open(state, binding)
        found = self._calls.get(ticket.call)
        if found is None or found[1] != ticket:
            raise StateRefused("expired" if ticket.call in self._expired else "used")
        self.remove(ticket.call)
        return found[0]

    def remove(self, number: int) -> None:
        """Remove a call that no longer waits."""
        found = self._calls.pop(number, None)
        if found is not None:
            found[2].cancel()

    def _expire(self, number: int) -> None:
        call, _, _ = self._calls.pop(number)
        self._expired[number] = None
        call.expire()
