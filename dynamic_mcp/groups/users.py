"""The clients of one instance, and which of them a message of its upstream is for.

Over stdio nothing says whose call an upstream's message belongs to. What could be about calls of several clients is
given to none of them: nothing reaches another client than the one that it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from dynamic_mcp.groups.audience import Client, User
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.upstream.call import Caller

# A message may still be about a call that was answered within this time.
_RECENT_S = 1.0


class Users:
    """The clients that an instance serves, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_calls: dict[Client, float] = {}

    def __iter__(self) -> Iterator[Client]:
        return iter(self._last_calls)

    def __len__(self) -> int:
        return len(self._last_calls)

    def add(self, client: Client) -> None:
        """Serve a client from now on."""
        self._last_calls.setdefault(client, -math.inf)

    def remove(self, client: Client) -> None:
        """Serve a client no longer."""
        self._last_calls.pop(client, None)

    def note_call(self, client: Client) -> None:
        """Note that a call of a client has just ended."""
        if len(self._last_calls) > 1 and client in self._last_calls:
            self._last_calls[client] = self._clock.now()

    def choose(self, callers: Sequence[Caller]) -> tuple[Caller | None, Client | None]:
        """Return who can be asked, and the client behind it: the one with calls in flight, or the one there is."""
        if len(callers) > 1:
            return None, None
        clients = [each for each in self._last_calls if not callers or each == callers[0].client]
        client = clients[0] if len(clients) == 1 else None
        return (callers[0] if callers else client), client

    def recipients(self, callers: Sequence[Caller]) -> Sequence[User]:
        """Return who is to hear of a notification while `callers`, one for each client, are in flight.

        That is the one client that it can be about; all, if nobody has called recently; and otherwise nobody.
        """
        since = self._clock.now() - _RECENT_S
        recent = {client for client, ended_at in self._last_calls.items() if ended_at >= since}
        possible: set[object] = {caller.client for caller in callers}
        possible |= recent
        if len(possible) > 1:
            return ()
        return cast(Sequence[User], callers) or list(recent) or list(self._last_calls)
