"""Opens what the replicas of this service share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.store_address import parse_address
from dynamic_mcp.system.shared_store import SharedStore, StoreUnavailable

if TYPE_CHECKING:
    from dynamic_mcp.features.cluster.valkey_store import Resealed


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


async def reseal(settings: Cluster, folder: Path) -> Resealed:
    """Seal all that is shared with the first key. Raises DynamicMcpError."""
    from dynamic_mcp.features.cluster.valkey_store import ValkeyStore

    store = await open_store(settings, folder)
    if not isinstance(store, ValkeyStore):
        raise DynamicMcpError("a store in a file is not sealed", hint="it is private to its user, and needs no key")
    try:
        return await store.reseal()
    except StoreUnavailable as exc:
        raise DynamicMcpError(str(exc), hint="`dynamic-mcp cluster check` says more") from exc
    finally:
        await store.close()
