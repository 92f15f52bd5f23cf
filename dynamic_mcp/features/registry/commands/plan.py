"""An entry of the config that comes from a registry, as it would be written: shown first, then written as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.config_editor import EMPTY, read_text
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.machine import open_journal, timestamp
from dynamic_mcp.config import edit, jsonc
from dynamic_mcp.config.read import parse_server_names
from dynamic_mcp.importer.convert import vault
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.journal import FileChange

Entry = Mapping[str, object]


@dataclass
class ConfigPlan:
    """New entries for servers of a config, and the secrets that go beside it."""

    file: Path
    before: str | None
    document: Mapping[str, object]
    vault: vault.Vault
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def servers(self) -> Mapping[str, object]:
        """The servers of the config, as they are written there."""
        servers = self.document.get("mcpServers")
        return servers if isinstance(servers, Mapping) else {}

    def after(self) -> str:
        """Return the new text of the config. Raises ConfigError if it would not be valid."""
        text = self.before or EMPTY
        for name, entry in self.entries.items():
            text = edit.put(text, ("mcpServers", name), entry)
        if self.variables() and not self.vault.configured_name:
            text = edit.put(text, ("settings", "variables_file"), self.vault.name)
        parse_server_names(text, self.file)
        return text

    def variables(self) -> Mapping[str, str]:
        """Return the variables to write."""
        return self.vault.changed_variables(self.entries)


def start_plan(file: Path) -> ConfigPlan:
    """Return a plan that changes nothing yet, for a config that need not exist. Raises ConfigError."""
    before = read_text(file) if file.exists() else None
    if before is not None:
        parse_server_names(before, file)
    document = jsonc.loads((before or EMPTY).removeprefix("\ufeff"))
    assert isinstance(document, dict)
    return ConfigPlan(file, before, document, vault.Vault(document, file.absolute(), os.path.expanduser("~")))  # noqa: PTH111


def write_plan(this: Invocation, plan: ConfigPlan, title: str) -> None:
    """Write the config and the file with its secrets, both or none. Raises ConfigError and FileError."""
    changes: list[FileChange] = []
    if variables := plan.variables():
        old = files.read_bytes(plan.vault.file)
        new = vault.set_variables((old or b"").decode(), variables).encode()
        changes.append(FileChange(plan.vault.file, old, new, is_private=True))
    before = None if plan.before is None else plan.before.encode()
    changes.append(FileChange(plan.file.absolute(), before, plan.after().encode(), is_private=before is None))
    with hold_change_lock():
        open_journal().apply(title, "", timestamp(), changes)
    word = "replaced" if any(name in plan.servers for name in plan.entries) else "added"
    record(this, plan.file, "config.changed", {"command": title.partition(" ")[0], word: list(plan.entries)})
