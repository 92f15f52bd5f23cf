"""The tokens that callers have shown over HTTP, for servers that exchange them; kept in memory alone.

Of each person there is the one token of the latest request. It is dropped when it expires, and soon after the last
client of its person has disconnected. It is sent only to what exchanges it, and is part of no log, record or error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import ClassVar

from dynamic_mcp.config.section import Private
from dynamic_mcp.identity import Principal
from dynamic_mcp.system.bounded import BoundedDict

# A request may have arrived just before the last client of its person has disconnected.
KEPT_S = 5.0
_MOST_PERSONS = 10_000


class CallerToken(Private, frozen=True, eq=False):
    """A token that a caller has shown, and when it expires, in seconds since 1970."""

    shown: ClassVar = ("expires_at",)
    value: str
    expires_at: float


class _Entry:
    """What is kept of one person: the token, and the timer that drops it."""

    __slots__ = ("is_leaving", "timer", "token")

    def __init__(self, token: CallerToken, timer: asyncio.TimerHandle) -> None:
        self.token = token
        self.timer = timer
        self.is_leaving = False


class CallerTokens:
    """The latest token of each caller; `kept_s` is how long it is kept without a client of this person."""

    def __init__(self, now: Callable[[], float] = time.time, *, kept_s: float = KEPT_S) -> None:
        self._now = now
        self._kept_s = kept_s
        self._entries: BoundedDict[Principal, _Entry] = BoundedDict(_MOST_PERSONS, on_evict=_stop)

    def __repr__(self) -> str:
        return f"<CallerTokens {len(self._entries)}>"

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, person: Principal, token: str) -> None:
        """Keep a token that was accepted as this person's."""
        entry = self._entries.get(person)
        if entry is not None and entry.token.value == token and not entry.is_leaving:
            return
        from dynamic_mcp.web.signed_token import read_expiry  # loaded by what has accepted it

        self._drop(person)
        found = CallerToken(token, read_expiry(token))
        self._entries[person] = _Entry(found, self._drop_after(person, found.expires_at - self._now()))

    def find(self, person: Principal) -> CallerToken | None:
        """Return the latest token of a person, unless it has expired."""
        entry = self._entries.get(person)
        return None if entry is None or entry.token.expires_at <= self._now() else entry.token

    def forget(self, person: Principal) -> None:
        """Drop the token of a person whose last client has disconnected, unless another request brings it again."""
        entry = self._entries.get(person)
        if entry is not None and not entry.is_leaving:
            entry.is_leaving = True
            entry.timer.cancel()
            entry.timer = self._drop_after(person, min(self._kept_s, entry.token.expires_at - self._now()))

    def keep_only(self, issuers: Collection[str]) -> None:
        """Drop the tokens of all other issuers, since no server exchanges them."""
        for person in [each for each in self._entries if each.issuer not in issuers]:
            self._drop(person)

    def _drop_after(self, person: Principal, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), self._drop, person)

    def _drop(self, person: Principal) -> None:
        entry = self._entries.pop(person, None)
        if entry is not None:
            entry.timer.cancel()


def _stop(person: Principal, entry: _Entry) -> None:
    entry.timer.cancel()
