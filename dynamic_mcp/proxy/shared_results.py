"""Copies of kept results in the store that replicas share, for when the replica that keeps one has ended.

A copy is for the same principal at the same path. It is written in the background and may be missing: of a long
result, or while the store is slow.
"""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.client import Client
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.kept_text import KeptText
from dynamic_mcp.system.shared_store import SharedStore, StoreSpace
from dynamic_mcp.system.store_writer import MOST_BYTES_OF_ONE, StoreWriter

RESULTS = StoreSpace("results")
KEPT_FOR_S = 3600.0


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


class SharedResults:
    """The copies that this replica writes to a store, and reads of others."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self._writer = StoreWriter(store, RESULTS)

    def __repr__(self) -> str:
        return f"<SharedResults {self._writer!r}>"

    def add(self, id: str, client: Client, kept: KeptText) -> None:
        """Copy a result to the store in the background."""
        if len(kept.text) <= MOST_BYTES_OF_ONE:
            self._writer.add(id, wire.encode(StoredResult.of(kept, client)), KEPT_FOR_S, client.principal)

    async def find(self, id: str, client: Client) -> KeptText | None:
        """Return a result that was kept for this principal at this path; None also while the store is away."""
        found = await self._writer.find(id, StoredResult)
        return None if found is None or found != StoredResult.of(found.kept, client) else found.kept

    def end(self) -> None:
        """Write nothing any more."""
        self._writer.end()

    async def close(self) -> None:
        """Write what waits: the store bounds how long that takes."""
        await self._writer.close()
