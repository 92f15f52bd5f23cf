"""Plans an import from the files that were read; the caller then writes the plan at once."""

from __future__ import annotations

import os
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from json import JSONDecodeError
from pathlib import Path
from typing import Literal

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert.matching import INHERIT_ENV, Matcher
from dynamic_mcp.importer.convert.merge import (
    Merge,
    MergeChoice,
    describe_wider,
    with_environment,
)
from dynamic_mcp.importer.convert.plan import Action, ImportItem, OutputConfig, Plan
from dynamic_mcp.importer.convert.program import is_relative
from dynamic_mcp.importer.convert.variables import escape
from dynamic_mcp.importer.convert.vault import KeychainMoves, Vault
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.installer import TargetFile, list_targets
from dynamic_mcp.importer.model import Entry, ForeignServer, Machine, Notice, Reading, SettingsSource, ToolScope
from dynamic_mcp.importer.reader import read_tool
from dynamic_mcp.system import file_reader

EMPTY = "{}\n"
_OUTPUT_HINT = "fix it, or choose another file with --output"
_RANKS = {ToolScope.LOCAL: 0, ToolScope.PROJECT: 1, ToolScope.USER: 2}
# Returns the entry of a server as it is written, given the entry that the config has.
Write = Callable[[str, Entry, Entry | None], Entry]
Key = tuple[SettingsSource, str]  # the key of a server: its source, and its name there


@dataclass(frozen=True)
class ImportRequest:
    """The options of an import.

    `is_afresh` starts with an empty output instead of the existing one. `environment` is only compared with literal
    values elsewhere; none of it is written.
    """

    output: Path
    home: str
    project: Path
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skip_disabled: bool = False
    secrets: Literal["keep", "env", "keyring", "fail"] = "keep"
    is_afresh: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def plan_import(
    readings: Sequence[Reading],
    request: ImportRequest,
    *,
    decide: Callable[[ImportItem], MergeChoice] = lambda item: MergeChoice.KEEP,
    describe: Callable[[ForeignServer], Entry] = lambda server: server.entry,
    keychain: KeychainMoves | None = None,
) -> Plan:
    """Compute the effects of an import. Raises ConfigError and FileError if the output cannot be merged into.

    `keychain` gets the secrets if the request moves them there.
    """
    target = read_output(request.output, request.home, is_afresh=request.is_afresh)
    matcher = Matcher(target.servers, request.home, known_values(target.vault, request.environment))
    merge = Merge(
        target.servers,
        matcher,
        decide=decide,
        describe=describe,
        write=_writer(request, target.vault, keychain),
        has_environment_setting=_has_environment_setting(target.document),
        starting_us={reading.source.tool for reading in readings if reading.has_own_entry},
    )
    placed = [_resolve_paths(reading, request.output, request.project) for reading in readings]
    shadowing = _find_shadowing(placed, request)
    items = tuple(
        _make_item(server, shadowing.get(_key(server)), request, merge, matcher, _names(reading))
        for reading in placed
        for server in reading.servers
    )
    return Plan(
        target=target,
        items=items,
        servers=merge.servers,
        readings=tuple(readings),
        remarks=(*describe_wider(items), *merge.remarks),
    )


def _writer(request: ImportRequest, vault: Vault, keychain: KeychainMoves | None) -> Write:
    """Return the function that moves the secrets of an entry to where the request wants them."""
    if request.secrets == "env":
        return vault.move
    if request.secrets == "keyring" and keychain is not None:
        return keychain.move
    return lambda name, entry, before: entry


def read_output(file: Path, home: str, *, is_afresh: bool = False) -> OutputConfig:
    """Return the existing config; with `is_afresh`, an empty one. Raises ConfigError and FileError."""
    before = _read_text(file)
    text = EMPTY if is_afresh or not (before or "").strip("\ufeff \t\r\n") else before or EMPTY
    document = _parse_document(file, text)
    return OutputConfig(file, before, text, document, _read_servers(file, document), Vault(document, file, home))


