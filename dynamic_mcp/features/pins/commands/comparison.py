"""What servers offer beside what is pinned of them: from disk as proxies saw it last, or from the servers now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from dynamic_mcp.cli.access_catalogs import known_catalogs
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.features.pins import lock_file
from dynamic_mcp.features.pins.changes import Change
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.findings import Finding
from dynamic_mcp.features.pins.judgement import PinJudgement, judge
from dynamic_mcp.features.pins.lock_file import (
    Pin,
    PinnedServer,
    PinSet,
    find_lock_file,
)
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.file_store import CorruptFile, NewerFile, StoreError
from dynamic_mcp.system.text import os_reason


@dataclass(frozen=True)
class Difference:
    """One definition that is not as it is pinned. `change` is None for a new one, `held` is empty if it passes."""

    key: Key
    pin: Pin
    change: Change | None = None
    held: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def before(self) -> Pin | None:
        """The pin that counts now."""
        return None if self.change is None else self.change.before

    @property
    def name(self) -> str:
        """The name to type; instructions have none of their own."""
        return self.key[1] or self.key[0].noun

    @property
    def title(self) -> str:
        """The kind and the name."""
        kind, name = self.key
        return f"{kind.noun} {name}" if name else kind.noun


@dataclass(frozen=True)
class Comparison:
    """What one server offers, compared with what is pinned of it.

    `catalog` is None where that is not known, because of an `error` if there was one; with both, a list that has
    pins could not be read. `is_moved` tells that something
    else was run when it was pinned, so that those pins do not count.
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
        """What the server says that its version is."""
        said = self.catalog.hello if self.catalog is not None else None
        info = (said or {}).get("serverInfo")
        return (wire.text(wire.member(info, "version")) or "") if info is not None else ""

    @property
    def held(self) -> list[Difference]:
        """What clients do not get."""
        return [each for each in self.differences if each.held]

    @property
    def is_pinned(self) -> bool:
        """Whether the config wants its definitions compared."""
        return self.pinning.policy != "trust"


@dataclass(frozen=True)
class Survey:
    """Servers of a config, compared with its lock file. `asked` are the names of those that were asked for it."""

    config: Config
    file: Path
    lock: PinSet
    servers: tuple[Comparison, ...]
    asked: frozenset[str]


def survey(this: Invocation, names: tuple[str, ...], *, is_live: bool, asks_unchanged: bool = False) -> Survey:
    """Compare these servers, or all of the config. Raises ConfigError, NotFound and DynamicMcpError.

    They are asked if `is_live`. With `asks_unchanged`, so are those that say what is pinned as far as proxies have
    seen: a command or `doctor` may have seen something newer, and has not kept it.
    """
    whole = this.read_groups()
    config, file = select(whole, names), find_lock_file(whole)
    lock, offered = read_lock(file), dict[str, Catalog | DynamicMcpError](known_catalogs(whole))
    servers = () if is_live else tuple(_compare_all(config, lock, offered))
    to_ask = [group.name for group in config.groups] if is_live else []
    if asks_unchanged:
        to_ask += [each.name for each in servers if each.is_pinned and not each.differences]
    if to_ask:
        offered |= _read_live(this, select(config, tuple(to_ask)))
        servers = tuple(_compare_all(config, lock, offered))
    return Survey(config, file, lock, servers, frozenset(to_ask))


def select(config: Config, names: tuple[str, ...]) -> Config:
    """Return the config with only these groups. Raises NotFound."""
    known = {group.name: group for group in config.groups}
    for name in names:
        if name not in known:
            raise unknown_group(name, config)
    return replace(config, groups=tuple(known[name] for name in dict.fromkeys(names))) if names else config


def read_lock(file: Path) -> PinSet:
    """Return what a lock file has; nothing if there is none. Raises DynamicMcpError."""
    try:
        return lock_file.read_lock(file)
    except CorruptFile as exc:
        hint = "restore it, or remove it and run `dynamic-mcp pins approve --all --live`"
        raise DynamicMcpError(f"the lock file `{file}` cannot be read: {exc}", hint=hint) from exc
    except NewerFile as exc:
        raise DynamicMcpError(f"the lock file `{file}` cannot be read: {exc}", hint="update dynamic-mcp") from exc
    except OSError as exc:
        raise DynamicMcpError(f"the lock file `{file}` cannot be read: {os_reason(exc)}") from exc


