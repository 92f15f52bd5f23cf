"""The keys that sign access tokens, where replicas share a store: one entry, which each replica knows by heart.

Imports joserfc, and so is imported with the first request that needs a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import DecodeError, Struct

from dynamic_mcp.features.login_server.keys import SIGNS_S
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    SharedStore,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)
from dynamic_mcp.web.jwk import SigningKey

KEYS = StoreSpace("login-keys")
NAME = "keys"
_MAX_TRIES = 10


class StoredKey(Struct, frozen=True):
    """A key as JWK, and when it was made."""

    id: str
    private: str
    made: float


class StoredKeys(Struct, frozen=True):
    """The keys, the newest first."""

    keys: tuple[StoredKey, ...]


class SharedKeys:
    """The keys as this replica knows them. All methods raise StoreUnavailable."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._stored: tuple[StoredKey, ...] = ()
        self.known: Mapping[str, SigningKey] = {}

    async def current(self, now: float, tokens_last_s: float) -> SigningKey:
        """Return the key that signs now; the replica that first needs one creates it."""
        if not self._signs(now):
            await self._change(now, tokens_last_s)
        return self.known[self._stored[0].id]

    async def read(self) -> None:
        """Read the keys of the other replicas."""
        self._learn(_decode(await self._store.get(KEYS, NAME)))

    async def restore(self, now: float, tokens_last_s: float) -> None:
        """Write what is known here, if anything is, into a store that may have lost it."""
        if self._stored:
            await self._change(now, tokens_last_s)

    def _signs(self, now: float) -> bool:
        return bool(self._stored) and now < self._stored[0].made + SIGNS_S

    async def _change(self, now: float, tokens_last_s: float) -> None:
        for _ in range(_MAX_TRIES):
            entry = await self._store.get(KEYS, NAME)
            there = _decode(entry)
            self._learn(there)
            if not self._signs(now):
                key = await asyncio.to_thread(SigningKey.generate)
                assert key.kid is not None, "it was generated"
                self._stored = (StoredKey(key.kid, key.to_jwk(), now), *self._stored)
            oldest = now - SIGNS_S - max(tokens_last_s, SIGNS_S)
            wanted = tuple(each for each in self._stored if each.made >= oldest)
            expected = ABSENT if entry is None else entry.version
            value = msgspec.json.encode(StoredKeys(wanted))
            if wanted == there or await self._write(value, expected):
                self._stored, self.known = wanted, _to_keys(wanted)
                return
            self._stored = tuple(each for each in self._stored if each.id in self.known)  # one of another is used
        raise StoreUnavailable(StoreFailure.BUSY, "the keys of the login server change again and again")

    async def _write(self, value: bytes, expected: bytes) -> bool:
        return await self._store.compare_and_set(KEYS, NAME, value, LONGEST_S, expected=expected) is not None

    def _learn(self, others: tuple[StoredKey, ...]) -> None:
        keys = {each.id: each for each in (*self._stored, *others)}
        self._stored = tuple(sorted(keys.values(), key=lambda each: (-each.made, each.id)))
        if keys.keys() != self.known.keys():
            self.known = _to_keys(self._stored)


def _to_keys(stored: tuple[StoredKey, ...]) -> dict[str, SigningKey]:
    return {each.id: SigningKey.from_jwk(each.private, each.id) for each in stored}


def _decode(entry: StoredEntry | None) -> tuple[StoredKey, ...]:
    """Return the keys of an entry. One that cannot be read must not be replaced. Raises StoreUnavailable."""
    try:
        return () if entry is None else decode_as(entry.value, StoredKeys).keys
    except DecodeError as exc:
        raise StoreUnavailable(StoreFailure.FOREIGN, "the keys of the login server are of another version") from exc
