"""Compares what servers offer with the pins in a lock file. Reads and writes that file with errors for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.resolved import Pinning
from dynamic_mcp.errors import DynamicMcpError, UpstreamError
from dynamic_mcp.features.pins import lock_file
from dynamic_mcp.features.pins.definition import Key, PinKind, definitions
from dynamic_mcp.features.pins.judgement import Difference, judge
from dynamic_mcp.features.pins.lock_file import PinnedServer, PinSet, pins_of_source
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


def compare_all(
    pinnings: Mapping[str, Pinning], lock: PinSet, offered: Mapping[str, Catalog | DynamicMcpError]
) -> Iterator[ServerComparison]:
    """Compare the pins of servers with what they offer, or why that is not known, by their names."""
    for name, pinning in pinnings.items():
        stored = lock.servers.get(name)
        pinned, answer = pins_of_source(stored, pinning.source), offered.get(name)
        catalog = answer if isinstance(answer, Catalog) else None
        error = answer if isinstance(answer, DynamicMcpError) else None
        differences: tuple[Difference, ...] = ()
        gone: tuple[Key, ...] = ()
        if catalog is not None and pinning.policy != "trust":
            differences, gone = judge(pinned, catalog, pinning.policy).differences, tuple(_gone(pinned, catalog))
            missing = catalog.complaint({kind.listed_as for kind, _ in gone if kind.listed_as is not None})
            error = UpstreamError(name, missing) if missing else None
        is_moved = stored is not None and pinned is None
        yield ServerComparison(name, pinning, pinned, catalog, is_moved, error, differences, gone)


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
