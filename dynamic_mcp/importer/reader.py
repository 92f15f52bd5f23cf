"""Reads the files of tools into servers of our form. Never runs or writes anything; a bad file is one error."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from dynamic_mcp.errors import NotFound
from dynamic_mcp.importer.adapter import Adapter, FileLocation, SwitchFile, find_values
from dynamic_mcp.importer.convert.conversion import RawServer, convert_server
from dynamic_mcp.importer.convert.draft import Context, describe_kind, make_printable
from dynamic_mcp.importer.convert.variables import PromptedInput
from dynamic_mcp.importer.formats import parser
from dynamic_mcp.importer.model import ForeignServer, Machine, Notice, Reading, SettingsSource, ToolScope
from dynamic_mcp.importer.tools import locations, quirks
from dynamic_mcp.importer.tools.catalog import GENERIC, TOOLS
from dynamic_mcp.importer.tools.document import ToolDocument

_BY_SCOPE = (ToolScope.PROJECT, ToolScope.LOCAL, ToolScope.USER)
_CONTENT_SIGNS = (
    ("$.powers.mcpServers", "kiro"),
    ("$.context_servers", "zed"),
    ("$.'amp.mcpServers'", "amp"),
    ("$.'zencoder.mcpServers'", "zencoder"),
    ("$.extensions", "goose"),
    ("$.servers", "vscode"),
    ("$.mcp.servers", "vscode"),
    ("$.'mcp.servers'", "vscode"),
)
_SERVER_FIELDS = frozenset(
    ("command", "cmd", "executable", "url", "serverUrl", "httpUrl", "uri", "baseUrl", "base_url", "server_url", "tcp")
)
_HINTS = frozenset(("args", "env", "headers"))
_SERVER_TYPES = frozenset(("local", "remote", "stdio", "http", "sse", "streamable-http", "streamableHttp"))


def find_tool(name: str) -> Adapter:
    """Return the tool with this name or alias; `_` equals `-`. Raises NotFound with the closest names."""
    names = {alias: adapter for adapter in TOOLS for alias in (adapter.name, *adapter.aliases)}
    normalized_name = name.strip().lower().replace("_", "-").replace(" ", "-")
    if normalized_name in names:
        return names[normalized_name]
    raise NotFound(
        "tool", make_printable(name), names, hint="`dynamic-mcp import --list` shows what is on this machine"
    )


def list_sources(
    adapter: Adapter, machine: Machine, scopes: Collection[ToolScope] = tuple(ToolScope)
) -> list[SettingsSource]:
    """Return the files that the tool would read, existing or not; the one that it writes itself is first."""
    found = locations.list_candidates(adapter, machine, scopes)
    return [SettingsSource(adapter.name, adapter.title, place.scope, file) for place, file in found]


def read_tool(adapter: Adapter, scopes: Collection[ToolScope] | None, machine: Machine) -> list[Reading]:
    """Read the files of a tool: a Reading for each existing file, project before local before user.

    Without scopes, the project's files count if they have a server or cannot be read, else the user's.
    """
    return [reading for _, reading in _read_scopes(adapter, scopes, machine)]


def read_user_settings(adapter: Adapter, machine: Machine) -> list[Reading]:
    """Read the user's files of one tool, with the parts for this directory, and count the servers of its other files.

    Files in this directory may come from other people.
    """
    readings = read_tool(adapter, (ToolScope.USER,), machine)
    users = {reading.source.file for reading in readings}  # this directory may be the home directory itself
    parts = [each for each in read_tool(adapter, (ToolScope.LOCAL,), machine) if each.source.file in users]
    others = [
        *_count_unrequested(adapter, ToolScope.LOCAL, machine, users),
        *_count_unrequested(adapter, ToolScope.PROJECT, machine, users),
    ]
    return [*readings, *parts, *(each for place, each in others if not place.borrowed)]


def read_all(machine: Machine, scopes: Collection[ToolScope] | None = None) -> list[Reading]:
    """Read the files of all tools; a shared file belongs to the first tool that recognizes something in it."""
    read = [each for adapter in TOOLS for each in _read_scopes(adapter, scopes, machine)]
    owners: dict[Path, str] = {}
    for _, reading in sorted(read, key=lambda each: each[0].borrowed):
        if reading.servers or reading.error or reading.omitted_count:
            owners.setdefault(reading.source.file, reading.source.tool)
    return [each for _, each in read if owners.get(each.source.file, each.source.tool) == each.source.tool]


def read_file(file: Path, machine: Machine, adapter: Adapter | None = None) -> Reading:
    """Read a file in the detected format and shape, or in those of `adapter`."""
    scope = ToolScope.PROJECT if file.absolute().is_relative_to(machine.project) else ToolScope.USER
    source = SettingsSource("file", adapter.title if adapter else "its tool", scope, file)
    try:
        document = parser.load(file)
    except parser.UnreadableError as exc:
        return Reading(source, error=str(exc))
    if adapter is None and _is_server_like(document.value):
        document = replace(document, value={file.stem: document.value})
    tool = adapter or _detect_adapter(file, document.value)
    return _read_document(document, tool, None, source, machine)


def _read_scopes(
    adapter: Adapter, scopes: Collection[ToolScope] | None, machine: Machine
) -> list[tuple[FileLocation, Reading]]:
    if scopes is not None:
        return [each for scope in _BY_SCOPE if scope in scopes for each in _read_scope(adapter, scope, machine)]
    found = _read_scope(adapter, ToolScope.PROJECT, machine)
    candidates = [
        (place, each) for place, each in found if not place.borrowed and (each.servers or not place.ambiguous)
    ]
    if not any(each.servers or each.error for _, each in candidates):
        users = [
            *_read_scope(adapter, ToolScope.USER, machine),
            *_count_unrequested(adapter, ToolScope.LOCAL, machine),
        ]
        return [*(each for each in candidates if each[1].notices), *users]
    read_files = {reading.source.file for _, reading in found}  # a project may be the home directory itself
    left_out = (
        _count_unrequested(adapter, scope, machine, read_files) for scope in (ToolScope.LOCAL, ToolScope.USER)
    )
    return [*found, *(each for some in left_out for each in some)]


def _read_scope(adapter: Adapter, scope: ToolScope, machine: Machine) -> list[tuple[FileLocation, Reading]]:
    """Read the files of one scope; a legacy file beside a newer one only gives a notice."""
    files = locations.find_files(adapter, machine, (scope,))
    newer = next((file for place, file in files if not place.legacy and not place.borrowed), None)
    readings: list[tuple[FileLocation, Reading]] = []
    for place, file in files:
        source = SettingsSource(adapter.name, adapter.title, scope, file)
        if place.legacy and newer is not None:
            readings.append((place, _make_superseded(source, newer)))
        else:
            reading = _read_place(adapter, place, source, machine)
            readings.append((place, replace(reading, is_borrowed=place.borrowed)))
    return readings


def _make_superseded(source: SettingsSource, newer: Path) -> Reading:
    reason = f"`{source.file}` is not read because there is the newer `{newer}`; `--file` reads it anyway"
    return Reading(source, notices=(Notice(f"{source.tool}/{source.scope.value}", make_printable(reason, 600)),))


def _count_unrequested(
    adapter: Adapter, scope: ToolScope, machine: Machine, counted: Container[Path] = ()
) -> Iterator[tuple[FileLocation, Reading]]:
    """Yield readings with the number of a scope's omitted servers, except in `counted` files."""
    of_scope = _read_scope(adapter, scope, machine)
    found = [(place, each) for place, each in of_scope if each.servers and each.source.file not in counted]
    count = sum(len(reading.servers) for _, reading in found)
    servers = f"{count} servers are left out" if count > 1 else "1 server is left out"
    reason = f"{servers}: `dynamic-mcp import {adapter.name} --scope all` imports every scope"
    notices = (Notice(f"{adapter.name}/{scope.value}", reason),)
    for place, reading in found:
        yield place, Reading(reading.source, notices=notices, omitted_count=len(reading.servers))


