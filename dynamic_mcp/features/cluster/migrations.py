"""Takes all that one machine keeps in files into the store that replicas share, or back."""

from __future__ import annotations

from typing import Any

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.auth import token_migration
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.oauth import login_migration
from dynamic_mcp.proxy.shared_store import using_shared_store
from dynamic_mcp.system.migration import Migrated, Migration, migrate
from dynamic_mcp.system.shared_store import SharedStore, StoreUnavailable
from dynamic_mcp.system.text import os_reason


async def migrate_all(config: Config, *, to_store: bool, overwrites: bool, is_dry: bool) -> list[Migrated]:
    """Return what came of each kind. Raises DynamicMcpError, and then some may have been taken."""
    try:
        async with using_shared_store(config) as store:
            return [
                await migrate(each, to_store=to_store, overwrites=overwrites, is_dry=is_dry)
                for each in _list_migrations(config, store)
            ]
    except StoreUnavailable as exc:
        hint = "do it again, which goes on where this has ended; `dynamic-mcp cluster check` says more"
        raise DynamicMcpError(str(exc), hint=hint) from exc
    except OSError as exc:
        raise DynamicMcpError(f"a file cannot be used: {os_reason(exc)}", hint="do it again then") from exc


def _list_migrations(config: Config, store: SharedStore) -> list[Migration[Any]]:  # Any: each kind has its own
    """Return the kinds of the kernel, and those of the features that keep something in both places."""
    kinds: list[Migration[Any]] = [
        *token_migration.list_migrations(config, store),
        *login_migration.list_migrations(config, store),
    ]
    for feature in FEATURES:
        if feature.migrations:
            kinds += feature.find(feature.migrations)(config, store)
    return kinds
