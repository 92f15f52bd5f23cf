"""Read the files of tools into servers of our form. Nothing is run or written; a bad file is one error."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import replace
from pathlib import Path

from dynamic_mcp.errors import NotFound
from dynamic_mcp.importer.adapter import Adapter, Place
from dynamic_mcp.importer.convert.containers import (
    ServerCollection,
    collect,
    collect_inputs,
    is_among,
    is_server_like,
)
from dynamic_mcp.importer.convert.conversion import convert_server
from dynamic_mcp.importer.convert.draft import Context, make_printable
from dynamic_mcp.importer.formats import parser
from dynamic_mcp.importer.formats.detection import detect_adapter
from dynamic_mcp.importer.model import ForeignServer, Machine, Notice, Reading, Scope, Source
from dynamic_mcp.importer.tools import locations, quirks
from dynamic_mcp.importer.tools.catalog import GENERIC, TOOLS
from dynamic_mcp.importer.tools.document import ToolDocument
from dynamic_mcp.importer.tools.switches import find_disabled, find_disabled_here

_BY_SCOPE = (Scope.PROJECT, Scope.LOCAL, Scope.USER)


def list_tools() -> tuple[Adapter, ...]:
    """Return all tools, in order of precedence."""
    return TOOLS


def find_tool(name: str) -> Adapter:
    """Return the tool with this name or alias; `_` equals `-`. Raises NotFound with the closest names."""
    names = {known: adapter for adapter in TOOLS for known in (adapter.name, *adapter.aliases)}
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted in names:
        return names[wanted]
    raise NotFound(
        "tool", make_printable(name), names, hint="`dynamic-mcp import --list` shows what is on this machine"
    )


def list_sources(adapter: Adapter, machine: Machine, scopes: Collection[Scope] = tuple(Scope)) -> list[Source]:
    """Return the files that the tool would read, existing or not; the one that it writes itself comes first."""
    found = locations.list_candidates(adapter, machine, scopes)
    return [Source(adapter.name, place.scope, file) for place, file in found]


def read_tool(adapter: Adapter, scopes: Collection[Scope] | None, machine: Machine) -> list[Reading]:
    """Read the files of a tool: a Reading for each existing file, project before local before user.

    Without scopes, the project's files count if they have a server or cannot be read, else the user's.
    """
    return [reading for _, reading in _read_scopes(adapter, scopes, machine)]


def read_user_settings(adapter: Adapter, machine: Machine) -> list[Reading]:
    """Read the user's settings of one tool, and tell how many servers its files of this directory have besides."""
    readings = read_tool(adapter, (Scope.USER,), machine)
    users = {reading.source.file for reading in readings}  # this directory may be the home directory itself
    others = [
        *_count_unrequested(adapter, Scope.LOCAL, machine),
        *_count_unrequested(adapter, Scope.PROJECT, machine, users),
    ]
    return [*readings, *(each for place, each in others if not place.borrowed)]


def read_all(machine: Machine, scopes: Collection[Scope] | None = None) -> list[Reading]:
    """Read the files of all tools; a shared file belongs to the first tool that finds something in it."""
    read = [each for adapter in TOOLS for each in _read_scopes(adapter, scopes, machine)]
    owners: dict[Path, str] = {}
    for _, reading in sorted(read, key=lambda each: each[0].borrowed):
        if reading.servers or reading.error or reading.omitted_count:
            owners.setdefault(reading.source.file, reading.source.tool)
    return [each for _, each in read if owners.get(each.source.file, each.source.tool) == each.source.tool]


def read_file(file: Path, machine: Machine, adapter: Adapter | None = None) -> Reading:
    """Read a file in the format and shape that are detected, or in those of `adapter`."""
    scope = Scope.PROJECT if file.absolute().is_relative_to(machine.project) else Scope.USER
    source = Source("file", scope, file)
    try:
        document = parser.load(file)
    except parser.UnreadableError as exc:
        return Reading(source, error=str(exc))
    if adapter is None and is_server_like(document.value):
        document = replace(document, value={file.stem: document.value})
    known = adapter or detect_adapter(file, document.value, TOOLS, GENERIC)
    return _read_document(document, known, None, source, machine)


def _read_scopes(adapter: Adapter, scopes: Collection[Scope] | None, machine: Machine) -> list[tuple[Place, Reading]]:
    if scopes is not None:
        return [each for scope in _BY_SCOPE if scope in scopes for each in _read_scope(adapter, scope, machine)]
    found = _read_scope(adapter, Scope.PROJECT, machine)
    own = [(place, each) for place, each in found if not place.borrowed and (each.servers or not place.ambiguous)]
    if not any(each.servers or each.error for _, each in own):
        users = [*_read_scope(adapter, Scope.USER, machine), *_count_unrequested(adapter, Scope.LOCAL, machine)]
        return [*(each for each in own if each[1].notices), *users]
    known = {reading.source.file for _, reading in found}  # a project may be the home directory itself
    left_out = (_count_unrequested(adapter, scope, machine, known) for scope in (Scope.LOCAL, Scope.USER))
    return [*found, *(each for some in left_out for each in some)]