def _read_place(adapter: Adapter, place: FileLocation, source: SettingsSource, machine: Machine) -> Reading:
    try:
        document = parser.load(source.file)
    except parser.UnreadableError as exc:
        return Reading(source, error=str(exc))
    return _read_document(document, adapter, place, source, machine)


def _read_document(
    document: parser.ParsedFile,
    adapter: Adapter,
    place: FileLocation | None,
    source: SettingsSource,
    machine: Machine,
) -> Reading:
    if not isinstance(document.value, dict):
        return Reading(source, error="has no settings: it is not an object")
    adapter = _adapt_to_place(adapter, place)
    normalized = quirks.normalize(adapter, document.value, source, machine)
    collected = _collect(normalized.settings, adapter, place, _find_disabled(adapter, machine, source.scope))
    context = Context(adapter, source, machine, _collect_inputs(normalized.settings, adapter))
    remarks = [*_relevant_remarks(document, adapter), *normalized.remarks, *collected.remarks]
    notices = [context.make_notice(where, "", reason) for where, reason in remarks]
    if source.scope is ToolScope.USER:
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
    normalized: ToolDocument, collected: _ServerCollection, adapter: Adapter, machine: Machine
) -> None:
    off = _find_disabled_here(adapter, machine)
    for name, raw in collected.servers.items() if off else ():
        if _is_among(name, off, adapter) and not raw.is_off:
            normalized.add_remark(name, "", f"is disabled for this project in {adapter.title}; it stays enabled here")


