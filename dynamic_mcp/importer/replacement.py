"""Which servers of a tool our entry takes the place of, and which stay on beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert.memory import Key, Memory, key_of
from dynamic_mcp.importer.installer import Target, list_targets
from dynamic_mcp.importer.model import ForeignServer, Machine, Reading, Scope, Source
from dynamic_mcp.importer.reader import read_tool


@dataclass(frozen=True)
class RemainingServer:
    """A server that goes on beside our entry: it was imported or not, and its file can be written or not."""

    name: str
    source: Source
    is_imported: bool
    is_writable: bool


@dataclass(frozen=True)
class Replacement:
    """The names of the servers to switch off, by file, and those that stay on."""

    servers: Mapping[Target, Collection[str]]
    remaining: tuple[RemainingServer, ...]
    is_any_imported: bool


def plan_replacement(
    adapter: Adapter, scopes: Collection[Scope], machine: Machine, *, memory: Memory, names: Collection[str]
) -> Replacement:
    """Find the tool's servers of these scopes that are in the config, by its `names`, and the others that are on."""
    imported = {key for key, record in memory.records.items() if key[0] == adapter.name and record.name in names}
    known = {(each.place.scope, each.file): each for each in list_targets(adapter, tuple(Scope), machine)}
    servers: dict[Target, list[str]] = {}
    remaining: list[RemainingServer] = []
    seen: set[Key] = set()
    for reading in _read_once(adapter, machine):
        there = known.get((reading.source.scope, reading.source.file))
        for found in reading.servers:
            key = key_of(found)
            seen.add(key)
            if key in imported and reading.source.scope in scopes and there is not None:
                servers.setdefault(there, []).append(found.name)
            elif _is_on(found):
                remaining.append(RemainingServer(found.name, found.source, key in imported, there is not None))
    for key in sorted(imported - seen):
        there = next((each for (scope, file), each in known.items() if key[1:3] == (scope.value, str(file))), None)
        if there is not None and Scope(key[1]) in scopes:
            servers.setdefault(there, []).append(key[3])
    return Replacement(servers, tuple(remaining), bool(imported))


def _read_once(adapter: Adapter, machine: Machine) -> list[Reading]:
    """Return what the tool reads; in the home directory a project's file is the user's own."""
    readings = read_tool(adapter, tuple(Scope), machine)
    users = {each.source.file for each in readings if each.source.scope is Scope.USER}
    return [each for each in readings if each.source.scope is not Scope.PROJECT or each.source.file not in users]


def _is_on(found: ForeignServer) -> bool:
    return found.entry.get("enabled") is not False
