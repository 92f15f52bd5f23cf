"""The effects of an import, as values: this module does not write, ask or run anything."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from dynamic_mcp.config import edit
from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.importer.convert.draft import make_printable
from dynamic_mcp.importer.convert.vault import Hiding, Vault, masked, secrets
from dynamic_mcp.importer.model import Entry, ForeignServer, Notice, Reading


class Action(StrEnum):
    """The action for a server; DIFFERS keeps the config's entry, which has other content."""

    NEW = "new"
    SAME = "same"
    DIFFERS = "differs"
    REPLACED = "replaced"
    SKIP = "skip"


@dataclass(frozen=True)
class ImportItem:
    """One foreign server, and the name and entry that it gets in the output, if any.

    `reason` says why it is skipped; `is_flawed` if our config does not accept it. `fields` are those that differ from
    the entry in the config, and `proposal` is what replaces that entry if the user wants it.
    """

    server: ForeignServer
    name: str
    action: Action
    before: Entry | None = field(default=None, repr=False)
    entry: Entry | None = field(default=None, repr=False)
    reason: str = ""
    fields: tuple[str, ...] = ()
    proposal: Entry | None = field(default=None, repr=False)
    notices: tuple[Notice, ...] = ()
    is_flawed: bool = False

    @property
    def warnings(self) -> tuple[Notice, ...]:
        source = self.server.source
        where = f"{source.tool}/{source.scope.value}/{make_printable(self.server.name)}"
        reason = "looks like a secret in plain text"
        named = [(".".join(map(str, each.path)), each) for each in secrets(self.entry or {})]
        of_secrets = [
            Notice(f"{where}.{path}", f"`{each.name}` in it {reason}" if each.path[0] == "url" else reason)
            for path, each in named
        ]
        return (*self.notices, *dict.fromkeys(of_secrets))