def _adapt_to_place(adapter: Adapter, place: FileLocation | None) -> Adapter:
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


def _detect_adapter(file: Path, document: object) -> Adapter:
    """Return the tool whose format the file most likely has."""
    if named := _detect_by_location(file):
        return named
    name = _detect_by_content(file, document)
    by_name = {adapter.name: adapter for adapter in TOOLS}
    # the content shows where the servers are, but not reliably which variable syntax applies
    detected = by_name.get(name)
    if detected is None:
        return GENERIC
    syntax = dict.fromkeys((*GENERIC.variables, *detected.variables)) if detected.variables else ()
    return replace(detected, variables=tuple(syntax), is_bare=True, inherits=None)


def _detect_by_content(file: Path, document: object) -> str:
    for path, name in _CONTENT_SIGNS:
        if any(isinstance(value, dict) for value in find_values(document, path)):
            return name
    if any(find_values(document, f"$.mcp.{name}") for name in ("sse_servers", "shttp_servers", "stdio_servers")):
        return "openhands"
    suffix = file.suffix.lower()
    if suffix == ".toml" and find_values(document, "$.mcp_servers"):
        return "codex" if isinstance(find_values(document, "$.mcp_servers")[0], dict) else "mistral-vibe"
    if suffix in (".yaml", ".yml") and find_values(document, "$.mcp_servers"):
        return "hermes"
    if suffix in (".yaml", ".yml") and any(
        isinstance(value, list) for value in find_values(document, "$.mcpServers")
    ):
        return "continue"
    if file.name.endswith("crushrc"):
        return "crush"
    if any(
        _is_opencode(server)
        for value in find_values(document, "$.mcp")
        if isinstance(value, dict)
        for server in value.values()
    ):
        return "opencode"
    if any(isinstance(server, dict) and "httpUrl" in server for server in find_values(document, "$.mcpServers.*")):
        return "gemini"
    if any(_is_export(servers) for servers in find_values(document, "$.mcpServers")):
        return "cherry-studio"
    return ""


def _is_export(servers: object) -> bool:
    """Return whether the keys are random and the names are in the servers."""
    values = list(servers.values()) if isinstance(servers, dict) else []
    return bool(values) and all(
        isinstance(each, dict) and "name" in each and "isActive" in each and "key" not in each for each in values
    )


def _is_opencode(server: object) -> bool:
    return isinstance(server, dict) and (
        isinstance(server.get("command"), list) or server.get("type") in ("local", "remote")
    )


