"""Writes copies to the shared store in the background, a bounded number of bytes, and finds those of all replicas.

They save work: one may be missing, and nobody waits for them to be written. The oldest go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Hashable, Iterator
from typing import TypeVar

from msgspec import Struct

from dynamic_mcp.system.shared_store import SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

T = TypeVar("T")

log = logging.getLogger(__name__)

# A larger entry would hold up others on the connection to the store.
MOST_BYTES_OF_ONE = 256 << 10
# What a process has in a space at once; one owner has half of it.
MOST_BYTES = 16 << 20
MOST_ENTRIES = 1000
_MOST_WAITING = 64


class _Copy(Struct, frozen=True):
    """What this process has in the store: whose it is, and its size."""

    owner: Hashable
    bytes: int


class StoreWriter:
    """The copies in one space, as far as this process writes them."""

    def __init__(self, store: SharedStore, space: StoreSpace) -> None:
        self._store = store
        self._space = space
        self._copies: dict[str, _Copy] = {}  # the oldest first
        self._waiting: deque[tuple[str, bytes | None, float]] = deque()  # None is to be deleted
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<StoreWriter of {self._space.name}, {len(self._copies)} copies, {len(self._waiting)} waiting>"

    def add(self, name: str, value: bytes, ttl_s: float, owner: Hashable) -> None:
        """Write an entry in the background, unless it is too large or too many wait."""
        if self._has_ended or len(value) > MOST_BYTES_OF_ONE or len(self._waiting) >= _MOST_WAITING:
            return
        self._copies.pop(name, None)
        self._copies[name] = _Copy(owner, len(value))
        self._waiting.append((name, value, ttl_s))
        for each in self._find_excess(owner):
            del self._copies[each]
            self._waiting.append((each, None, 0.0))
        if self._writing is None:
            self._writing = self._tasks.create(self._write(), name=f"copies in {self._space.name}")

    async def find(self, name: str, kind: type[T]) -> T | None:
        """Return a copy of any replica; None also while the store is away."""
        try:
            entry = await self._store.get(self._space, name)
        except StoreUnavailable as exc:
            log.debug("`%s` cannot be read from the shared store: %s", self._space.name, exc)
            return None
        return None if entry is None else entry.read(kind)

    def end(self) -> None:
        """Write nothing any more."""
        self._has_ended = True
        self._waiting.clear()

    async def close(self) -> None:
        """Write what waits: the store bounds how long that takes."""
        self._has_ended = True
        await self._tasks.wait()

    def _find_excess(self, owner: Hashable) -> set[str]:
        """Return the oldest copies that are too many, of this owner and of all."""
        own = {name: each for name, each in self._copies.items() if each.owner == owner}
        excess = {*_find_oldest(own, MOST_ENTRIES // 2, MOST_BYTES // 2)}
        left = {name: each for name, each in self._copies.items() if name not in excess}
        return excess.union(_find_oldest(left, MOST_ENTRIES, MOST_BYTES))

    async def _write(self) -> None:
        try:
            while self._waiting:
                name, value, ttl_s = self._waiting.popleft()
                try:
                    if value is None:
                        await self._store.delete(self._space, name)
                    else:
                        await self._store.put(self._space, name, value, ttl_s)
                except StoreUnavailable as exc:
                    log.debug("%d copies are not in the shared store: %s", len(self._waiting) + 1, exc)
                    self._waiting.clear()
        finally:
            self._writing = None


def _find_oldest(copies: dict[str, _Copy], most: int, most_bytes: int) -> Iterator[str]:
    """Yield the oldest copies until no more than so many, and so many bytes, are left."""
    count, size = len(copies), sum(each.bytes for each in copies.values())
    for name, each in copies.items():
        if count <= most and size <= most_bytes:
            return
        count, size = count - 1, size - each.bytes
        yield name
