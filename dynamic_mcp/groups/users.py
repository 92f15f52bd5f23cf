"""The clients of one instance, and the recipients of its upstream's messages among them.

Over stdio nothing says whose call an upstream's message belongs to. What could be about calls of several clients is
given to none of them: nothing reaches another client than the one that it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from dynamic_mcp.client import Caller, Client, User
from dynamic_mcp.system.clock import Clock

# While no call is in flight, a message may still be about one that was answered within this time.
_RECENT_S = 1.0


class Users:
    """The clients that an instance serves, in the order in which they came.

    `has_been_shared` tells that its upstream has served several; `former` are those that another instance serves now.
    """

    def __init__(self, clock: Clock) -> None:
        self.has_been_shared = False
        self.former: set[Client] = set()
        self._has_served = False
        self._left_at = -math.inf
        self._clock = clock
        self._last_calls: dict[Client, float] = {}

    def __iter__(self) -> Iterator[Client]:
        return iter(self._last_calls)

    def __len__(self) -> int:
        return len(self._last_calls)

    def add(self, client: Client, *, others_called_at: float = -math.inf) -> None:
        """Serve a client from now on; the calls of a lone client before it were not recorded."""
        self.former.discard(client)
        if client not in self._last_calls:
            if not self.has_been_shared:
                self._last_calls = dict.fromkeys(self._last_calls, others_called_at)
            self._last_calls[client] = -math.inf
            self.has_been_shared |= self._has_served
            self._has_served = True

    def move(self, client: Client) -> None:
        """Stop serving a client, except for the calls and tasks that it has here."""
        del self._last_calls[client]
        self.former.add(client)

    def forget(self, client: Client) -> None:
        """Called when a client disconnects."""
        if client in self.former or client in self._last_calls:
            self._left_at = self._clock.now()
        self.former.discard(client)
        self._last_calls.pop(client, None)

    def clear(self) -> None:
        self.former.clear()
        self._last_calls.clear()

    def has_served(self, client: Client) -> bool:
        """Return whether a connected client uses this instance, or did before it moved away."""
        return client in self._last_calls or client in self.former

    def note_new_link(self) -> None:
        """Record that the upstream restarted, and knows nothing of clients that it no longer serves."""
        self.has_been_shared = len(self._last_calls) > 1
        self._has_served = len(self._last_calls) > 0

    def note_call(self, client: Client) -> None:
        """Record that a call of a client has just ended."""
        if client in self._last_calls:
            self._last_calls[client] = self._clock.now()

    def choose(self, callers: Sequence[Caller]) -> User | None:
        """Return the client that can be asked: the one with calls in flight, or the only one."""
        if callers:
            return cast(User, callers[0]) if len(callers) == 1 else None
        return next(iter(self._last_calls)) if len(self._last_calls) == 1 else None

    def recipients(self, callers: Sequence[Caller], *, may_be_late: bool = False) -> Sequence[User]:
        """Return the recipients of a notification while `callers`, one for each client, are in flight.

        That is the one client that it can be about: the one in flight, or else the one that was just answered; if it
        `may_be_late`, the one that both are. None, if there are several, or one has just disconnected or moved; all,
        if no client has called recently.
        """
        users = cast(Sequence[User], callers)
        if len(users) > 1:
            return ()
        if users and not may_be_late:
            return users
        since = self._clock.now() - _RECENT_S
        recent = [client for client, ended_at in self._last_calls.items() if ended_at >= since]
        if len({*recent, *(each.client for each in users)}) > 1 or self.former or self._left_at >= since:
            return ()
        return users or recent or list(self._last_calls)
