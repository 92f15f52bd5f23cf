"""What one group offers, as far as it is known: from disk, from a new link, and read again when it changes.

The group's supervisor calls what reads and writes; everybody else only looks and waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.groups.catalog import Ask, Catalog, Listing, ListKind, read_list, read_or_keep, widened
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.text import one_line

log = logging.getLogger(__name__)

# A storm of list_changed makes one reading of the lists a second.
REREAD_S = 1.0
# A list that could not be read is asked for again after this.
RETRY_S = 30.0
# A catalog on disk that is older is read again in the background.
MAX_AGE_S = 7 * 24 * 3600.0


class LiveCatalog:
    """The catalog of a group through time; `known` is None until there is one."""

    def __init__(self, config: GroupConfig, clock: Clock, catalog_store: CatalogStore | None) -> None:
        self.config = config
        self.known: Catalog | None = None
        self._clock = clock
        self._catalog_store = catalog_store
        self._on_disk: Catalog | None = None
        self._stale: frozenset[ListKind] = frozenset()
        self._reading: frozenset[ListKind] = frozenset()
        self._unread: frozenset[ListKind] = frozenset()
        self._read_at = self._wanted_at = -math.inf
        self._settled = asyncio.Event()

    # --- for everybody ---------------------------------------------------------------------------------

    def description(self) -> str:
        """One line for a model: the config's, else from the upstream's own words, else from how it is started."""
        if self.config.description:
            return " ".join(self.config.description.split())
        derived = self.known.summary if self.known else ""
        return derived or f"Tools from `{one_line(self.config.label)}`"

    def knows(self, kinds: Iterable[ListKind]) -> bool:
        """Tell whether these lists are known."""
        return self.known is not None and self.known.knows(kinds)

    def complaint(self, kinds: Iterable[ListKind]) -> str | None:
        """Say what is missing from these lists; None when they are not known."""
        return self.known.complaint(kinds) if self.known else None

    def is_due(self, kinds: Iterable[ListKind]) -> bool:
        """Tell whether these lists are being read, or will be as soon as there is a link."""
        return not (self._stale | self._reading).isdisjoint(kinds)

    def wanted_for_s(self) -> float:
        """Return how long what is missing has been asked for."""
        return self._clock.now() - self._wanted_at

    async def settles(self) -> None:
        """Wait until a list has been read, or will not be."""
        await self._settled.wait()

    def changed(self, kinds: Iterable[ListKind]) -> None:
        """Note that these lists are others now."""
        self._stale |= frozenset(kinds)

    def reconfigure(self, config: GroupConfig) -> bool:
        """Offer at once no more than another config lets through; tell whether there is more to be learnt."""
        before, self.config = self.config, config
        more = widened(before, config)
        if self.known is not None:
            self.known = self.known.without(more).let_through(config)
        if more:
            self._stale |= more
            self._read_at = -math.inf
            self._wanted_at = self._clock.now()
        return bool(more)

    # --- for the supervisor ----------------------------------------------------------------------------

    def load(self) -> bool:
        """Take the catalog from disk, and tell whether it will do for now."""
        kept = self._catalog_store.load(self.config) if self._catalog_store is not None else None
        if kept is None or self._catalog_store is None or not kept.catalog.knows((ListKind.TOOLS,)):
            return False
        self.known = self._on_disk = kept.catalog
        return self._catalog_store.age_s(kept) < MAX_AGE_S

    def forget_changes(self) -> None:
        """Begin with a new link, whose lists are all to be read."""
        self._stale = self._unread = frozenset()
        self._read_at = -math.inf
        self._wanted_at = self._clock.now()

    async def learn(self, ask: Ask, said: Catalog) -> Catalog:
        """Read the tools of a new link, whose upstream has `said` this of itself; other lists follow later.

        What `ask` raises passes.
        """
        offered = self._offered(said)
        known = self.known.lists if self.known else {}
        lists = {kind: known[kind] for kind in offered if kind in known}
        lists |= {kind: Listing() for kind in ListKind if kind not in offered}
        if ListKind.TOOLS in offered:
            tools = await read_list(ask, ListKind.TOOLS, self.config.tools.allows)
            lists |= self._complained({ListKind.TOOLS: tools})
        return said.with_lists(lists)

    def adopt(self, catalog: Catalog) -> None:
        """Take over what was learnt, now that the link is there."""
        self.known = catalog.let_through(self.config)
        self._wanted_at = self._clock.now()
        self.changed(self._offered(catalog) - {ListKind.TOOLS})

    def due_in_s(self) -> float:
        """Return how long until lists are to be read again."""
        if self._stale:
            return self._read_at + REREAD_S - self._clock.now()
        return self._read_at + RETRY_S - self._clock.now() if self._unread else math.inf

    async def reread(self, ask: Ask, published: Callable[[], None]) -> None:
        """Read the lists that have changed, or could not be read; each is `published` as it comes."""
        assert self.known is not None, "a link is not ready before its tools are read"
        self._reading, self._stale = (self._stale or self._unread) & self._offered(self.known), frozenset()
        self._unread -= self._reading
        try:
            await asyncio.gather(*(self._reread_one(ask, kind, published) for kind in self._reading))
        finally:
            self._reading = frozenset()
            self._read_at = self._clock.now()
            self.settle()

    async def _reread_one(self, ask: Ask, kind: ListKind, published: Callable[[], None]) -> None:
        assert self.known is not None
        listing, was_read = await read_or_keep(ask, kind, self.known, self.config.tools.allows)
        if not was_read:
            self._unread |= {kind}
        self.known = self.known.with_lists(self._complained({kind: listing})).let_through(self.config)
        self._reading -= {kind}
        self.settle()
        published()

    def is_unsaved(self) -> bool:
        """Tell whether everything is read and not on disk yet."""
        return self._catalog_store is not None and not self._stale and self.known is not self._on_disk

    async def save(self) -> None:
        """Keep the catalog on disk, and say which definitions are others than they were."""
        catalog = self._on_disk = self.known
        if self._catalog_store is not None and catalog is not None:
            for tool in await asyncio.to_thread(self._catalog_store.save, self.config, catalog):
                group_logger(log, self.config.name).warning(
                    "group %s: the definition of its tool `%s` has changed", self.config.name, tool
                )

    def settle(self) -> None:
        """Let go of those who wait."""
        self._settled.set()
        self._settled = asyncio.Event()

    def _offered(self, catalog: Catalog) -> frozenset[ListKind]:
        """Which lists the upstream has and the config lets through."""
        features = self.config.features
        return frozenset(
            kind for kind in ListKind if catalog.may(kind.capability) and features.allows(kind.capability)
        )

    def _complained(self, lists: dict[ListKind, Listing]) -> dict[ListKind, Listing]:
        for complaint in (complaint for listing in lists.values() for complaint in listing.complaints):
            group_logger(log, self.config.name).warning("group %s: %s", self.config.name, complaint)
        return lists
