"""Compares servers of a config with its lock file: their cached catalogs, or their current ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.features.pins import lock_file
from dynamic_mcp.features.pins.definition import Key, PinKind, definitions
from dynamic_mcp.features.pins.judgement import Difference, judge
from dynamic_mcp.features.pins.lock_file import PinnedServer, PinSet, find_lock_file, pins_of_source
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.file_store import CorruptFile, NewerFile, StoreError
from dynamic_mcp.system.text import os_reason


class ServerComparison(Struct, frozen=True):
    """The differences between the definitions of one server and its pins.

    `catalog` is None where that is not known, because of an `error` if there was one; with both, a list that has
    pins could not be read. If it `is_moved`, something else was run when it was pinned, and those pins do not count.
    """

    name: str
    pinning: Pinning
    pinned: PinnedServer | None
    catalog: Catalog | None
    is_moved: bool = False
    error: DynamicMcpError | None = None
    differences: tuple[Difference, ...] = ()
    gone: tuple[Key, ...] = ()

    @property
    def version(self) -> str:
        hello = (self.catalog.hello if self.catalog is not None else None) or {}
        return wire.text(wire.member(hello.get("serverInfo", wire.EMPTY_OBJECT), "version")) or ""

    @property
    def held(self) -> list[Difference]:
        return [each for each in self.differences if each.held]

    @property
    def is_pinned(self) -> bool:
        """True if the config pins its definitions."""
        return self.pinning.policy != "trust"


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
    servers = () if is_live else tuple(_compare_all(config, lock, offered))
    to_ask = [group.name for group in config.groups] if is_live else []
    if asks_unchanged:
        to_ask += [each.name for each in servers if each.is_pinned and not each.differences]
    if to_ask:
        offered |= _read_live(context, _select(config, tuple(to_ask)))
        servers = tuple(_compare_all(config, lock, offered))
    return Survey(config, file, lock, servers, frozenset(to_ask))


def _select(config: Config, names: tuple[str, ...]) -> Config:
    """Return the config with only these groups. Raises NotFound."""
    groups = {group.name: group for group in config.groups}
    for name in names:
        if name not in groups:
            raise unknown_group(name, config)
    return replace(config, groups=tuple(groups[name] for name in dict.fromkeys(names))) if names else config


def read_lock(file: Path) -> PinSet:
    """Return the pins in a lock file; none if there is no file. Raises DynamicMcpError."""
    try:
        return lock_file.read_lock(file)
    except (OSError, StoreError) as exc:
        hint = ""
        if isinstance(exc, CorruptFile):
            hint = "restore it, or remove it and run `dynamic-mcp pins approve --all --live`"
        elif isinstance(exc, NewerFile):
            hint = "update dynamic-mcp"
        raise DynamicMcpError(f"the lock file `{file}` cannot be read: {os_reason(exc)}", hint=hint) from exc


def update_lock(file: Path, change: Callable[[PinSet], PinSet]) -> None:
    """Change a lock file. Raises DynamicMcpError and errors of `change`; then the file is unchanged."""
    try:
        lock_file.update_lock(file, change)
    except (OSError, StoreError) as exc:
        raise DynamicMcpError(f"the lock file `{file}` cannot be written: {os_reason(exc)}") from exc


def _compare_all(
    config: Config, lock: PinSet, offered: Mapping[str, Catalog | DynamicMcpError]
) -> Iterator[ServerComparison]:
    for group in config.groups:
        pinning, stored = config.presentations[group.name].pinning, lock.servers.get(group.name)
        pinned, answer = pins_of_source(stored, pinning.source), offered.get(group.name)
        catalog = answer if isinstance(answer, Catalog) else None
        error = answer if isinstance(answer, DynamicMcpError) else None
        differences: tuple[Difference, ...] = ()
        gone: tuple[Key, ...] = ()
        if catalog is not None and pinning.policy != "trust":
            differences, gone = judge(pinned, catalog, pinning.policy).differences, tuple(_gone(pinned, catalog))
            missing = catalog.complaint({kind.listed_as for kind, _ in gone if kind.listed_as is not None})
            error = UpstreamError(group.name, missing) if missing else None
        is_moved = stored is not None and pinned is None
        yield ServerComparison(group.name, pinning, pinned, catalog, is_moved, error, differences, gone)


def _gone(pinned: PinnedServer | None, catalog: Catalog) -> Iterator[Key]:
    """Yield the pinned definitions that are known to be no longer offered."""
    if pinned is None:
        return
    for kind in PinKind:
        if kind.listed_as is None:
            offered: set[str] = {""} if catalog.instructions or catalog.title else set()
        elif kind is PinKind.UI and catalog.knows([ListKind.TOOLS]):
            offered = {name for each, name, _ in definitions(catalog) if each is kind}
        elif catalog.knows([kind.listed_as]):
            offered = set(catalog.entries(kind.listed_as))
        else:
            continue
        yield from ((kind, name) for name in pinned.pins(kind) if name not in offered)


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
