"""What an import would do, as values: nothing here writes, asks or runs anything."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.importer.draft import shown
from dynamic_mcp.importer.found import Found, Notice, Reading
from dynamic_mcp.importer.memory import Memory
from dynamic_mcp.importer.secrets import Hiding, masked, secrets


class Action(StrEnum):
    """What becomes of a server that was found."""

    NEW = "new"
    SAME = "same"
    UPDATE = "update"
    CONFLICT = "conflict"
    SKIP = "skip"


class Choice(StrEnum):
    """Whose side a conflict is settled for; RENAME keeps both."""

    KEEP = "keep"
    REPLACE = "replace"
    RENAME = "rename"


@dataclass(frozen=True)
class Item:
    """One server that was found: the name and the entry that it has in the output afterwards, if it has one.

    `reason` says why it is skipped, and `is_flawed` that it is because our config cannot take it. `conflicts` are
    the fields that both sides changed, and `choice` is what was decided about them.
    """

    found: Found
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
    def changes(self) -> bool:
        """Tell whether the output is another afterwards."""
        return self.entry is not None and self.entry != self.before

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Everything that a person should know, with the secrets in plain text."""
        source = self.found.source
        where = f"{source.tool}/{source.scope.value}/{shown(self.found.name)}"
        reason = "looks like a secret, in plain text"
        named = [(".".join(map(str, each.path)), each) for each in secrets(self.entry or {})]
        of_secrets = [
            Notice(f"{where}.{path}", f"`{each.name}` in it {reason}" if each.path[0] == "url" else reason)
            for path, each in named
        ]
        return (*self.notices, *dict.fromkeys(of_secrets))


@dataclass(frozen=True)
class Plan:
    """A whole import: the output's text before and after, and what is remembered of it.

    `before` is None where there is no output yet, and `servers` are all that it has afterwards. `variables` go to the
    env file, which is None where nothing does.
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

    @property
    def is_changed(self) -> bool:
        """Tell whether there is anything to write into the output."""
        return self.before != self.after and (self.before is not None or bool(self.servers))

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Everything that a person should know, once."""
        of_files = [notice for reading in self.readings for notice in reading.notices]
        of_servers = [notice for item in self.items for notice in item.warnings]
        return tuple(dict.fromkeys([*of_files, *of_servers]))

    @property
    def errors(self) -> tuple[str, ...]:
        """The files that gave nothing, and why."""
        return tuple(f"{each.source.file}: {mask_text(each.error)}" for each in self.readings if each.error)

    @property
    def exports(self) -> dict[str, list[str]]:
        """The variables that a person must set, and for which servers."""
        wanted: dict[str, list[str]] = {}
        for item in self.items:
            for name in item.found.exports if item.entry is not None else ():
                wanted.setdefault(name, []).append(item.name)
        return {name: list(dict.fromkeys(servers)) for name, servers in wanted.items()}

    def literal_secrets(self) -> dict[str, list[str]]:
        """The fields with a secret in plain text, by server, in what this import has written or would write."""
        found: dict[str, list[str]] = {}
        for item in self.items:
            for secret in secrets(item.entry) if item.entry is not None else ():
                found.setdefault(item.name, []).append(".".join(map(str, secret.path)))
        return {name: list(dict.fromkeys(fields)) for name, fields in found.items()}

    def has_secrets(self) -> bool:
        """Tell whether any server of the output has a secret in plain text."""
        return any(secrets(entry) for entry in self.servers.values())

    def diff(self) -> Iterator[str]:
        """The lines of the difference to the output as it is, with secrets hidden."""
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

    def as_json(self) -> dict[str, object]:
        """The plan as JSON, with secrets hidden."""
        return {
            "output": str(self.output),
            "changed": self.is_changed,
            "servers": [_item(item) for item in self.items],
            "files": [_reading(reading) for reading in self.readings],
            "exports": self.exports,
            "env_file": str(self.env_file) if self.env_file else None,
            "remarks": list(self.remarks),
            "warnings": [str(notice) for notice in self.warnings],
        }


def count(items: Sequence[Item]) -> dict[Action, int]:
    """How many servers each action has."""
    return {action: sum(item.action is action for item in items) for action in Action}


def _item(item: Item) -> dict[str, object]:
    source = item.found.source
    return {
        "tool": source.tool,
        "scope": source.scope.value,
        "file": str(source.file),
        "found_as": item.found.name,
        "name": item.name,
        "action": item.action.value,
        "reason": item.reason,
        "conflicts": list(item.conflicts),
        "choice": item.choice.value if item.choice else None,
        "entry": None if item.entry is None else masked(item.entry),
        "warnings": [str(notice) for notice in item.warnings],
    }


def _reading(reading: Reading) -> dict[str, object]:
    source = reading.source
    return {
        "tool": source.tool,
        "scope": source.scope.value,
        "file": str(source.file),
        "servers": len(reading.servers),
        "error": mask_text(reading.error),
        "warnings": [str(notice) for notice in reading.notices],
    }
