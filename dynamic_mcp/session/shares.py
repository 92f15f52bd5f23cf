"""Divides a limited number of sessions or clients between principals, so that none takes all.

One principal has at most half. At the limit, a principal with fewer gets a place of the principal with the most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, TypeVar

from dynamic_mcp.identity import Authentication, Principal

_SHARES = 2


class Member(Protocol):
    """A session, or a client without one."""

    @property
    def principal(self) -> Principal: ...

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight, and no stream is open."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if requests are in flight."""
        ...

    @property
    def used_at(self) -> float:
        """The time of the last use."""
        ...


M = TypeVar("M", bound=Member)


class Shares:
    """Counts the members of each principal."""

    def __init__(self) -> None:
        self._counts: Counter[Principal] = Counter()

    def __repr__(self) -> str:
        return f"<Shares {self._counts.total()} of {len(self._counts)} principals>"

    def add(self, member: Member) -> None:
        self._counts[member.principal] += 1

    def remove(self, member: Member) -> None:
        principal = member.principal
        self._counts[principal] -= 1
        if self._counts[principal] <= 0:
            del self._counts[principal]

    def is_used_up(self, authentication: Authentication, most: int) -> bool:
        """Return whether a principal has its share of `most`; the local user may have all of them."""
        if authentication.is_local:
            return False
        return self._counts[authentication.principal] >= max(1, most // _SHARES)

    def choose_to_end(
        self, members: Iterable[M], authentication: Authentication, most: int, *, unused_since: float
    ) -> M | None:
        """Return the member to end in favour of a new one; None if there is no such member.

        That is a member that was not used since `unused_since`, of the same principal if its share is used up.
        Otherwise it is one of the principal with the most, if that has more than this one will have.
        """
        principal = authentication.principal
        is_used_up = self.is_used_up(authentication, most)
        unused = [
            each
            for each in members
            if each.is_idle and each.used_at <= unused_since and (not is_used_up or each.principal == principal)
        ]
        if unused or is_used_up:
            return min(unused, key=lambda each: each.used_at, default=None)
        largest, count = max(self._counts.items(), key=lambda each: each[1], default=(principal, 0))
        if count < self._counts[principal] + 2:
            return None
        theirs = (each for each in members if each.principal == largest and not each.is_busy)
        return min(theirs, key=lambda each: (not each.is_idle, each.used_at), default=None)
