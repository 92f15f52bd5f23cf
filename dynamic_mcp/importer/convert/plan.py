"""What an import would do, as values: nothing here writes, asks or runs anything."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.importer.convert.draft import make_printable
from dynamic_mcp.importer.convert.memory import Memory
from dynamic_mcp.importer.convert.vault import Hiding, masked, secrets
from dynamic_mcp.importer.formats.changes import Edit
from dynamic_mcp.importer.model import ForeignServer, Notice, Reading


class Action(StrEnum):
    """What the import does with a server."""

    NEW = "new"
    SAME = "same"
    UPDATE = "update"
    CONFLICT = "conflict"
    SKIP = "skip"


class Choice(StrEnum):
    """How a conflict is settled; RENAME keeps both sides."""

    KEEP = "keep"
    REPLACE = "replace"
    RENAME = "rename"


@dataclass(frozen=True)
class Item:
    """One foreign server, and the name and entry that it gets in the output, if any.

    `reason` tells why it is skipped; `is_flawed` if our config does not accept it. `conflicts` are the fields that
    both sides changed, and `choice` is the decision about them.
    """

    server: ForeignServer
    name: str
    action: Action
    before: Mapping[str, object] | None = field(default=None, repr=False)
    entry: Mapping[str, object] | None = field(default=None, repr=False)
    reason: str = ""
    conflicts: tuple[str, ...] = ()
    choice: Choice | None = None
    notices: tuple[Notice, ...] = ()
    is_flawed: bool = False

    @property
    def is_changed(self) -> bool:
        """Tell whether the import changes this entry of the output."""
        return self.entry is not None and self.entry != self.before

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """All notices about the server, including secrets in plain text."""
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
class Plan:
    """A whole import: the output's text before and after, and what is remembered of it.

    `before` is None if there is no output yet; `servers` are all servers of the output afterwards. `variables` go to
    the env file, which is None if there are none. `other_edits` are those of `after` that concern no server.
    """

    output: Path
    items: tuple[Item, ...]
    before: str | None = field(repr=False)
    after: str = field(repr=False)
    memory: Memory = field(repr=False)
    servers: Mapping[str, Mapping[str, object]] = field(repr=False)
    readings: tuple[Reading, ...] = ()
    remarks: tuple[str, ...] = ()
    env_file: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    other_edits: tuple[Edit, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Tell whether there is anything to write into the output."""
        return self.before != self.after and (self.before is not None or bool(self.servers))

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """All notices, each once."""
        of_files = [notice for reading in self.readings for notice in reading.notices]
        of_servers = [notice for item in self.items for notice in item.warnings]
        return tuple(dict.fromkeys([*of_files, *of_servers]))

    @property
    def errors(self) -> tuple[str, ...]:
        """The files that could not be read, and why."""
        return tuple(f"{each.source.file}: {mask_text(each.error)}" for each in self.readings if each.error)

    @property
    def exports(self) -> dict[str, list[str]]:
        """The variables that a person must set, and for which servers."""
        wanted: dict[str, list[str]] = {}
        for item in self.items:
            for name in item.server.exports if item.entry is not None else ():
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
        """Tell whether any server of the output has a secret in plain text."""
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
            "env_file": str(self.env_file) if self.env_file else None,
            "remarks": list(self.remarks),
            "warnings": [str(notice) for notice in self.warnings],
        }


def count_actions(items: Sequence[Item]) -> dict[Action, int]:
    """Count the servers of each action."""
    return {action: sum(item.action is action for item in items) for action in Action}


def _item_to_json(item: Item) -> dict[str, object]:
    source = item.server.source
    return {
        "tool": source.tool,
        "scope": source.scope.value,
        "file": str(source.file),
        "found_as": item.server.name,
        "name": item.name,
        "action": item.action.value,
        "reason": item.reason,
        "conflicts": list(item.conflicts),
        "choice": item.choice.value if item.choice else None,
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
