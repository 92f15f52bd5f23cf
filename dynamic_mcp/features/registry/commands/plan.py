"""Plans new entries for servers of a config, with their secrets: first shown, then written together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.config_editor import read_text
from dynamic_mcp.cli.import_flow import write_changes
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.read import parse_server_names
from dynamic_mcp.importer.convert.plan import OutputConfig, Plan
from dynamic_mcp.importer.convert.vault import Vault
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.importer.planner import read_output


@dataclass
class ConfigPlan:
    """A config, and new entries for it."""

    config: OutputConfig
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.config.file

    @property
    def vault(self) -> Vault:
        return self.config.vault

    @property
    def servers(self) -> Mapping[str, Entry]:
        """The servers of the config, as written in the file."""
        return self.config.servers

    def variables(self) -> Mapping[str, str]:
        return self.vault.changed_variables(self.entries)


def start_plan(file: Path) -> ConfigPlan:
    """Return an empty plan for a config, which need not exist yet. Raises ConfigError."""
    if file.exists():
        parse_server_names(read_text(file), file)
    return ConfigPlan(read_output(file.absolute(), str(Path.home())))


def write_plan(context: Invocation, plan: ConfigPlan, title: str) -> None:
    """Write the config and the file with its secrets, or neither. Raises ConfigError and FileError."""
    result = Plan(plan.config, (), {**plan.servers, **plan.entries})
    parse_server_names(result.after, plan.file)
    with hold_change_lock():
        write_changes(result, title, is_private=plan.config.before is None)
    word = "replaced" if any(name in plan.servers for name in plan.entries) else "added"
    record(context, plan.file, "config.changed", {"command": title.partition(" ")[0], word: list(plan.entries)})
