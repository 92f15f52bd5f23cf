"""An import from what was read to what is written: first the whole plan, then one write."""

from __future__ import annotations

import os
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from json import JSONDecodeError
from pathlib import Path
from typing import Literal

from dynamic_mcp.config import edit, jsonc
from dynamic_mcp.config.keys import path as shown
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.importer.convert import inheritance, vault
from dynamic_mcp.importer.convert.memory import Memory, MemoryStore, key_of
from dynamic_mcp.importer.convert.merge import Conflict, Entry, Merge, Rules, describe_vanished
from dynamic_mcp.importer.convert.plan import Action, Choice, Item, Plan
from dynamic_mcp.importer.convert.precedence import find_shadowed
from dynamic_mcp.importer.convert.program import is_relative
from dynamic_mcp.importer.convert.variables import escape
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.model import ForeignServer, Notice, Reading, Scope

EMPTY = "{}\n"
_OUTPUT_HINT = "fix it, or choose another file with --output"


@dataclass(frozen=True)
class ImportRequest:
    """What an import is asked for.

    `is_afresh` begins with an empty output instead of the one that is there. What `environment` holds is only
    compared with what stands written out elsewhere.
    """

    output: Path
    home: str
    project: Path
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skip_disabled: bool = False
    secrets: Literal["keep", "env", "fail"] = "keep"
    is_afresh: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def plan_import(
    readings: Sequence[Reading],
    order: ImportRequest,
    memories: MemoryStore,
    *,
    settle: Callable[[Conflict], Choice] = lambda conflict: Choice.KEEP,
    describe: Callable[[ForeignServer], Entry] = lambda found: found.entry,
) -> Plan:
    """Work out what an import would do. Raises ConfigError and FileError where the output cannot be merged into."""
    before = _read_text(order.output)
    text = EMPTY if order.is_afresh or not (before or "").strip("\ufeff \t\r\n") else before or EMPTY
    document = _parse_document(order.output, text)
    servers = _read_servers(order.output, document)
    safe = vault.Vault(document, order.output, order.home) if order.secrets == "env" else None
    memory = memories.load(order.output)
    if order.is_afresh or before is None:  # what was once taken out of a config is no choice about another one
        memory = Memory(memory.salt)
    merge = Merge(servers, memory, _make_rules(order, document, safe, settle, describe))
    items = _make_items(readings, order, merge)
    after = _write_servers(text, servers, merge.servers)
    variables: Mapping[str, str] = {}
    if safe is not None and (variables := safe.changed_variables(merge.servers)) and not safe.configured_name:
        after = edit.put(after, ("settings", "variables_file"), safe.name)
    return Plan(
        output=order.output,
        items=items,
        before=before,
        after=after,
        memory=memory,
        servers=merge.servers,
        readings=tuple(readings),
        remarks=(*inheritance.describe_wider(items), *describe_vanished(memory, readings, merge.servers)),
        env_file=safe.file if safe is not None and variables else None,
        variables=variables,
    )


def _make_rules(
    order: ImportRequest,
    document: Mapping[str, object],
    safe: vault.Vault | None,
    settle: Callable[[Conflict], Choice],
    describe: Callable[[ForeignServer], Entry],
) -> Rules:
    rules = Rules(
        order.home,
        settle,
        describe,
        values=ChainMap({} if safe is None else safe.values, dict(order.environment)),
        is_environment_settled=_has_environment_setting(document),
    )
    return rules if safe is None else replace(rules, write=safe.move)


def _make_items(readings: Sequence[Reading], order: ImportRequest, merge: Merge) -> tuple[Item, ...]:
    replaced_in = {reading.source.tool for reading in readings if reading.has_own_entry}
    placed = [_reenable_replaced(_resolve_paths(reading, order), replaced_in, merge.memory) for reading in readings]
    hidden = find_shadowed(placed, lambda found: _may_shadow(found, order))
    return tuple(
        _make_item(found, hidden.get(key_of(found)), order, merge) for reading in placed for found in reading.servers
    )


def build_config(servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]) -> Config:
    """Return what serving these servers would use, if they stood in that file; each of them is right."""
    from dynamic_mcp.config import form
    from dynamic_mcp.config.resolve import resolve
    from dynamic_mcp.config.upstream import Surroundings

    root = form.root({"mcpServers": dict(servers)})
    return resolve(root, file, surroundings=Surroundings(environment, sys.platform, file.parent))


