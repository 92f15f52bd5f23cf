"""Entries of the shared store by their keys, of which there are so many at most.

Each key may have one of four places. A new entry takes one that is free, or else that of another entry. So what
anyone may fill stays bounded without a list of it. In a table that is a tenth full, one of ten thousand replaces
another.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Generic, TypeVar

import msgspec
from msgspec import DecodeError, Raw, Struct

from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.shared_store import ABSENT, SharedStore, StoredEntry, StoreSpace

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Struct)

_PLACES = 4


class _Row(Struct, frozen=True):
    key: str
    value: Raw


class Found(Struct, Generic[T], frozen=True):
    """A value and its entry."""

    value: T
    entry: StoredEntry


class StoredTable:
    """A table of one space. All methods raise StoreUnavailable."""

    def __init__(self, store: SharedStore, name: str, size: int) -> None:
        self._store = store
        self._space = StoreSpace(name)
        self._size = size

    async def add(self, key: str, value: Struct, ttl_s: float) -> None:
        data = _encode(key, value)
        places = self._list_places(key)
        for place in places:
            if await self._store.compare_and_set(self._space, place, data, ttl_s, expected=ABSENT) is not None:
                return
        log.warning("the shared store has no place left for `%s`: another entry is replaced", self._space.name)
        await self._store.put(self._space, places[0], data, ttl_s)

    async def find(self, key: str, kind: type[T]) -> Found[T] | None:
        for place in self._list_places(key):
            entry = await self._store.get(self._space, place)
            value = None if entry is None else _decode(entry, key, kind)
            if entry is not None and value is not None:
                return Found(value, entry)
        return None

    async def list_all(self, kind: type[T]) -> dict[str, Found[T]]:
        """Return all values by their keys, for commands: it reads the whole store."""
        values: dict[str, Found[T]] = {}
        async for entry in self._store.scan(self._space):
            row = entry.read(_Row)
            value = None if row is None else _decode(entry, row.key, kind)
            if row is not None and value is not None:
                values[row.key] = Found(value, entry)
        return values

    async def replace(self, found: Found[T], key: str, value: T, ttl_s: float) -> bool:
        """Write an entry unless it has changed since it was found; return whether it was written."""
        entry = found.entry
        version = await self._store.compare_and_set(
            self._space, entry.name, _encode(key, value), ttl_s, expected=entry.version
        )
        return version is not None

    async def remove(self, found: Found[T]) -> bool:
        """Delete an entry unless it has changed since it was found; of all that remove it, one is told True."""
        return await self._store.delete(self._space, found.entry.name, expected=found.entry.version)

    def _list_places(self, key: str) -> list[str]:
        digest = sha256(key.encode()).digest()
        return [
            str(int.from_bytes(digest[4 * number : 4 * number + 4], "big") % self._size) for number in range(_PLACES)
        ]


def _encode(key: str, value: Struct) -> bytes:
    return msgspec.json.encode(_Row(key, Raw(msgspec.json.encode(value))))


def _decode(entry: StoredEntry, key: str, kind: type[T]) -> T | None:
    try:
        row = decode_as(entry.value, _Row)
        return decode_as(row.value, kind) if row.key == key else None
    except DecodeError as exc:  # of another version
        log.debug("an entry of the login server cannot be read: %s", exc)
        return None
