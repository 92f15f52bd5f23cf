"""Reads the lists of one instance's link into its group's catalog, and again when they change.

The instance's supervisor calls what reads; everybody else only looks and waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from dynamic_mcp.errors import Refused
from dynamic_mcp.groups.catalog import (
    LEGACY_RULES,
    UNKNOWN,
    Ask,
    Catalog,
    Listing,
    ListKind,
    read_list,
    read_or_keep,
)
from dynamic_mcp.groups.live_catalog import LiveCatalog
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import Clock

log = logging.getLogger(__name__)

# A storm of list_changed makes one reading of the lists a second.
REREAD_S = 1.0
# A list that could not be read is asked for again after this.
RETRY_S = 30.0


class CatalogReader:
    """What one link still has to read: lists that are `stale`, and lists that could not be read.

    `rules` are those of the link.
    """

    def __init__(self, catalog: LiveCatalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._stale: frozenset[ListKind] = frozenset()
        self._reading: frozenset[ListKind] = frozenset()
        self._failed: frozenset[ListKind] = frozenset()
        self._read_at = self._wanted_at = -math.inf
        self._settled = asyncio.Event()
        self.rules = LEGACY_RULES

    # --- for everybody ---------------------------------------------------------------------------------

    def is_due(self, kinds: Iterable[ListKind]) -> bool:
        """Tell whether these lists are being read, or will be as soon as there is a link."""
        return not (self._stale | self._reading).isdisjoint(kinds)

    def wanted_for_s(self) -> float:
        """Return how long what is missing has been asked for."""
        return self._clock.now() - self._wanted_at

    async def wait(self) -> None:
        """Wait until a list has been read, or will not be."""
        await self._settled.wait()

    def mark_stale(self, kinds: Iterable[ListKind]) -> None:
        """Note that these lists have to be read again."""
        self._stale |= frozenset(kinds)

    def want(self, kinds: frozenset[ListKind]) -> None:
        """Note that these lists are asked for from now on, and read them without delay."""
        self._stale |= kinds
        self._read_at = -math.inf
        self._wanted_at = self._clock.now()

    # --- for the supervisor ----------------------------------------------------------------------------

    def reset(self) -> None:
        """Begin with a new link, whose lists are all to be read."""
        self._failed = frozenset()
        self._stale = frozenset()
        self.want(frozenset())

    async def learn(self, ask: Ask, hello: Catalog, *, is_declared: bool) -> Catalog:
        """Read the tools of a new link, whose upstream has said `hello`; other lists follow later.

        A server that has not declared what it can do may refuse the list. What else `ask` raises passes.
        """
        readable = self._catalog.readable(hello)
        lists = {kind: Listing() for kind in ListKind if kind not in readable}
        if ListKind.TOOLS in readable:
            try:
                lists[ListKind.TOOLS] = await read_list(ask, ListKind.TOOLS, rules=self.rules, now=self._clock.now())
            except Refused as exc:
                if is_declared or not exc.is_unknown:
                    raise
                lists[ListKind.TOOLS] = UNKNOWN
            self._log_complaints(lists[ListKind.TOOLS])
        return hello.with_lists(lists)

    def adopt(self, catalog: Catalog) -> None:
        """Publish what was learnt, now that the link is there; lists that are still to be read stay what they are."""
        known = self._catalog.known.lists if self._catalog.known else {}
        kept = {kind: listing for kind, listing in known.items() if kind not in catalog.lists}
        self._catalog.publish(catalog.with_lists(kept))
        self._wanted_at = self._clock.now()
        self.mark_stale(self._catalog.readable(catalog) - {ListKind.TOOLS})

    def due_in_s(self) -> float:
        """Return how long until lists are to be read again."""
        if self._stale:
            return self._read_at + REREAD_S - self._clock.now()
        return self._read_at + RETRY_S - self._clock.now() if self._failed else math.inf

    def is_done(self) -> bool:
        """Tell whether nothing is known to have changed since it was read."""
        return not self._stale

    async def read(self, ask: Ask, on_change: Callable[[], None]) -> None:
        """Read the lists that have changed, or could not be read; `on_change` is called as each one comes."""
        assert self._catalog.known is not None, "a link is not ready before its tools are read"
        due = self._stale or self._failed
        self._reading, self._stale = due & self._catalog.readable(self._catalog.known), frozenset()
        self._failed -= self._reading
        try:
            await asyncio.gather(*(self._read_one(ask, kind, on_change) for kind in self._reading))
        finally:
            self._reading = frozenset()
            self._read_at = self._clock.now()
            self.settle()

    async def _read_one(self, ask: Ask, kind: ListKind, on_change: Callable[[], None]) -> None:
        assert self._catalog.known is not None
        now = self._clock.now()
        listing, is_read = await read_or_keep(ask, kind, self._catalog.known, rules=self.rules, now=now)
        if not is_read:
            self._failed |= {kind}
        self._log_complaints(listing)
        self._catalog.publish_list(kind, listing)
        self._reading -= {kind}
        self.settle()
        on_change()

    def settle(self) -> None:
        """Wake all waiters."""
        self._settled.set()
        self._settled = asyncio.Event()

    def _log_complaints(self, listing: Listing) -> None:
        for complaint in listing.complaints:
            group_logger(log, self._catalog.config.name).warning("group %s: %s", self._catalog.config.name, complaint)
