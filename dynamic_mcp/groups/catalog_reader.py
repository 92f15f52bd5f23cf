"""Reads the lists of one instance's link into its group's catalog, each for itself, and again when they change.

A list that fails or hangs delays no other, and is read again later and later. The instance's supervisor calls what
reads; all others only look and wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator

from dynamic_mcp.errors import DynamicMcpError, ErrorAnswer, LoginNeeded, TimedOut
from dynamic_mcp.groups.catalog import (
    LEGACY_RULES,
    UNKNOWN,
    Ask,
    Catalog,
    Listing,
    ListKind,
    keep_list,
    read_list,
)
from dynamic_mcp.groups.live_catalog import LiveCatalog
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import Clock, delays
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# A storm of list_changed makes one reading of the lists a second.
REREAD_S = 1.0
# A list that could not be read is asked for again after this, doubled each time.
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0


class CatalogReader:
    """The lists that one link still has to read: those that are `stale`, and those that could not be read.

    `on_change` is called as each list comes. `rules` are those of the link. `has_hung` tells that a list was not
    answered in time, and `login_needed` that the tools of a new link cannot be read without a login.
    """

    def __init__(
        self, catalog: LiveCatalog, clock: Clock, jitter: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._jitter = jitter
        self._on_change = on_change
        self._stale: frozenset[ListKind] = frozenset()
        self._reading: dict[ListKind, asyncio.Task[None]] = {}
        self.read_at: dict[ListKind, float] = {}
        self._retries: dict[ListKind, _Retry] = {}
        self._wanted_at = -math.inf
        self._offer: Catalog | None = None
        self._settled = asyncio.Event()
        self._tasks = TaskSet(group_logger(log, catalog.config.name))
        self._ask: Ask | None = None
        self._is_declared = True
        self.rules = LEGACY_RULES
        self.has_hung = False
        self.login_needed: LoginNeeded | None = None

    # --- for all users ---------------------------------------------------------------------------------

    def is_due(self, kinds: Iterable[ListKind]) -> bool:
        """Return whether these lists are being read, or will be as soon as there is a link."""
        return not (self._stale | self._reading.keys()).isdisjoint(kinds)

    def is_new(self, kind: ListKind) -> bool:
        """Return whether a list is being read, or will be, for the first time over this link."""
        return kind not in self.read_at and bool(self._stale or self._reading) and self.is_due([kind])

    def wanted_for_s(self) -> float:
        """Return the seconds since the missing lists were asked for."""
        return self._clock.now() - self._wanted_at

    async def wait(self) -> None:
        """Wait until a list has been read, or will not be."""
        await self._settled.wait()

    def mark_stale(self, kinds: Iterable[ListKind]) -> None:
        self._stale |= frozenset(kinds)

    def want(self, kinds: frozenset[ListKind]) -> None:
        """Record that these lists are asked for from now on, and read them without delay."""
        self._stale |= kinds
        for kind in kinds:
            self.read_at.pop(kind, None)
        self._wanted_at = self._clock.now()

    # --- for the supervisor ----------------------------------------------------------------------------

    def open(self, ask: Ask, hello: Catalog, *, is_declared: bool) -> None:
        """Begin to read the lists of a new link, whose upstream answered `hello`; unread lists keep their entries.

        A server that has not declared what it can do may refuse the list of tools.
        """
        self.close()
        self._ask, self._is_declared = ask, is_declared
        known = self._catalog.current.lists if self._catalog.current else {}
        readable = self._catalog.readable(hello)
        lists = {kind: known.get(kind) if kind in readable else Listing() for kind in ListKind}
        self._catalog.publish(hello.with_lists({kind: each for kind, each in lists.items() if each is not None}))
        self._offer = self._with_known(hello, [kind for kind in ListKind if kind not in readable])
        self.want(readable)
        self.read_due()

    def close(self) -> None:
        """Stop reading and wake all waiters: the link has ended."""
        self._tasks.cancel_all()
        self._stale, self._ask, self._offer = frozenset(), None, None
        self._reading, self.read_at, self._retries = {}, {}, {}
        self.has_hung, self.login_needed = False, None
        self.settle()

    def take_offer(self) -> Catalog | None:
        """Return what the link offered when it opened, once, as soon as all of it has been read."""
        offer = self._offer
        if offer is None or self._stale or self._reading or not offer.knows(self._catalog.readable(offer)):
            return None
        self._offer = None
        return offer

    def _with_known(self, offer: Catalog, kinds: Iterable[ListKind]) -> Catalog:
        """Return an offer that reuses the known objects of lists that have not changed."""
        known = self._catalog.current
        return offer.with_lists({} if known is None else {kind: known.lists[kind] for kind in kinds})

    def due_in_s(self) -> float:
        """Return the seconds until lists are to be read again."""
        return min((self._due_at(kind) for kind in ListKind), default=math.inf) - self._clock.now()

    def is_done(self) -> bool:
        """Return whether no list is known to have changed since it was read."""
        return not self._stale and not self._reading

    def read_due(self) -> None:
        """Begin to read the lists that are due, each by itself, so that none waits for another."""
        assert self._catalog.current is not None, "a link is initialized before its lists are read"
        due = [kind for kind in ListKind if self._due_at(kind) <= self._clock.now()]
        readable = self._catalog.readable(self._catalog.current)
        self._stale -= frozenset(due)
        for kind in due:
            if kind in readable and self._ask is not None:
                self._reading[kind] = self._tasks.create(self._read(kind, self._ask), name=kind.method)
            else:
                self._retries.pop(kind, None)

    def settle(self) -> None:
        self._settled.set()
        self._settled = asyncio.Event()

    # --- one list --------------------------------------------------------------------------------------

    def _due_at(self, kind: ListKind) -> float:
        if kind in self._reading:
            return math.inf
        if kind in self._stale:
            return self.read_at.get(kind, -math.inf) + REREAD_S
        return self._retries[kind].at if kind in self._retries else math.inf

    async def _read(self, kind: ListKind, ask: Ask) -> None:
        now = self._clock.now()
        try:
            listing = await read_list(ask, kind, rules=self.rules, now=now)
        except DynamicMcpError as exc:
            if isinstance(exc, LoginNeeded) and kind is ListKind.TOOLS and self.is_new(kind):
                self.login_needed = exc
                self._end(kind)
                return
            listing = self._fail(kind, exc, now)
        if not listing.has_failed:
            self._retries.pop(kind, None)
        assert self._catalog.current is not None
        before = self._catalog.current.lists.get(kind)
        if listing.complaints and (before is None or before.complaints != listing.complaints):
            self._log_complaints(listing)
        self._catalog.publish_list(kind, listing)
        if self._offer is not None and not listing.has_failed:
            self._offer = self._with_known(self._offer, [kind])
        self._end(kind)

    def _fail(self, kind: ListKind, reason: DynamicMcpError, now: float) -> Listing:
        """Return the known entries of a list that could not be read, and schedule another attempt."""
        may_be_refused = kind is not ListKind.TOOLS or not self._is_declared
        if isinstance(reason, ErrorAnswer) and reason.is_unknown and may_be_refused:
            return UNKNOWN  # many servers with resources have no templates
        assert self._catalog.current is not None
        retry = self._retries.setdefault(kind, _Retry(delays(FIRST_RETRY_S, LONGEST_RETRY_S, self._jitter)))
        retry.at = self._clock.now() + next(retry.delays)
        self.has_hung |= isinstance(reason, TimedOut)
        return keep_list(kind, self._catalog.current, reason, now)

    def _end(self, kind: ListKind) -> None:
        # what changes right after the first reading is read at once
        self.read_at[kind] = self._clock.now() if kind in self.read_at else -math.inf
        del self._reading[kind]
        self.settle()
        self._on_change()

    def _log_complaints(self, listing: Listing) -> None:
        for complaint in listing.complaints:
            group_logger(log, self._catalog.config.name).warning("group %s: %s", self._catalog.config.name, complaint)


class _Retry:
    """The schedule for a list that could not be read."""

    def __init__(self, delays: Iterator[float]) -> None:
        self.delays = delays
        self.at = math.inf
