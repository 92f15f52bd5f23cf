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
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.importer import files, inheritance, vault
from dynamic_mcp.importer.found import Found, Notice, Reading, Scope
from dynamic_mcp.importer.memory import Memories, Memory, key_of
from dynamic_mcp.importer.merge import Conflict, Entry, Merge, Rules, gone
from dynamic_mcp.importer.plan import Action, Choice, Item, Plan
from dynamic_mcp.importer.program import is_relative
from dynamic_mcp.importer.shadowing import shadowed
from dynamic_mcp.importer.variables import escaped

EMPTY = "{}\n"
_NOT_OURS = "put it right, or name another file with --output"


@dataclass(frozen=True)
class Order:
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


def plan(
    readings: Sequence[Reading],
    order: Order,
    memories: Memories,
    *,
    settle: Callable[[Conflict], Choice] = lambda conflict: Choice.KEEP,
    describe: Callable[[Found], Entry] = lambda found: found.entry,
) -> Plan:
    """Work out what an import would do. Raises ConfigError and FileError where the output cannot be merged into."""
    before = _text(order.output)
    text = EMPTY if order.is_afresh or not (before or "").strip("\ufeff \t\r\n") else before or EMPTY
    document = _document(order.output, text)
    servers = _servers(order.output, document)
    safe = vault.Vault(document, order.output, order.home) if order.secrets == "env" else None
    memory = memories.load(order.output)
    if order.is_afresh or before is None:  # what was once taken out of a config is no choice about another one
        memory = Memory(memory.salt)
    merge = Merge(servers, memory, _rules(order, document, safe, settle, describe))
    items = _items(readings, order, merge)
    after = _written(text, servers, merge.servers)
    variables: Mapping[str, str] = {}
    if safe is not None and (variables := safe.used(merge.servers)) and not safe.named:
        after = edit.put(after, ("settings", "variables_file"), safe.name)
    return Plan(
        output=order.output,
        items=items,
        before=before,
        after=after,
        memory=memory,
        servers=merge.servers,
        readings=tuple(readings),
        remarks=(*inheritance.remark(items), *gone(memory, readings, merge.servers)),
        env_file=safe.file if safe is not None and variables else None,
        variables=variables,
    )


def _rules(
    order: Order,
    document: Mapping[str, object],
    safe: vault.Vault | None,
    settle: Callable[[Conflict], Choice],
    describe: Callable[[Found], Entry],
) -> Rules:
    rules = Rules(
        order.home,
        settle,
        describe,
        values=ChainMap({} if safe is None else safe.values, dict(order.environment)),
        is_environment_settled=_has_settings_for_the_environment(document),
    )
    return rules if safe is None else replace(rules, write=safe.move)


def _items(readings: Sequence[Reading], order: Order, merge: Merge) -> tuple[Item, ...]:
    replaced_in = {reading.source.tool for reading in readings if reading.starts_us}
    placed = [_with_replaced_on(_placed(reading, order), replaced_in, merge.memory) for reading in readings]
    hidden = shadowed(placed, lambda found: _may_shadow(found, order))
    return tuple(
        _item(found, hidden.get(key_of(found)), order, merge) for reading in placed for found in reading.servers
    )


def config_of(servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]) -> Config:
    """Return what serving these servers would use, if they stood in that file; each of them is right."""
    from dynamic_mcp.config import form
    from dynamic_mcp.config.resolve import resolve
    from dynamic_mcp.config.upstream import Surroundings

    root = form.root({"mcpServers": dict(servers)})
    return resolve(root, file, surroundings=Surroundings(environment, sys.platform, file.parent))


def _placed(reading: Reading, order: Order) -> Reading:
    """Return the reading with its servers as they are to be where the output is."""
    is_here = os.path.realpath(order.output.parent) == os.path.realpath(order.project)
    is_elsewhere = not is_here and reading.source.scope is not Scope.USER
    servers = (_with_whole_paths(found, order) if is_elsewhere else found for found in reading.servers)
    return replace(reading, servers=tuple(map(inheritance.with_environment, servers)))


