"""The known catalog of one group: unfiltered, regardless of what each client sees.

It comes from disk at the start and from the links of the group's instances later; a list that is read again and is
the same stays the same object, so callers can compare identities.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.groups.catalog import Catalog, ListHint, Listing, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.offers import Offers
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.upstream.handshake import Era, ServerInfo

log = logging.getLogger(__name__)

# A catalog on disk that is older is read again in the background.
MAX_AGE_S = 7 * 24 * 3600.0
# However short a list is fresh, it is not read more often than this.
SHORTEST_TTL_S = 1.0
ALL_LISTS = frozenset(ListKind)


class LiveCatalog:
    """The catalog of a group through time; `known` is None until there is one.

    `wanted` are the lists that clients may be shown; the others are not read. `asks` tells that the upstream has
    asked a client something; `lacks` is the era that it was found not to speak; `offers` is what it has offered to
    which clients. `changes` counts how often it has said that its tools or resources are others. `is_fresh` tells
    that it need not be read again in the background, and `is_from_disk` that the upstream has not been asked yet.
    """

    def __init__(
        self,
        config: GroupConfig,
        catalog_store: CatalogStore | None,
        wanted: frozenset[ListKind] = ALL_LISTS,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.wanted = wanted
        self.current: Catalog | None = None
        self.asks = False
        self.changes = 0
        self.is_fresh = False
        self.is_from_disk = False
        self.lacks: Era | None = None
        self.offers = Offers()
        self._catalog_store = catalog_store
        self._clock = clock or LoopClock()
        self._on_disk: tuple[Catalog | None, bool, Era | None, Offers] = (None, False, None, self.offers)
        self._saving = asyncio.Lock()
        self._hello: Mapping[str, Raw] | None = None
        self._heard = asyncio.Event()

    def knows(self, kinds: Iterable[ListKind]) -> bool:
        return self.current is not None and self.current.knows(kinds)

    def expired(self, kinds: Iterable[ListKind]) -> frozenset[ListKind]:
        """Return which of these lists are no longer fresh, of an upstream that does not report changes."""
        lists = self.current.lists if self.current is not None else {}
        return frozenset(kind for kind in kinds if (listing := lists.get(kind)) and self._has_expired(kind, listing))

    def _has_expired(self, kind: ListKind, listing: Listing) -> bool:
        hint = listing.hint
        if hint is None or self._clock.now() < hint.read_at + max(hint.ttl_s, SHORTEST_TTL_S):
            return False
        return self.current is not None and not self.current.announces(kind)

    def complaint(self, kinds: Iterable[ListKind]) -> str | None:
        """Return which of these lists are incomplete and why; None when they are not known."""
        return self.current.complaint(kinds) if self.current else None

    def readable(self, catalog: Catalog) -> frozenset[ListKind]:
        """Return the lists that the upstream has and clients may see."""
        return frozenset(kind for kind in self.wanted if catalog.declares(kind))

    def load(self) -> None:
        """Load the catalog from disk, if it is there."""
        stored = self._catalog_store.load(self.config) if self._catalog_store is not None else None
        if stored is None or self._catalog_store is None:
            return
        self.asks |= stored.asks
        self.offers = stored.offers
        is_fresh = self._catalog_store.age_s(stored) < MAX_AGE_S
        self.lacks = stored.lacks if is_fresh else None  # it may have learnt another one
        if not stored.catalog.knows([ListKind.TOOLS] if ListKind.TOOLS in self.wanted else []):
            return
        self.current = self._without_unwanted(stored.catalog)
        self._on_disk = self.current, stored.asks, stored.lacks, stored.offers
        self._hello = self.current.hello
        self.is_fresh = is_fresh
        self.is_from_disk = True

    def note_hello(self, server: ServerInfo) -> Catalog:
        """Record the `initialize` result of a new link; return the catalog that begins with it."""
        self._hello = {name: value for name, value in server.result.items() if name != "protocolVersion"}
        self._heard.set()
        self.lacks = server.lacks
        return Catalog({}, server.capabilities, server.instructions, server.title, self._hello)

    async def learn_hello(self, connect: Callable[[], Awaitable[object]]) -> Mapping[str, Raw] | None:
        """Return the upstream's `initialize` result, calling `connect` if it is not known; None if that failed.

        A link says it before it is ready: its tools may take longer, and may depend on what the client answers.
        """
        if self._hello is None:
            connecting, hearing = asyncio.ensure_future(connect()), asyncio.ensure_future(self._heard.wait())
            connecting.add_done_callback(lambda each: each.cancelled() or each.exception())
            try:
                await asyncio.wait([connecting, hearing], return_when=asyncio.FIRST_COMPLETED)
                if self._hello is None:
                    await connecting
            finally:
                connecting.cancel()
                hearing.cancel()
        return self._hello

    def publish(self, catalog: Catalog) -> None:
        """Replace the catalog by the one that a new link has read."""
        self.current = self._without_unwanted(self._reusing(catalog))
        self.is_from_disk = False

    def publish_list(self, kind: ListKind, listing: Listing) -> None:
        """Replace a list that was read again."""
        assert self.current is not None, "a link is not ready before its tools are read"
        self.publish(self.current.with_lists({kind: listing}))

    def want(self, wanted: frozenset[ListKind]) -> frozenset[ListKind]:
        """Set the lists that clients may see; return those that have to be read now."""
        more = wanted - self.wanted
        self.wanted = wanted
        if self.current is None:
            return frozenset()
        lists = {kind: listing for kind, listing in self.current.lists.items() if kind not in more}
        self.current = replace(self.current, lists=lists)
        return more & self.readable(self.current)

    def is_unsaved(self) -> bool:
        """Return whether the catalog has changes that are not on disk yet."""
        return (
            self._catalog_store is not None
            and (
                self.current,
                self.asks,
                self.lacks,
                self.offers,
            )
            != self._on_disk
        )

    async def save(self) -> None:
        async with self._saving:  # the group's instances take turns
            await self._save()

    async def _save(self) -> None:
        catalog, asks, lacks, offers = self._on_disk = self.current, self.asks, self.lacks, self.offers
        if self._catalog_store is not None and catalog is not None:
            save = partial(self._catalog_store.save, self.config, catalog, asks=asks, lacks=lacks, offers=offers)
            await asyncio.to_thread(save)

    def _without_unwanted(self, catalog: Catalog) -> Catalog:
        """Return the catalog without the entries of lists that clients do not see, which are not read."""
        unwanted = {kind: _NONE for kind in ListKind if kind not in self.wanted}
        return catalog.with_lists(unwanted) if unwanted else catalog

    def _reusing(self, catalog: Catalog) -> Catalog:
        """Return the catalog with each unchanged list as the same object as before."""
        before: Mapping[ListKind, Listing] = self.current.lists if self.current is not None else {}
        same = {
            kind: before[kind]
            for kind, listing in catalog.lists.items()
            if kind in before and before[kind] is not listing and _is_same(before[kind], listing)
        }
        same = {kind: _with_hint(listing, catalog.lists[kind].hint) for kind, listing in same.items()}
        return catalog.with_lists(same) if same else catalog


_NONE = Listing()


def _with_hint(listing: Listing, hint: ListHint | None) -> Listing:
    """Return an unchanged list with its newest hint; its entries stay the same object."""
    return listing if listing.hint == hint else replace(listing, hint=hint)


def _is_same(before: Listing, after: Listing) -> bool:
    return before == after and before.complaints == after.complaints
