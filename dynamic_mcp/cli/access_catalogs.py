"""The catalogs of servers as stored on disk, regardless of access rules. Connects only on request."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.system import paths


def known_catalogs(config: Config) -> dict[str, Catalog]:
    """Return the stored catalogs by group, without groups that have none."""
    store = CatalogStore(paths.cache_dir() / "catalogs")
    stored = {group.name: store.load(group) for group in config.groups}
    return {name: each.catalog for name, each in stored.items() if each is not None}


def read_catalogs(context: Invocation, config: Config, *, connects: bool) -> Mapping[str, Catalog]:
    """Return the stored catalogs by group, and report missing ones; with `connects`, fetch those first."""
    catalogs = known_catalogs(config)
    missing = tuple(group for group in config.groups if group.name not in catalogs)
    if missing and connects:
        _connect(context, replace(config, groups=missing))
        catalogs = known_catalogs(config)
    for group in config.groups:
        if group.name not in catalogs:
            hint = "" if connects else "; `--connect` reads them"
            context.out.say(f"the tools of group `{group.name}` are not known{hint}")
    return catalogs


def _connect(context: Invocation, config: Config) -> None:
    """Fetch and store the whole catalogs, without the limits of access rules and profiles."""
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.own_client import open_own_client
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.proxy.client_group import ClientGroup

    async def read(group: ClientGroup) -> None:
        try:
            await group.read_catalog(ListKind)  # the whole catalog, so that it is stored
        except DynamicMcpError as exc:
            context.out.print_error(str(exc))

    async def connect() -> None:
        with context.out.progress("connecting to", [group.name for group in config.groups]) as progress:
            async with open_own_client(context, replace(config, access=None, profiles={})) as client:
                await for_each_group(client, progress, read)

    run(connect())