def update_lock(file: Path, change: Callable[[PinSet], PinSet]) -> None:
    """Change a lock file. Raises DynamicMcpError, also what `change` raises; then nothing has changed."""
    try:
        lock_file.update_lock(file, change)
    except (OSError, StoreError) as exc:
        raise DynamicMcpError(f"the lock file `{file}` cannot be written: {os_reason(exc)}") from exc


def _compare_all(
    config: Config, lock: PinSet, offered: Mapping[str, Catalog | DynamicMcpError]
) -> Iterator[Comparison]:
    catalogs = {name: each for name, each in offered.items() if isinstance(each, Catalog)}
    for group in config.groups:
        foreign = [catalog.tools for name, catalog in catalogs.items() if name != group.name]
        error = offered.get(group.name)
        yield _compare(
            Comparison(
                group.name,
                config.presentations[group.name].pinning,
                lock.servers.get(group.name),
                catalogs.get(group.name),
                error=error if isinstance(error, DynamicMcpError) else None,
            ),
            foreign,
        )


def _compare(known: Comparison, foreign: Sequence[Collection[str]]) -> Comparison:
    """Return what is known of a server with what differs; `foreign` are the tools of each other server."""
    pinned, is_moved = known.pinned, False
    if pinned is not None and pinned.source != known.pinning.source:
        pinned, is_moved = None, True
    if known.catalog is None or not known.is_pinned:
        return dataclasses.replace(known, pinned=pinned, is_moved=is_moved)
    today = datetime.now(UTC).date().isoformat()
    judged = judge(pinned, known.catalog, known.pinning.policy, today=today, foreign=foreign)
    differences, gone = tuple(_differences(judged)), tuple(_gone(pinned, known.catalog))
    found = dataclasses.replace(known, pinned=pinned, is_moved=is_moved, differences=differences, gone=gone)
    missing = known.catalog.complaint({kind.listed_as for kind, _ in gone if kind.listed_as is not None})
    return dataclasses.replace(found, error=UpstreamError(known.name, missing)) if missing else found


def _differences(judged: PinJudgement) -> Iterator[Difference]:
    changes: dict[Key, Change] = {(each.kind, each.name): each for each in judged.changes}
    for key in (*changes, *judged.additions):
        reason, findings = judged.held.get(key), judged.findings.get(key, ())
        if reason is not None:
            yield Difference(key, reason.pin, changes.get(key), reason.text, reason.findings or findings)
        else:
            pin = judged.accepted.get(key) or judged.unpinned[key]
            yield Difference(key, pin, changes.get(key), "", findings)


def _gone(pinned: PinnedServer | None, catalog: Catalog) -> Iterator[Key]:
    """Yield what is pinned and not offered, as far as that is known."""
    if pinned is None:
        return
    for kind in PinKind:
        if kind.listed_as is None:
            offered: set[str] = {""} if catalog.instructions or catalog.title else set()
        elif catalog.knows([kind.listed_as]):
            offered = set(catalog.entries(kind.listed_as))
        else:
            continue
        yield from ((kind, name) for name in pinned.pins(kind) if name not in offered)


def _read_live(this: Invocation, config: Config) -> dict[str, Catalog | DynamicMcpError]:
    """Ask the servers, whatever the local user may see of them; nothing is pinned by that."""
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.own_client import open_own_client
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.proxy.client_group import ViewedGroup

    whole = replace(config, access=None, profiles={})

    async def read(group: object) -> Catalog | DynamicMcpError:
        assert isinstance(group, ViewedGroup)
        try:
            await group.catalog(ListKind)
        except DynamicMcpError as exc:
            return exc
        return group.whole or Catalog()

    async def read_all() -> dict[str, Catalog | DynamicMcpError]:
        names = [group.name for group in config.groups]
        with this.out.progress("asking", names) as progress:
            async with open_own_client(this, whole, uses_cache=False) as client:
                found = await for_each_group(client, progress, read)
                return {group.name: each for group, each in zip(client.groups, found, strict=True)}

    return run(read_all())