@dataclass(frozen=True)
class OutputConfig:
    """The target config of an import: its text, None if there is none, and its parts."""

    file: Path
    before: str | None = field(repr=False)
    text: str = field(repr=False)
    document: Entry = field(repr=False)
    servers: Mapping[str, Entry] = field(repr=False)
    vault: Vault = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """A whole import: the current output, and all servers after it.

    `daemon` is the new value of `settings.daemon`; None leaves it unchanged.
    """

    target: OutputConfig
    items: tuple[ImportItem, ...]
    servers: Mapping[str, Entry] = field(repr=False)
    readings: tuple[Reading, ...] = ()
    remarks: tuple[str, ...] = ()
    daemon: bool | None = None

    @property
    def output(self) -> Path:
        return self.target.file

    @property
    def before(self) -> str | None:
        return self.target.before

    @property
    def changed_servers(self) -> dict[str, Entry]:
        return {name: entry for name, entry in self.servers.items() if self.target.servers.get(name) != entry}

    @property
    def variables(self) -> Mapping[str, str]:
        return self.target.vault.changed_variables(self.servers)

    @property
    def env_file(self) -> Path:
        """The file for secrets, which need not exist."""
        return self.target.vault.file

    @cached_property
    def after(self) -> str:
        target = self.target
        text = target.text
        if not target.servers:
            text = edit.put(text, ("mcpServers",), self.servers)
        for name, entry in self.changed_servers.items() if target.servers else ():
            text = edit.put(text, ("mcpServers", name), entry)
        if self.variables and not target.vault.configured_name:
            text = edit.put(text, ("settings", "variables_file"), target.vault.name)
        return text if self.daemon is None else edit.put(text, ("settings", "daemon"), self.daemon)

    @property
    def is_changed(self) -> bool:
        return self.before != self.after and (self.before is not None or bool(self.servers))

    def with_servers(self, entries: Mapping[str, Entry]) -> Plan:
        return replace(self, servers={**self.servers, **entries})

    def without(self, names: Collection[str]) -> Plan:
        """Return the plan without the new servers of these names."""
        items = tuple(item for item in self.items if item.name not in names)
        return replace(
            self, items=items, servers={name: entry for name, entry in self.servers.items() if name not in names}
        )

    def with_descriptions(self, texts: Mapping[str, str]) -> Plan:
        servers = {
            name: {**entry, "description": texts[name]} if texts.get(name) else entry
            for name, entry in self.servers.items()
        }
        items = (replace(item, entry=servers[item.name]) if item.entry is not None else item for item in self.items)
        return replace(self, items=tuple(items), servers=servers)

    @property
    def warnings(self) -> tuple[Notice, ...]:
        of_files = [notice for reading in self.readings for notice in reading.notices]
        of_servers = [notice for item in self.items for notice in item.warnings]
        return tuple(dict.fromkeys([*of_files, *of_servers]))

    @property
    def errors(self) -> tuple[str, ...]:
        """The unreadable files, with reasons."""
        return tuple(f"{each.source.file}: {mask_text(each.error)}" for each in self.readings if each.error)

    @property
    def exports(self) -> dict[str, list[str]]:
        """The variables that the user must set, with the servers that need them."""
        wanted: dict[str, list[str]] = {}
        for item in self.items:
            is_used = item.entry is not None and item.action is not Action.DIFFERS
            for name in item.server.exports if is_used else ():
                wanted.setdefault(name, []).append(item.name)
        return {name: list(dict.fromkeys(servers)) for name, servers in wanted.items()}

    def find_secrets(self) -> dict[str, list[str]]:
        """Return the fields with a secret in plain text, by server, in the entries of this import."""
        found: dict[str, list[str]] = {}
        for item in self.items:
            for secret in secrets(item.entry) if item.entry is not None else ():
                found.setdefault(item.name, []).append(".".join(map(str, secret.path)))
        return {name: list(dict.fromkeys(fields)) for name, fields in found.items()}

    def has_secrets(self) -> bool:
        """Return whether any server of the output has a secret in plain text."""
        return any(secrets(entry) for entry in self.servers.values())

    def diff(self) -> Iterator[str]:
        """Yield the lines of the difference to the current output, with secrets masked."""
        if not self.is_changed:
            return iter(())
        hiding = Hiding()
        for item in self.items:
            for entry in (item.before, item.entry):
                if entry is not None:
                    hiding.add(entry)
        before = "" if self.before is None else self.before
        name = str(self.output)
        lines = difflib.unified_diff(before.splitlines(), self.after.splitlines(), name, name, lineterm="")
        return (hiding.hidden(line) for line in lines)

    def to_json(self) -> dict[str, object]:
        """Return the plan as JSON, with secrets masked."""
        return {
            "output": str(self.output),
            "changed": self.is_changed,
            "servers": [_item_to_json(item) for item in self.items],
            "files": [_reading_to_json(reading) for reading in self.readings],
            "exports": self.exports,
            "env_file": str(self.env_file) if self.variables else None,
            "remarks": list(self.remarks),
            "warnings": [str(notice) for notice in self.warnings],
        }


def describe_difference(entry: Entry | None, proposal: Entry | None) -> Iterator[str]:
    """Yield the lines in which an entry of the config differs from its replacement, with secrets masked."""
    if entry is not None and proposal is not None:
        sides = (json.dumps(masked(side), indent=2, ensure_ascii=False) for side in (entry, proposal))
        before, after = (side.splitlines() for side in sides)
        lines = difflib.unified_diff(before, after, n=0, lineterm="")
        yield from (line for line in list(lines)[2:] if not line.startswith("@@"))


def count_actions(items: Sequence[ImportItem]) -> dict[Action, int]:
    """Return the number of servers for each action."""
    return {action: sum(item.action is action for item in items) for action in Action}


def _item_to_json(item: ImportItem) -> dict[str, object]:
    source = item.server.source
    return {
        "tool": source.tool,
        "scope": source.scope.value,
        "file": str(source.file),
        "found_as": item.server.name,
        "name": item.name,
        "action": item.action.value,
        "reason": item.reason,
        "fields": list(item.fields),
        "entry": None if item.entry is None else masked(item.entry),
        "warnings": [str(notice) for notice in item.warnings],
    }


def _reading_to_json(reading: Reading) -> dict[str, object]:
    source = reading.source
    return {
        "tool": source.tool,
        "scope": source.scope.value,
        "file": str(source.file),
        "servers": len(reading.servers),
        "error": mask_text(reading.error),
        "warnings": [str(notice) for notice in reading.notices],
    }
