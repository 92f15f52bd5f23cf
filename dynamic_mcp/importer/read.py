"""From the files of tools to servers in our own form. Nothing is run or written; one bad file is one error."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import replace
from pathlib import Path

from dynamic_mcp.errors import NotFound
from dynamic_mcp.importer import formats, locations, quirks
from dynamic_mcp.importer.adapter import Adapter, Place
from dynamic_mcp.importer.brought import Brought
from dynamic_mcp.importer.containers import Collected, collect, inputs, looks_like_server
from dynamic_mcp.importer.convert import convert
from dynamic_mcp.importer.draft import Context, shown
from dynamic_mcp.importer.found import Found, Machine, Notice, Reading, Scope, Source
from dynamic_mcp.importer.known import GENERIC, TOOLS
from dynamic_mcp.importer.sniff import adapter_for
from dynamic_mcp.importer.switches import is_among, switched_off, switched_off_here

_BY_SCOPE = (Scope.PROJECT, Scope.LOCAL, Scope.USER)


def tools() -> tuple[Adapter, ...]:
    """All tools, in the order in which their servers count."""
    return TOOLS


def tool_named(name: str) -> Adapter:
    """The tool with this name or alias; `_` is as good as `-`. Raises NotFound with the closest names."""
    names = {known: adapter for adapter in TOOLS for known in (adapter.name, *adapter.aliases)}
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted in names:
        return names[wanted]
    raise NotFound("tool", shown(name), names, hint="`dynamic-mcp import --list` shows what is on this machine")


def sources(adapter: Adapter, machine: Machine, scopes: Collection[Scope] = tuple(Scope)) -> list[Source]:
    """The files that the tool would read, whether they are there or not, the one that it writes itself first."""
    found = locations.candidates(adapter, machine, scopes)
    return [Source(adapter.name, place.scope, file) for place, file in found]


def read_tool(adapter: Adapter, scopes: Collection[Scope] | None, machine: Machine) -> list[Reading]:
    """What the files of a tool hold, a Reading for each file that is there, project before local before user.

    Without scopes, the project's files count where they have a server or cannot be read, else the user's.
    """
    return [reading for _, reading in _readings(adapter, scopes, machine)]


def read_all(machine: Machine, scopes: Collection[Scope] | None = None) -> list[Reading]:
    """What the files of all tools hold; one that several tools read is the first's that finds something in it."""
    read = [each for adapter in TOOLS for each in _readings(adapter, scopes, machine)]
    owners: dict[Path, str] = {}
    for _, reading in sorted(read, key=lambda each: each[0].borrowed):
        if reading.servers or reading.error or reading.left_out:
            owners.setdefault(reading.source.file, reading.source.tool)
    return [each for _, each in read if owners.get(each.source.file, each.source.tool) == each.source.tool]


def read_file(file: Path, machine: Machine, adapter: Adapter | None = None) -> Reading:
    """What a file holds, in the format and shape that it turns out to have, or in that of `adapter`."""
    scope = Scope.PROJECT if file.absolute().is_relative_to(machine.project) else Scope.USER
    source = Source("file", scope, file)
    try:
        document = formats.load(file)
    except formats.UnreadableError as exc:
        return Reading(source, error=str(exc))
    if adapter is None and looks_like_server(document.value):
        document = replace(document, value={file.stem: document.value})
    known = adapter or adapter_for(file, document.value, TOOLS, GENERIC)
    return _read(document, known, None, source, machine)


def _readings(adapter: Adapter, scopes: Collection[Scope] | None, machine: Machine) -> list[tuple[Place, Reading]]:
    if scopes is not None:
        return [each for scope in _BY_SCOPE if scope in scopes for each in _of_scope(adapter, scope, machine)]
    found = _of_scope(adapter, Scope.PROJECT, machine)
    own = [(place, each) for place, each in found if not place.borrowed]
    if not any(each.servers or each.error for _, each in own):
        users = [*_of_scope(adapter, Scope.USER, machine), *_not_asked_for(adapter, Scope.LOCAL, machine)]
        return [*(each for each in own if each[1].notices), *users]
    known = {reading.source.file for _, reading in found}  # a project may be the home directory itself
    left_out = (_not_asked_for(adapter, scope, machine, known) for scope in (Scope.LOCAL, Scope.USER))
    return [*found, *(each for some in left_out for each in some)]


