"""Results that are cached for all, in the store that replicas share.

Each server has a generation there, which is part of the names of its results. It changes with each write and each
notification that a replica knows of, so that no replica uses what was cached before.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from hashlib import sha256

from msgspec import Struct

from dynamic_mcp.features.cache.kept_results import KeptResult
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.store_writer import StoreWriter
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

CACHED = StoreSpace("cache")
# By the servers, as the config runs them.
GENERATIONS = StoreSpace("cache-generations", most_listed=10_000)
_GENERATION_FOR_S = 30 * 86_400.0
_GENERATION_BYTES = 8
# A message that a generation has changed may be lost.
_KNOWN_FOR_S = 1.0
_MOST_KNOWN = 10_000


class CachedResult(Struct, frozen=True):
    """An entry: a result up to its age, with times in seconds since 1970."""

    at: float
    expires_at: float
    has_ttl: bool
    head: str


class SharedCache:
    """The results that replicas have cached for all. `on_change` is called with a server that was written to."""

    def __init__(self, store: SharedStore, on_change: Callable[[str], object]) -> None:
        self.store = store
        self._writer = StoreWriter(store, CACHED)
        self._known: BoundedDict[str, tuple[float, bytes]] = BoundedDict(_MOST_KNOWN)
        self._heard = 0
        self._new: dict[str, bytes] = {}  # generations that are not in the store yet
        self._tasks = TaskSet(log)
        self._on_change = on_change
        self._unsubscribe = store.subscribe(GENERATIONS, self._hear)

    def __repr__(self) -> str:
        return f"<SharedCache {self._writer!r}>"

    async def find_name(self, server: str, parts: Sequence[str]) -> str | None:
        """Return the name of a result at this moment; None while the store is away."""
        generation = self._new.get(server)
        if generation is None:
            try:
                generation = await self._find_generation(server)
            except StoreUnavailable:
                return None
        return sha256(wire.encode([server, generation.hex(), *parts])).hexdigest()

    async def _find_generation(self, server: str) -> bytes:
        """Return a generation as it was a second ago at most. Raises StoreUnavailable."""
        now, known = time.monotonic(), self._known.get(server)
        if known is not None and now - known[0] <= _KNOWN_FOR_S:
            return known[1]
        heard = self._heard
        entry = await self.store.get(GENERATIONS, server)
        generation = b"" if entry is None else entry.value
        if heard == self._heard:  # else a change may be newer than what was read
            self._known.pop(server, None)
            self._known[server] = now, generation
        return generation

    async def find(self, name: str, now: float) -> KeptResult | None:
        """Return a result of any replica; `now` is of the clock that its times are to be of."""
        found = await self._writer.find(name, CachedResult)
        ahead_s = now - time.time()
        if found is None or found.expires_at + ahead_s <= now:
            return None
        at, expires_at = min(found.at + ahead_s, now), found.expires_at + ahead_s
        return KeptResult(at, expires_at, is_private=False, has_ttl=found.has_ttl, head=found.head.encode())

    def keep(self, name: str, kept: KeptResult, now: float, server: str) -> None:
        """Share a result in the background."""
        ahead_s, ttl_s = time.time() - now, kept.expires_at - now
        if ttl_s > 0:
            stored = CachedResult(kept.at + ahead_s, kept.expires_at + ahead_s, kept.has_ttl, kept.head.decode())
            self._writer.add(name, wire.encode(stored), ttl_s, server)

    def renew(self, server: str) -> None:
        """Begin a new generation of a server, here at once, and at the others soon."""
        is_writing = server in self._new
        self._new[server] = secrets.token_bytes(_GENERATION_BYTES)
        if not is_writing:
            self._tasks.create(self._write(server), name="generation of cached results")

    async def _write(self, server: str) -> None:
        while True:
            generation = self._new[server]
            try:
                await self.store.put(GENERATIONS, server, generation, _GENERATION_FOR_S)
            except StoreUnavailable as exc:
                log.debug("other replicas do not know that cached results are out of date: %s", exc)
                await asyncio.sleep(1)
                continue
            if self._new[server] == generation:
                break
        self._heard += 1
        self._known.pop(server, None)
        del self._new[server]

    def _hear(self, message: bytes | None) -> None:
        self._heard += 1
        if message is None:
            self._known.clear()
            return
        server = message.decode("utf-8", "replace")
        self._known.pop(server, None)
        self._on_change(server)

    def end(self) -> None:
        """Share nothing any more."""
        self._unsubscribe()
        self._writer.end()
        self._tasks.cancel_all()
