"""Opens what the replicas of this service share."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.store_address import parse_address
from dynamic_mcp.system.shared_store import SharedStore


def open_file(file: Path) -> SharedStore:
    """Return a store in a file, for the processes of this machine."""
    from dynamic_mcp.features.cluster.local_store import LocalStore

    return LocalStore(file)


async def open_store(settings: Cluster, folder: Path) -> SharedStore | None:
    """Return the store of these settings, which may not be reachable yet; None if they name none."""
    if settings.store is None:
        return None
    address = parse_address(settings.store, folder)
    if address.is_file:
        from urllib.request import url2pathname  # which knows drives

        return open_file(Path(url2pathname(address.path)))
    from dynamic_mcp.features.cluster.valkey_store import ValkeyStore

    store = ValkeyStore(address, settings.keys)
    await store.open()
    return store
