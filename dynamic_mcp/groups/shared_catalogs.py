"""Catalogs in the store that replicas share: one that starts shows what servers offer before it has connected.

They are a copy for the catalogs on disk of a replica that has none yet, and save work; without the store, the replica
connects to learn them.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterable

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.groups.catalog_store import CatalogStore, key
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

CATALOGS = StoreSpace("catalogs")
KEPT_FOR_S = 7 * 86_400.0
# A catalog that takes more, compressed, is not shared.
MOST_BYTES = 256 << 10
_MOST_DECODED_BYTES = 32 << 20
# How many wait to be written; the oldest are left out.
_MOST_WAITING = 200


class SharedCatalogs:
    """The catalogs of all replicas, as they are on the disk of one."""

    def __init__(self, store: SharedStore, catalogs: CatalogStore) -> None:
        self.store = store
        self._catalogs = catalogs
        self._waiting: BoundedDict[str, bytes] = BoundedDict(_MOST_WAITING)
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        catalogs.on_save = self._take

    def __repr__(self) -> str:
        return f"<SharedCatalogs, {len(self._waiting)} waiting>"

    async def fetch(self, configs: Iterable[GroupConfig], within_s: float) -> None:
        """Take over the catalogs of servers that this replica knows nothing of, for so long at most."""
        try:
            async with asyncio.timeout(within_s):
                for config in configs:
                    if not await asyncio.to_thread(self._catalogs.has, config):
                        await self._fetch(config)
        except (StoreUnavailable, TimeoutError) as exc:
            log.debug("catalogs of other replicas are not known: %s", exc)

    async def _fetch(self, config: GroupConfig) -> None:
        entry = await self.store.get(CATALOGS, key(config))
        if entry is None:
            return
        try:
            data = zlib.decompressobj().decompress(entry.value, _MOST_DECODED_BYTES)
        except zlib.error as exc:
            log.debug("the catalog of group %s in the shared store cannot be read: %s", config.name, exc)
            return
        await asyncio.to_thread(self._catalogs.adopt, config, data)

    def _take(self, config: GroupConfig, data: bytes) -> None:
        """Called in a thread when a catalog was saved."""
        value = zlib.compress(data)
        if len(value) <= MOST_BYTES:
            self._loop.call_soon_threadsafe(self._add, key(config), value)

    def _add(self, name: str, value: bytes) -> None:
        if self._catalogs.on_save != self._take:  # it has ended
            return
        self._waiting[name] = value
        if self._writing is None:
            self._writing = self._tasks.create(self._write(), name="catalogs for other replicas")

    async def _write(self) -> None:
        try:
            while self._waiting:
                name = next(iter(self._waiting))
                value = self._waiting.pop(name)
                try:
                    await self.store.put(CATALOGS, name, value, KEPT_FOR_S)
                except StoreUnavailable as exc:
                    log.debug("a catalog is not in the shared store: %s", exc)
        finally:
            self._writing = None

    def end(self) -> None:
        """Write nothing more."""
        if self._catalogs.on_save == self._take:
            self._catalogs.on_save = None
        self._waiting.clear()

    async def close(self) -> None:
        """Write what waits: the store bounds how long that takes."""
        if self._catalogs.on_save == self._take:
            self._catalogs.on_save = None
        await self._tasks.wait()