def _detect_by_location(file: Path) -> Adapter | None:
    """Return the only tool that has a file of this name in a directory of this name."""
    ending = "/".join(file.absolute().parts[-2:]).lower()
    found = {
        adapter.name: adapter
        for adapter in TOOLS
        if any(_has_ending(place.path, ending) for place in adapter.places if not place.borrowed)
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _has_ending(template: str, ending: str) -> bool:
    parts = re.sub(r"\{[^}]*\|([^}]*)\}", r"\1", template).lower().split("/")
    return len(parts) > 2 and "*" not in template and "/".join(parts[-2:]) == ending


def _find_disabled(adapter: Adapter, machine: Machine, scope: ToolScope) -> tuple[str, ...]:
    """Return the names, or globs, of this scope's servers that the tool's other files disable."""
    files = (each for each in adapter.off_elsewhere if scope is not ToolScope.USER or not _is_project_file(each))
    return tuple(name for each in files for name in _read_names(each, machine))


def _find_disabled_here(adapter: Adapter, machine: Machine) -> tuple[str, ...]:
    """Return the names, or globs, of the servers that a project's file disables."""
    return tuple(
        name for each in adapter.off_elsewhere if _is_project_file(each) for name in _read_names(each, machine)
    )


def _is_project_file(switches: SwitchFile) -> bool:
    return switches.path.startswith("./")


def _read_names(switches: SwitchFile, machine: Machine) -> Iterator[str]:
    file = locations.resolve_path(switches.path, machine)
    if file is None:
        return
    try:
        document = parser.load(file).value
    except parser.UnreadableError:  # only additional settings: the file with the servers reports its own errors
        return
    for path in switches.names:
        yield from (name for name in find_values(document, path) if isinstance(name, str))
    for path in switches.flags:
        for flags in find_values(document, path):
            for name, flag in flags.items() if isinstance(flags, dict) else ():
                if isinstance(flag, dict) and flag.get(switches.key) is False:
                    yield name


@dataclass
class _ServerCollection:
    """The servers of a document and the remarks about it."""

    servers: dict[str, RawServer] = field(default_factory=dict)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    has_container: bool = False


def _collect(
    document: Mapping[str, object], adapter: Adapter, place: FileLocation | None, off: Sequence[str]
) -> _ServerCollection:
    """Collect the servers from the tool's usual place, else from those of other tools.

    `off` are names, or globs, of the servers that another file disables.
    """
    collected = _ServerCollection()
    for path in place.servers if place and place.servers else adapter.servers:
        for value in find_values(document, path):
            _add_servers(collected, value, path, adapter)
    if not collected.has_container:
        _look_elsewhere(collected, document, adapter)
    _switch_off(collected, document, adapter, off)
    return collected


def _collect_inputs(document: object, adapter: Adapter) -> dict[str, PromptedInput]:
    """Return the inputs that the tool prompts its user for, by id."""
    found: dict[str, PromptedInput] = {}
    for path in adapter.inputs:
        for value in find_values(document, path):
            for each in value if isinstance(value, list) else ():
                if isinstance(each, dict) and isinstance(each.get("id"), str):
                    found[each["id"]] = _parse_input(each)
    return found


def _is_server_like(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return bool(value.keys() & _SERVER_FIELDS) or value.get("type") in _SERVER_TYPES


def _is_among(name: str, listed: Iterable[str], adapter: Adapter) -> bool:
    """Return whether a list of names or globs contains this name, as the tool compares them."""
    if adapter.is_off_in_any_case:
        return any(fnmatchcase(name.strip().casefold(), each.strip().casefold()) for each in listed)
    return any(fnmatchcase(name, each) for each in listed)


def _parse_input(each: Mapping[str, object]) -> PromptedInput:
    default = each.get("default")
    if isinstance(default, bool):
        default = str(default).lower()
    text = str(default) if isinstance(default, (str, int, float)) and str(default) else None
    return PromptedInput(str(each["id"]), is_secret=each.get("password") is True, default=text)


def _look_elsewhere(collected: _ServerCollection, document: Mapping[str, object], adapter: Adapter) -> None:
    for path in adapter.fallback:
        for value in find_values(document, path):
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            if any(_is_server_like(each) or (isinstance(each, dict) and each.keys() & _HINTS) for each in items):
                _add_servers(collected, value, path, adapter)
        if collected.has_container:
            return
    if adapter.is_bare and document:
        members = {name: value for name, value in document.items() if name != "$schema"}
        if members and all(map(_is_server_like, members.values())):
            _add_servers(collected, members, "$", adapter)


def _add_servers(collected: _ServerCollection, value: object, path: str, adapter: Adapter) -> None:
    where = path.removeprefix("$").lstrip(".").replace("'", "")
    if value is None:
        return
    if not isinstance(value, (dict, list)):
        collected.remarks.append((where, f"is {describe_kind(value)} and holds no servers"))
        return
    collected.has_container = True
    for name, server in _iter_items(value, adapter):
        if name in collected.servers:
            if collected.servers[name].value != server:
                collected.remarks.append((name, f"is defined twice; the one in `{where}` is ignored"))
            continue
        collected.servers[name] = RawServer(name, server)


def _iter_items(value: dict[str, object] | list[object], adapter: Adapter) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((name, server) for name, server in value.items() if name != "$schema")
        return
    names: set[str] = set()
    for i, server in enumerate(value):
        keys = (adapter.named_by, "name", "id", "key")
        named = next((server[key] for key in keys if key in server), None) if isinstance(server, dict) else None
        name = named if isinstance(named, str) and named else f"server-{i + 1}"
        while name in names:
            name = f"{name}-{i + 1}"
        names.add(name)
        yield name, server


def _switch_off(
    collected: _ServerCollection, document: Mapping[str, object], adapter: Adapter, elsewhere: Sequence[str]
) -> None:
    listed = [name for path in adapter.off for name in find_values(document, path) if isinstance(name, str)]
    off = [name for name in collected.servers if _is_among(name, (*listed, *elsewhere), adapter)]
    for name in off:
        collected.servers[name] = replace(collected.servers[name], is_off=True)
    allowed = [name for path in adapter.allowed for name in find_values(document, path) if isinstance(name, str)]
    for name, raw in collected.servers.items() if allowed else ():
        if not _is_among(name, allowed, adapter) and name not in off:
            remark = ("", "is not in the tool's list of allowed servers, so the tool does not start it")
            collected.servers[name] = replace(raw, remarks=(*raw.remarks, remark))