def _resolve_paths(reading: Reading, order: ImportRequest) -> Reading:
    """Return the reading with its servers as they are to be where the output is."""
    is_here = os.path.realpath(order.output.parent) == os.path.realpath(order.project)
    is_elsewhere = not is_here and reading.source.scope is not Scope.USER
    servers = (_with_absolute_paths(found, order) if is_elsewhere else found for found in reading.servers)
    return replace(reading, servers=tuple(map(inheritance.with_environment, servers)))


def _reenable_replaced(reading: Reading, tools: Collection[str], memory: Memory) -> Reading:
    """Return the reading with the servers on that these tools have switched off because they start us instead.

    Those are the ones that were on when they were imported.
    """
    if reading.source.tool not in tools:
        return reading
    servers = (
        found.without_field("enabled") if found.is_off and memory.was_on(found) else found
        for found in reading.servers
    )
    return replace(reading, servers=tuple(servers))


def _with_absolute_paths(found: ForeignServer, order: ImportRequest) -> ForeignServer:
    """Return a project's server with its relative directories made whole."""
    base = escape(str(order.project))
    entry = dict(found.entry)
    for key in ("cwd", "env_file"):
        match entry.get(key):
            case str(text):
                entry[key] = _make_absolute(text, base)
            case list(texts):
                entry[key] = [_make_absolute(str(text), base) for text in texts]
    return replace(found, entry=entry)


def _make_absolute(text: str, base: str) -> str:
    return str(Path(base, text)) if is_relative(text) else text


def _make_item(found: ForeignServer, winner: ForeignServer | None, order: ImportRequest, merge: Merge) -> Item:
    reason = _skip_reason(found, order)
    if not reason and winner is not None and not merge.has(found) and not merge.is_same_server(found, winner):
        tool, file = found.source.tool, winner.source.file
        reason = f"{tool} does not start it here, because `{file}` has another server of this name"
    if reason:
        return Item(found, found.name, Action.SKIP, reason=reason, notices=found.notices)
    if flaw := _find_flaw(found):
        where = f"{found.source.tool}/{found.source.scope.value}/{found.name}"
        notices = (*found.notices, Notice(where, f"cannot be used: {flaw}"))
        return Item(found, found.name, Action.SKIP, reason=flaw, is_flawed=True, notices=notices)
    return merge.take(found)


def _may_shadow(found: ForeignServer, order: ImportRequest) -> bool:
    return not (found.is_refused or _skip_reason(found, order) or _find_flaw(found))


def _skip_reason(found: ForeignServer, order: ImportRequest) -> str:
    if order.only and not any(fnmatchcase(found.name, glob) for glob in order.only):
        return "not selected by --only"
    if any(fnmatchcase(found.name, glob) for glob in order.exclude):
        return "excluded"
    if order.skip_disabled and found.entry.get("enabled") is False:
        return "disabled"
    return ""


def _has_environment_setting(document: Mapping[str, object]) -> bool:
    settings = document.get("settings")
    return isinstance(settings, Mapping) and settings.get(inheritance.FIELD) is not None


def _find_flaw(found: ForeignServer) -> str:
    """Say what our config would not take of an entry, so that one of them cannot make the whole file invalid."""
    from dynamic_mcp.config.problems import problems

    for first in problems({"mcpServers": {"x": found.entry}}):
        return f"{first.where.removeprefix('mcpServers.x').lstrip('.') or 'it'} {first.message}"
    return ""


def _read_text(file: Path) -> str | None:
    data = files.read_bytes(file)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigError(str(file), f"byte {exc.start + 1}", "is not UTF-8", hint="save the file as UTF-8") from exc


def _parse_document(file: Path, text: str) -> Mapping[str, object]:
    try:
        document = jsonc.loads(text.removeprefix("\ufeff"))
    except JSONDecodeError as exc:
        place = f"line {exc.lineno}, column {exc.colno}"
        raise ConfigError(str(file), place, "is not JSON, and stays as it is", hint=_OUTPUT_HINT) from exc
    except jsonc.DuplicateKeyError as exc:
        raise ConfigError(
            str(file), shown(exc.paths[0]), "is defined more than once", hint="keep one of them"
        ) from exc
    if not isinstance(document, dict):
        raise ConfigError(str(file), "", "is not an object", hint=_OUTPUT_HINT)
    return document


def _read_servers(file: Path, document: Mapping[str, object]) -> dict[str, Entry]:
    servers = document.get("mcpServers") or {}
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise ConfigError(str(file), "mcpServers", "is not an object of servers", hint=_OUTPUT_HINT)
    return servers


def _write_servers(text: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> str:
    if not before:
        return edit.put(text, ("mcpServers",), after)
    for name, entry in after.items():
        if before.get(name) != entry:
            text = edit.put(text, ("mcpServers", name), entry)
    return text
