"""Compares servers of a config with its lock file: their cached catalogs, or their current ones."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.pins.comparison import ServerComparison, compare_all, read_lock
from dynamic_mcp.features.pins.lock_file import PinSet, find_lock_file
from dynamic_mcp.groups.catalog import Catalog, ListKind


class Survey(Struct, frozen=True):
    """Servers of a config, compared with its lock file. `contacted` are the names of servers that were asked."""

    config: Config
    file: Path
    lock: PinSet
    servers: tuple[ServerComparison, ...]
    contacted: frozenset[str]


def survey(context: Invocation, names: tuple[str, ...], *, is_live: bool, asks_unchanged: bool = False) -> Survey:
    """Compare these servers, or all of the config. Raises ConfigError, NotFound and DynamicMcpError.

    They are asked if `is_live`. With `asks_unchanged`, so are those that differ in nothing that proxies have seen: a
    command or `doctor` may have seen a newer catalog without caching it.
    """
    whole = context.read_groups()
    config, file = _select(whole, names), find_lock_file(whole)
    lock, offered = read_lock(file), dict[str, Catalog | DynamicMcpError](known_catalogs(whole))
    pinnings = {group.name: config.presentations[group.name].pinning for group in config.groups}
    servers = () if is_live else tuple(compare_all(pinnings, lock, offered))
    to_ask = [group.name for group in config.groups] if is_live else []
    if asks_unchanged:
        to_ask += [each.name for each in servers if each.is_pinned and not each.differences]
    if to_ask:
        offered |= _read_live(context, _select(config, tuple(to_ask)))
        servers = tuple(compare_all(pinnings, lock, offered))
    return Survey(config, file, lock, servers, frozenset(to_ask))


def _select(config: Config, names: tuple[str, ...]) -> Config:
    """Return the config with only these groups. Raises NotFound."""
    groups = {group.name: group for group in config.groups}
    for name in names:
        if name not in groups:
            raise unknown_group(name, config)
    return replace(config, groups=tuple(groups[name] for name in dict.fromkeys(names))) if names else config


def _read_live(context: Invocation, config: Config) -> dict[str, Catalog | DynamicMcpError]:
    """Read the catalogs of servers, without the local user's access rules; nothing is pinned."""
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.own_client import open_own_client
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.proxy.client_group import ViewedGroup

    whole = replace(config, access=None, profiles={})

    async def read(group: object) -> Catalog | DynamicMcpError:
        assert isinstance(group, ViewedGroup)
        try:
            await group.read_catalog(ListKind)
        except DynamicMcpError as exc:
            return exc
        return group.whole or Catalog()

    async def read_all() -> dict[str, Catalog | DynamicMcpError]:
        names = [group.name for group in config.groups]
        with context.out.progress("asking", names) as progress:
            async with open_own_client(context, whole, uses_cache=False) as client:
                found = await for_each_group(client, progress, read)
                return {group.name: each for group, each in zip(client.groups, found, strict=True)}

    return run(read_all())