def known_values(vault: Vault, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of variables: those of the vault, else of the environment."""
    return ChainMap(vault.values, dict(environment))


def build_config(servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]) -> Config:
    """Return the resolved config of these servers, as if they were in that file; all must be valid."""
    from dynamic_mcp.config.read import parse_tree
    from dynamic_mcp.config.resolve import resolve
    from dynamic_mcp.config.substitute import Surroundings

    root, _ = parse_tree({"mcpServers": deepcopy(dict(servers))}, file)
    return resolve(root, file, surroundings=Surroundings(environment, sys.platform, file.parent))


def _resolve_paths(reading: Reading, output: Path, project: Path) -> Reading:
    """Return the reading with its servers adapted to the location of the output."""
    is_here = os.path.realpath(output.parent) == os.path.realpath(project)
    is_elsewhere = not is_here and reading.source.scope is not ToolScope.USER
    servers = (_with_absolute_paths(server, project) if is_elsewhere else server for server in reading.servers)
    return replace(reading, servers=tuple(map(with_environment, servers)))


def _with_absolute_paths(server: ForeignServer, project: Path) -> ForeignServer:
    """Return a project's server with absolute directories."""
    base = escape(str(project))
    entry = dict(server.entry)
    for key in ("cwd", "env_file"):
        match entry.get(key):
            case str(text):
                entry[key] = _make_absolute(text, base)
            case list(texts):
                entry[key] = [_make_absolute(str(text), base) for text in texts]
    return replace(server, entry=entry)


def _make_absolute(text: str, base: str) -> str:
    return str(Path(base, text)) if is_relative(text) else text


def _make_item(
    server: ForeignServer,
    winner: ForeignServer | None,
    request: ImportRequest,
    merge: Merge,
    matcher: Matcher,
    siblings: Collection[str],
) -> ImportItem:
    reason = _skip_reason(server, request)
    if not reason and winner is not None and not matcher.is_same_server(server, winner):
        tool, file = server.source.tool, winner.source.file
        reason = f"{tool} does not start it here, because `{file}` has another server of this name"
    if reason:
        return ImportItem(server, server.name, Action.SKIP, reason=reason, notices=server.notices)
    if flaw := _find_flaw(server):
        where = f"{server.source.tool}/{server.source.scope.value}/{server.name}"
        notices = (*server.notices, Notice(where, f"cannot be used: {flaw}"))
        return ImportItem(server, server.name, Action.SKIP, reason=flaw, is_flawed=True, notices=notices)
    return merge.take(server, siblings)


def _names(reading: Reading) -> frozenset[str]:
    return frozenset(server.name for server in reading.servers)


def _key(server: ForeignServer) -> Key:
    return (server.source, server.name)


def _may_shadow(server: ForeignServer, request: ImportRequest) -> bool:
    return not (server.is_refused or _skip_reason(server, request) or _find_flaw(server))


def _skip_reason(server: ForeignServer, request: ImportRequest) -> str:
    if request.only and not any(fnmatchcase(server.name, glob) for glob in request.only):
        return "not selected by --only"
    if any(fnmatchcase(server.name, glob) for glob in request.exclude):
        return "excluded"
    if request.skip_disabled and server.entry.get("enabled") is False:
        return "disabled"
    return ""


def _has_environment_setting(document: Mapping[str, object]) -> bool:
    from dynamic_mcp.config.old_names import Renaming

    settings = Renaming({"settings": deepcopy(document.get("settings"))}).tree["settings"]
    defaults = settings.get("defaults") if isinstance(settings, Mapping) else None
    return isinstance(defaults, Mapping) and defaults.get(INHERIT_ENV) is not None


def _find_flaw(server: ForeignServer) -> str:
    """Return the reason why our config rejects an entry, so that one entry cannot invalidate the whole file."""
    from dynamic_mcp.config.problems import find_problems

    for first in find_problems({"mcpServers": {"x": server.entry}}):
        return f"{first.where.removeprefix('mcpServers.x').lstrip('.') or 'it'} {first.message}"
    return ""


def _read_text(file: Path) -> str | None:
    data = files.read_bytes(file)
    try:
        return None if data is None else file_reader.decode_with_mark(data)
    except UnicodeDecodeError as exc:
        what = f"is not {file_reader.encoding_name(data or b'')}"
        raise ConfigError(str(file), f"byte {exc.start + 1}", what, hint="save the file as UTF-8") from exc


def _parse_document(file: Path, text: str) -> Mapping[str, object]:
    try:
        document = jsonc.loads(text.removeprefix("\ufeff"))
    except JSONDecodeError as exc:
        place = f"line {exc.lineno}, column {exc.colno}"
        raise ConfigError(str(file), place, "is not JSON, and stays as it is", hint=_OUTPUT_HINT) from exc
    except jsonc.DuplicateKeyError as exc:
        raise ConfigError(
            str(file), format_path(exc.paths[0]), "is defined more than once", hint="keep one of them"
        ) from exc
    if not isinstance(document, dict):
        raise ConfigError(str(file), "", "is not an object", hint=_OUTPUT_HINT)
    return document


def _read_servers(file: Path, document: Mapping[str, object]) -> dict[str, Entry]:
    servers = document.get("mcpServers") or {}
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise ConfigError(str(file), "mcpServers", "is not an object of servers", hint=_OUTPUT_HINT)
    return servers


def _find_shadowing(readings: Sequence[Reading], request: ImportRequest) -> Mapping[Key, ForeignServer]:
    """Return the server that shadows each shadowed one; only imported servers shadow others.

    Local servers take precedence over the project's, and those over the user's, as in every tool that has these
    scopes. Files of one scope do not shadow each other: they may belong to several editors or profiles.
    """
    candidates = [
        server
        for reading in readings
        if not reading.is_borrowed and reading.source.tool != "file"
        for server in reading.servers
    ]
    first: dict[tuple[str, str], ForeignServer] = {}
    for server in sorted(candidates, key=_rank):
        name = (server.source.tool, server.name)
        if name not in first and _may_shadow(server, request):
            first[name] = server
    winners = ((server, first.get((server.source.tool, server.name))) for server in candidates)
    return {_key(server): winner for server, winner in winners if winner and _rank(winner) < _rank(server)}


def _rank(server: ForeignServer) -> int:
    return _RANKS[server.source.scope]


@dataclass(frozen=True)
class RemainingServer:
    """A server that stays enabled beside our entry."""

    name: str
    source: SettingsSource
    is_in_config: bool
    is_writable: bool


@dataclass(frozen=True)
class Replacement:
    """The names of the servers to disable, by file, and the servers that stay enabled."""

    servers: Mapping[TargetFile, Collection[str]]
    remaining: tuple[RemainingServer, ...]


def plan_replacement(
    adapter: Adapter,
    scopes: Collection[ToolScope],
    machine: Machine,
    output: OutputConfig,
    servers: Mapping[str, Entry],
) -> Replacement:
    """Find the tool's servers in these scopes that are among the `servers` of the output, and the enabled others."""
    matcher = Matcher(servers, str(machine.home), known_values(output.vault, machine.environment))
    targets = {(each.place.scope, each.file): each for each in list_targets(adapter, tuple(ToolScope), machine)}
    replaced: dict[TargetFile, list[str]] = {}
    remaining: list[RemainingServer] = []
    for reading in _read_once(adapter, machine):
        target = targets.get((reading.source.scope, reading.source.file))
        placed = _resolve_paths(reading, output.file, machine.project)
        for server in placed.servers:
            name = matcher.find_same(server, _names(reading))
            if name is not None:
                matcher.claim(name, server)
            if name is not None and reading.source.scope in scopes and target is not None:
                replaced.setdefault(target, []).append(server.name)
            elif not server.is_off:
                remaining.append(RemainingServer(server.name, server.source, name is not None, target is not None))
    return Replacement(replaced, tuple(remaining))


def _read_once(adapter: Adapter, machine: Machine) -> list[Reading]:
    """Read the tool; in the home directory, a project's file is the user's own and is read once."""
    readings = read_tool(adapter, tuple(ToolScope), machine)
    users = {each.source.file for each in readings if each.source.scope is ToolScope.USER}
    return [each for each in readings if each.source.scope is not ToolScope.PROJECT or each.source.file not in users]