def _of_scope(adapter: Adapter, scope: Scope, machine: Machine) -> list[tuple[Place, Reading]]:
    """What the files of one scope hold; of an old file beside a new one only that it is there."""
    files = locations.files(adapter, machine, (scope,))
    newer = next((file for place, file in files if not place.legacy and not place.borrowed), None)
    readings: list[tuple[Place, Reading]] = []
    for place, file in files:
        source = Source(adapter.name, scope, file)
        if place.legacy and newer is not None:
            readings.append((place, _superseded(source, newer)))
        else:
            reading = _reading(adapter, place, source, machine)
            readings.append((place, replace(reading, is_borrowed=place.borrowed)))
    return readings


def _superseded(source: Source, newer: Path) -> Reading:
    reason = f"`{source.file}` is not read, since there is the newer `{newer}`; `--file` reads it all the same"
    return Reading(source, notices=(Notice(f"{source.tool}/{source.scope.value}", shown(reason, 600)),))


def _not_asked_for(
    adapter: Adapter, scope: Scope, machine: Machine, known: Container[Path] = ()
) -> Iterator[tuple[Place, Reading]]:
    """Say how many servers of a scope are left out, and how to have them; not of files that are read anyway."""
    of_scope = _of_scope(adapter, scope, machine)
    found = [(place, each) for place, each in of_scope if each.servers and each.source.file not in known]
    count = sum(len(reading.servers) for _, reading in found)
    servers = f"{count} servers are left out" if count > 1 else "1 server is left out"
    reason = f"{servers}: `dynamic-mcp import {adapter.name} --scope all` takes every scope"
    notices = (Notice(f"{adapter.name}/{scope.value}", reason),)
    for place, reading in found:
        yield place, Reading(reading.source, notices=notices, left_out=len(reading.servers))


def _reading(adapter: Adapter, place: Place, source: Source, machine: Machine) -> Reading:
    try:
        document = formats.load(source.file)
    except formats.UnreadableError as exc:
        return Reading(source, error=str(exc))
    return _read(document, adapter, place, source, machine)


def _read(
    document: formats.Document, adapter: Adapter, place: Place | None, source: Source, machine: Machine
) -> Reading:
    if not isinstance(document.value, dict):
        return Reading(source, error="holds no settings: it is not an object")
    adapter = _at_place(adapter, place)
    brought = quirks.bring(adapter, document.value, source, machine)
    collected = collect(brought.document, adapter, place, switched_off(adapter, machine, source.scope))
    context = Context(adapter, source, machine, inputs(brought.document, adapter))
    remarks = [*_doubled(document, adapter), *brought.remarks, *collected.remarks]
    notices = [context.notice(where, "", reason) for where, reason in remarks]
    if source.scope is Scope.USER:
        _note_switched_off_here(brought, collected, adapter, machine)
    servers: dict[str, Found] = {}
    for raw in collected.servers.values():
        result = convert(replace(raw, remarks=(*raw.remarks, *brought.about(raw.name))), context, servers)
        if isinstance(result, Found):
            servers[result.name] = replace(result, is_refused=raw.name in brought.refused)
        else:
            notices.extend(result)
    return Reading(source, tuple(servers.values()), tuple(notices))


def _note_switched_off_here(brought: Brought, collected: Collected, adapter: Adapter, machine: Machine) -> None:
    off = switched_off_here(adapter, machine)
    for name, raw in collected.servers.items() if off else ():
        if is_among(name, off, adapter) and not raw.is_off:
            brought.say(name, "", f"is switched off for this project in {adapter.title}; it stays on")


def _at_place(adapter: Adapter, place: Place | None) -> Adapter:
    """The tool as it reads the file at this place."""
    if place is not None and place.variables is not None:
        adapter = replace(adapter, variables=place.variables)
    if place is not None and place.inherits is not None:
        adapter = replace(adapter, inherits=place.inherits)
    return adapter


def _doubled(document: formats.Document, adapter: Adapter) -> Iterator[tuple[str, str]]:
    """The remarks on a document that are about servers: the rest of a tool's settings is none of our business."""
    roots = {"mcp"} | {
        path.removeprefix("$.").strip("'").partition(".")[0] for path in (*adapter.servers, *adapter.fallback)
    }
    for where, reason in document.remarks:
        if adapter.is_bare or where.startswith(tuple(roots)):
            yield where, reason