def _with_replaced_on(reading: Reading, tools: Collection[str], memory: Memory) -> Reading:
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


def _with_whole_paths(found: Found, order: Order) -> Found:
    """Return a project's server with its relative directories made whole."""
    base = escaped(str(order.project))
    entry = dict(found.entry)
    for key in ("cwd", "env_file"):
        match entry.get(key):
            case str(text):
                entry[key] = _whole(text, base)
            case list(texts):
                entry[key] = [_whole(str(text), base) for text in texts]
    return replace(found, entry=entry)


def _whole(text: str, base: str) -> str:
    return str(Path(base, text)) if is_relative(text) else text


def _item(found: Found, winner: Found | None, order: Order, merge: Merge) -> Item:
    reason = _reason_to_skip(found, order)
    if not reason and winner is not None and not merge.has(found) and not merge.are_one(found, winner):
        tool, file = found.source.tool, winner.source.file
        reason = f"{tool} does not start it here, since `{file}` has another one of this name"
    if reason:
        return Item(found, found.name, Action.SKIP, reason=reason, notices=found.notices)
    if flaw := _flaw(found):
        where = f"{found.source.tool}/{found.source.scope.value}/{found.name}"
        notices = (*found.notices, Notice(where, f"cannot be used: {flaw}"))
        return Item(found, found.name, Action.SKIP, reason=flaw, is_flawed=True, notices=notices)
    return merge.take(found)


def _may_shadow(found: Found, order: Order) -> bool:
    return not (found.is_refused or _reason_to_skip(found, order) or _flaw(found))


def _reason_to_skip(found: Found, order: Order) -> str:
    if order.only and not any(fnmatchcase(found.name, glob) for glob in order.only):
        return "not among those that are wanted"
    if any(fnmatchcase(found.name, glob) for glob in order.exclude):
        return "excluded"
    if order.skip_disabled and found.entry.get("enabled") is False:
        return "disabled"
    return ""


def _has_settings_for_the_environment(document: Mapping[str, object]) -> bool:
    settings = document.get("settings")
    return isinstance(settings, Mapping) and settings.get(inheritance.FIELD) is not None


def _flaw(found: Found) -> str:
    """Say what our config would not take of an entry, so that one of them cannot make the whole file invalid."""
    from dynamic_mcp.config.problems import find_problems

    for first in find_problems({"mcpServers": {"x": found.entry}}):
        return f"{first.where.removeprefix('mcpServers.x').lstrip('.') or 'it'} {first.message}"
    return ""


def _text(file: Path) -> str | None:
    data = files.read_bytes(file)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigError(str(file), f"byte {exc.start + 1}", "is not UTF-8", hint="save the file as UTF-8") from exc


def _document(file: Path, text: str) -> Mapping[str, object]:
    try:
        document = jsonc.loads(text.removeprefix("\ufeff"))
    except JSONDecodeError as exc:
        place = f"line {exc.lineno}, column {exc.colno}"
        raise ConfigError(str(file), place, "is not JSON, and stays as it is", hint=_NOT_OURS) from exc
    except jsonc.DuplicateKeyError as exc:
        raise ConfigError(str(file), shown(exc.paths[0]), "is there more than once", hint="keep one of them") from exc
    if not isinstance(document, dict):
        raise ConfigError(str(file), "", "is not an object", hint=_NOT_OURS)
    return document


def _servers(file: Path, document: Mapping[str, object]) -> dict[str, Entry]:
    servers = document.get("mcpServers") or {}
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise ConfigError(str(file), "mcpServers", "is not an object of servers", hint=_NOT_OURS)
    return servers


def _written(text: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> str:
    if not before:
        return edit.put(text, ("mcpServers",), after)
    for name, entry in after.items():
        if before.get(name) != entry:
            text = edit.put(text, ("mcpServers", name), entry)
    return text
