"""Plans new entries for servers of a config, with their secrets: first shown, then written together."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.config_editor import read_text
from dynamic_mcp.cli.import_flow import write_changes
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.read import parse_server_names
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.planner import read_output


def start_plan(file: Path) -> Plan:
    """Return an empty plan for a config, which need not exist yet. Raises ConfigError."""
    if file.exists():
        parse_server_names(read_text(file), file)
    config = read_output(file.absolute(), str(Path.home()))
    return Plan(config, (), config.servers)


def write_plan(context: Invocation, plan: Plan, title: str) -> None:
    """Write the config and the file with its secrets, or neither. Raises ConfigError and FileError."""
    parse_server_names(plan.after, plan.output)
    with hold_change_lock():
        write_changes(plan, title, is_private=plan.before is None)
    names = list(plan.changed_servers)
    word = "replaced" if any(name in plan.target.servers for name in names) else "added"
    record(context, plan.output, "config.changed", {"command": title.partition(" ")[0], word: names})
