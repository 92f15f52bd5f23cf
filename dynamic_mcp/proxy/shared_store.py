"""Opens what the replicas of a service share, as their config says, for serving and for commands."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features import table

if TYPE_CHECKING:
    from dynamic_mcp.system.shared_store import SharedStore


async def open_shared_store(config: Config) -> SharedStore | None:
    """Return the store that a config names, to be closed by the caller; None without one. It may be unreachable."""
    feature = table.feature_with_cluster()
    if feature is None or config.cluster is None:
        return None
    store: SharedStore | None = await feature.load(feature.store).open_store(config.cluster, config.file.parent)
    return store


@contextlib.asynccontextmanager
async def using_shared_store(config: Config) -> AsyncIterator[SharedStore]:
    """Use the store that a config names, and close it."""
    store = await open_shared_store(config)
    assert store is not None, "the config names one"
    try:
        yield store
    finally:
        await store.close()


def has_shared_store(config: Config) -> bool:
    """Return whether a config names a store."""
    return getattr(config.cluster, "store", None) is not None
