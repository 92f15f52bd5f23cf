"""Find the servers of a tool that our entry replaces, and those that stay enabled beside it."""

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
    """A server that stays enabled beside our entry."""

    name: str
    source: Source
    is_imported: bool
    is_writable: bool


@dataclass(frozen=True)
class Replacement:
    """The names of the servers to disable, by file, and the servers that stay enabled."""

    servers: Mapping[Target, Collection[str]]
    remaining: tuple[RemainingServer, ...]
    is_any_imported: bool


def plan_replacement(
    adapter: Adapter, scopes: Collection[Scope], machine: Machine, *, memory: Memory, names: Collection[str]
) -> Replacement:
    """Find the tool's servers in these scopes that the config has, by its `names`, and the enabled others."""
    imported = {key for key, record in memory.records.items() if key[0] == adapter.name and record.name in names}
    known = {(each.place.scope, each.file): each for each in list_targets(adapter, tuple(Scope), machine)}
    servers: dict[Target, list[str]] = {}
    remaining: list[RemainingServer] = []
    seen: set[Key] = set()
    for reading in _read_once(adapter, machine):
        target = known.get((reading.source.scope, reading.source.file))
        for server in reading.servers:
            key = key_of(server)
            seen.add(key)
            if key in imported and reading.source.scope in scopes and target is not None:
                servers.setdefault(target, []).append(server.name)
            elif _is_on(server):
                remaining.append(RemainingServer(server.name, server.source, key in imported, target is not None))
    for key in sorted(imported - seen):
        target = next((each for (scope, file), each in known.items() if key[1:3] == (scope.value, str(file))), None)
        if target is not None and Scope(key[1]) in scopes:
            servers.setdefault(target, []).append(key[3])
    return Replacement(servers, tuple(remaining), bool(imported))


def _read_once(adapter: Adapter, machine: Machine) -> list[Reading]:
    """Read the tool; in the home directory, a project's file is the user's own and is read once."""
    readings = read_tool(adapter, tuple(Scope), machine)
    users = {each.source.file for each in readings if each.source.scope is Scope.USER}
    return [each for each in readings if each.source.scope is not Scope.PROJECT or each.source.file not in users]


def _is_on(server: ForeignServer) -> bool:
    return server.entry.get("enabled") is not False
