"""The entries that start dynamic-mcp in the AI tools of this machine, and the variables these tools withhold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.config.clients import CLIENTS, Client
from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.config.read import find
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.importer.installer import list_targets, read_entry
from dynamic_mcp.importer.model import Machine, Scope
from dynamic_mcp.importer.reader import find_tool
from dynamic_mcp.system import paths


def check_variables(config: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each tool that starts this config without passing on the variables that it needs."""
    names = find_required_variables(config, environment).names
    if not names:
        return []
    machine = local_machine(None)
    return [
        _finding(client, scope, file, missing, config, environment)
        for client, scope, file, entry in _entries(machine)
        if _is_for(entry, config) and (missing := client.list_withheld(names, entry))
    ]


def _entries(machine: Machine) -> Iterator[tuple[Client, Scope, Path, Mapping[str, object]]]:
    """Yield our entries in the tools that withhold variables; a file that cannot be read counts as empty."""
    for client in CLIENTS:
        adapter = find_tool(client.tool)
        for target in list_targets(adapter, tuple(Scope), machine):
            try:
                entry = read_entry(adapter, target, machine)
            except DynamicMcpError:
                continue
            if entry is not None:
                yield client, target.place.scope, target.file, entry


def _is_for(entry: Mapping[str, object], config: Path) -> bool:
    """Tell whether this config is among the arguments of an entry."""
    words = [word for value in entry.values() for word in (value if isinstance(value, list) else [value])]
    return str(config.absolute()) in words


def _finding(
    client: Client, scope: Scope, file: Path, names: list[str], config: Path, environment: Mapping[str, str]
) -> Finding:
    variables = ", ".join(f"`{name}`" for name in names)
    verb = "may not" if client.inspects_values else "does not"
    what = f"{client.title} {verb} pass {variables} to dynamic-mcp: it {client.habit}"
    if not client.can_be_asked:
        return Finding(Level.WARNING, str(file), what, "put them into a file that `settings.variables_file` names")
    command = f"dynamic-mcp install {client.tool}"
    if scope is not Scope.USER:
        command += f" --scope {scope.value}"
    if not _is_default(config, environment):
        command += f" -c {config.absolute()}"
    return Finding(Level.WARNING, str(file), what, f"run `{command}`")


def _is_default(config: Path, environment: Mapping[str, str]) -> bool:
    """Tell whether this config is the one that is used by default."""
    try:
        return find(None, environment, cwd=Path.cwd(), user_dir=paths.config_dir()).absolute() == config.absolute()
    except ConfigError:
        return False
