"""Copies of kept results in the store that replicas share, for when the replica that keeps one has ended.

A copy is for the same principal at the same path. It is written in the background and may be missing: of a long
result, or while the store is slow. A replica has a bounded number of bytes there; the oldest go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from dynamic_mcp.client import Client
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.kept_text import KeptText
from dynamic_mcp.system.shared_store import SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

RESULTS = StoreSpace("results")
KEPT_FOR_S = 3600.0
# A longer result is kept by its replica alone: it would hold up others on the connection to the store.
MOST_BYTES = 256 << 10
# What a replica has in the store at once; one principal has half of it.
MOST_BYTES_OF_ALL = 16 << 20
MOST_OF_ALL = 1000
_MOST_WAITING = 64


class StoredResult(Struct, frozen=True):
    """An entry: a kept result, and for whom it is."""

    kept: KeptText
    issuer: str
    subject: str
    only: str | None
    profile: str | None

    @staticmethod
    def of(kept: KeptText, client: Client) -> StoredResult:
        principal = client.principal
        return StoredResult(kept, principal.issuer, principal.subject, client.only, client.profile)


class _Copy(Struct, frozen=True):
    """What this replica has in the store: whose it is, and its size."""

    principal: Principal
    bytes: int


class SharedResults:
    """The copies that this replica writes to a store, and reads of others."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self._copies: dict[str, _Copy] = {}  # the oldest first
        self._waiting: deque[tuple[str, bytes | None]] = deque()  # a value to write, or None to delete the copy
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<SharedResults, {len(self._copies)} copies, {len(self._waiting)} waiting>"

    def add(self, id: str, client: Client, kept: KeptText) -> None:
        """Copy a result to the store in the background."""
        if self._has_ended or len(kept.text) > MOST_BYTES or len(self._waiting) >= _MOST_WAITING:
            return
        value = wire.encode(StoredResult.of(kept, client))
        if len(value) > MOST_BYTES:
            return
        self._copies[id] = _Copy(client.principal, len(value))
        self._waiting.append((id, value))
        for each in [*self._find_excess(client.principal)]:
            del self._copies[each]
            self._waiting.append((each, None))
        if self._writing is None:
            self._writing = self._tasks.create(self._write(), name="copies of results")

    def _find_excess(self, principal: Principal) -> Iterable[str]:
        """Yield the oldest copies that are too many, of this principal and of all."""
        own = {id: each for id, each in self._copies.items() if each.principal == principal}
        excess = {*_find_oldest(own, MOST_OF_ALL // 2, MOST_BYTES_OF_ALL // 2)}
        left = {id: each for id, each in self._copies.items() if id not in excess}
        return excess.union(_find_oldest(left, MOST_OF_ALL, MOST_BYTES_OF_ALL))

    async def _write(self) -> None:
        try:
            while self._waiting:
                id, value = self._waiting.popleft()
                try:
                    if value is None:
                        await self.store.delete(RESULTS, id)
                    else:
                        await self.store.put(RESULTS, id, value, KEPT_FOR_S)
                except StoreUnavailable as exc:  # their replica has them
                    log.debug("%d results have no copy in the shared store: %s", len(self._waiting) + 1, exc)
                    self._waiting.clear()
        finally:
            self._writing = None

    async def find(self, id: str, client: Client) -> KeptText | None:
        """Return a result that was kept for this principal at this path; None also while the store is away."""
        try:
            entry = await self.store.get(RESULTS, id)
        except StoreUnavailable as exc:
            log.debug("a kept result cannot be read from the shared store: %s", exc)
            return None
        found = None if entry is None else entry.read(StoredResult)
        return None if found is None or found != StoredResult.of(found.kept, client) else found.kept

    def end(self) -> None:
        """Write nothing any more."""
        self._has_ended = True
        self._waiting.clear()

    async def close(self) -> None:
        """Write what waits: the store bounds how long that takes."""
        self._has_ended = True
        await self._tasks.wait()


def _find_oldest(copies: dict[str, _Copy], most: int, most_bytes: int) -> Iterable[str]:
    """Yield the oldest copies until no more than so many, and so many bytes, are left."""
    count, size = len(copies), sum(each.bytes for each in copies.values())
    for id, each in copies.items():
        if count <= most and size <= most_bytes:
            return
        count, size = count - 1, size - each.bytes
        yield id