def _read_scope(adapter: Adapter, scope: Scope, machine: Machine) -> list[tuple[Place, Reading]]:
    """Read the files of one scope; a legacy file beside a newer one only gives a notice."""
    files = locations.find_files(adapter, machine, (scope,))
    newer = next((file for place, file in files if not place.legacy and not place.borrowed), None)
    readings: list[tuple[Place, Reading]] = []
    for place, file in files:
        source = Source(adapter.name, scope, file)
        if place.legacy and newer is not None:
            readings.append((place, _make_superseded(source, newer)))
        else:
            reading = _read_place(adapter, place, source, machine)
            readings.append((place, replace(reading, is_borrowed=place.borrowed)))
    return readings


def _make_superseded(source: Source, newer: Path) -> Reading:
    reason = f"`{source.file}` is not read because there is the newer `{newer}`; `--file` reads it anyway"
    return Reading(source, notices=(Notice(f"{source.tool}/{source.scope.value}", make_printable(reason, 600)),))


def _count_unrequested(
    adapter: Adapter, scope: Scope, machine: Machine, known: Container[Path] = ()
) -> Iterator[tuple[Place, Reading]]:
    """Yield readings that tell how many servers of a scope are left out, except in `known` files."""
    of_scope = _read_scope(adapter, scope, machine)
    found = [(place, each) for place, each in of_scope if each.servers and each.source.file not in known]
    count = sum(len(reading.servers) for _, reading in found)
    servers = f"{count} servers are left out" if count > 1 else "1 server is left out"
    reason = f"{servers}: `dynamic-mcp import {adapter.name} --scope all` imports every scope"
    notices = (Notice(f"{adapter.name}/{scope.value}", reason),)
    for place, reading in found:
        yield place, Reading(reading.source, notices=notices, omitted_count=len(reading.servers))


def _read_place(adapter: Adapter, place: Place, source: Source, machine: Machine) -> Reading:
    try:
        document = parser.load(source.file)
    except parser.UnreadableError as exc:
        return Reading(source, error=str(exc))
    return _read_document(document, adapter, place, source, machine)


def _read_document(
    document: parser.ParsedFile, adapter: Adapter, place: Place | None, source: Source, machine: Machine
) -> Reading:
    if not isinstance(document.value, dict):
        return Reading(source, error="has no settings: it is not an object")
    adapter = _adapt_to_place(adapter, place)
    normalized = quirks.normalize(adapter, document.value, source, machine)
    collected = collect(normalized.settings, adapter, place, find_disabled(adapter, machine, source.scope))
    context = Context(adapter, source, machine, collect_inputs(normalized.settings, adapter))
    remarks = [*_relevant_remarks(document, adapter), *normalized.remarks, *collected.remarks]
    notices = [context.make_notice(where, "", reason) for where, reason in remarks]
    if source.scope is Scope.USER:
        _note_disabled_here(normalized, collected, adapter, machine)
    servers: dict[str, ForeignServer] = {}
    for raw in collected.servers.values():
        result = convert_server(
            replace(raw, remarks=(*raw.remarks, *normalized.remarks_on(raw.name))), context, servers
        )
        if isinstance(result, ForeignServer):
            servers[result.name] = replace(result, is_refused=raw.name in normalized.refused_servers)
        else:
            notices.extend(result)
    return Reading(source, tuple(servers.values()), tuple(notices))


def _note_disabled_here(
    normalized: ToolDocument, collected: ServerCollection, adapter: Adapter, machine: Machine
) -> None:
    off = find_disabled_here(adapter, machine)
    for name, raw in collected.servers.items() if off else ():
        if is_among(name, off, adapter) and not raw.is_off:
            normalized.add_remark(name, "", f"is disabled for this project in {adapter.title}; it stays enabled here")


def _adapt_to_place(adapter: Adapter, place: Place | None) -> Adapter:
    """Return the tool with the settings of this place."""
    if place is not None and place.variables is not None:
        adapter = replace(adapter, variables=place.variables)
    if place is not None and place.inherits is not None:
        adapter = replace(adapter, inherits=place.inherits)
    return adapter


def _relevant_remarks(document: parser.ParsedFile, adapter: Adapter) -> Iterator[tuple[str, str]]:
    """Yield the remarks on a document that concern servers, and not other settings of the tool."""
    roots = {"mcp"} | {
        path.removeprefix("$.").strip("'").partition(".")[0] for path in (*adapter.servers, *adapter.fallback)
    }
    for where, reason in document.remarks:
        if adapter.is_bare or where.startswith(tuple(roots)):
            yield where, reason
