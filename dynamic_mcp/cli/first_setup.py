"""A first setup: plans the import and the changes of each AI tool, then applies them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynamic_mcp.cli.change_history import SETUP
from dynamic_mcp.cli.import_flow import list_changes
from dynamic_mcp.cli.installer import warn_about_limits
from dynamic_mcp.cli.machine import local_machine, open_journal, shorten_path, timestamp
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config import jsonc
from dynamic_mcp.config.needs import RequiredVariables, find_required_variables
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert import description
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.formats.shapes import has_switch
from dynamic_mcp.importer.formats.tree import NOTHING, at
from dynamic_mcp.importer.installer import InstallPlan, find_target, plan_installation, read_entry
from dynamic_mcp.importer.journal import FileChange
from dynamic_mcp.importer.model import Entry, ForeignServer, Machine, Reading, ToolScope
from dynamic_mcp.importer.planner import ImportRequest, Replacement, plan_import, plan_replacement
from dynamic_mcp.importer.reader import read_user_settings
from dynamic_mcp.importer.tools import locations
from dynamic_mcp.importer.tools.catalog import TOOLS
from dynamic_mcp.system.own_program import find_own_program
from dynamic_mcp.system.text import pluralize

DAEMON = ("settings", "daemon")
_NAMES_SHOWN = 60


@dataclass(frozen=True)
class ToolSettings:
    """The user's settings of one AI tool on this machine, and the servers in them."""

    adapter: Adapter
    readings: tuple[Reading, ...]

    @property
    def local_servers(self) -> list[str]:
        """The names of the servers that the tool has only in the current directory."""
        return _names(filter(_is_local, self.readings))

    def without_local_servers(self) -> ToolSettings:
        return replace(self, readings=tuple(each for each in self.readings if not _is_local(each)))

    @property
    def scopes(self) -> tuple[ToolScope, ...]:
        """The scopes whose servers are imported."""
        return (ToolScope.USER, *((ToolScope.LOCAL,) if self.local_servers else ()))

    def __str__(self) -> str:
        names = _names(each for each in self.readings if not _is_local(each))
        if not names:
            return f"{self.adapter.title}: no servers yet"
        all_names = ", ".join(names)
        short = all_names if len(all_names) <= _NAMES_SHOWN else f"{all_names[: _NAMES_SHOWN - 1]}…"
        return f"{self.adapter.title}: {pluralize(len(names), 'server')} ({short})"


@dataclass(frozen=True)
class Setup:
    """All changes to make: the plan of the import, and whether imported servers are removed from their tools."""

    file: Path
    tools: tuple[ToolSettings, ...]
    plan: Plan
    is_replacing: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def new_servers(self) -> dict[str, Entry]:
        """The servers that the config does not have yet, by their new name."""
        return self.plan.changed_servers

    @property
    def imported_names(self) -> list[str]:
        """The names in the config of the servers that the tools have."""
        return list(dict.fromkeys(item.name for item in self.plan.items if item.entry is not None))

    @property
    def tools_with_servers(self) -> list[ToolSettings]:
        """The tools that have a server which is, or will be, in the config."""
        names = {item.server.source.tool for item in self.plan.items if item.entry is not None}
        return [tool for tool in self.tools if tool.adapter.name in names]

    @property
    def has_config(self) -> bool:
        """Return whether a config exists or is created."""
        return self.plan.before is not None or bool(self.plan.servers)

    @property
    def daemon(self) -> bool | None:
        """Return whether the config has a daemon; None if it has no such setting."""
        value = at(jsonc.loads(self.plan.after.removeprefix("\ufeff")), DAEMON)
        return None if value is None or value is NOTHING else value is not False

    @property
    def has_changes(self) -> bool:
        return self.plan.is_changed or any(
            _has_no_entry(tool.adapter) or self._servers_to_remove(tool) for tool in self.tools
        )

    def without(self, names: Collection[str]) -> Setup:
        return replace(self, plan=self.plan.without(names), left_out=tuple(names))

    def with_replacement(self) -> Setup:
        """Return the setup with the imported servers removed from their tools."""
        return replace(self, is_replacing=True)

    def with_daemon(self, *, is_on: bool) -> Setup:
        """Return the setup with a daemon in the config, or with none; an existing daemon keeps its fields."""
        return self if self.daemon is is_on else replace(self, plan=replace(self.plan, daemon=is_on))

    def origin(self, name: str) -> str:
        """Return the titles of the tools that a server comes from."""
        tools = {item.server.source.tool for item in self.plan.items if item.name == name}
        return " and ".join(tool.adapter.title for tool in self.tools if tool.adapter.name in tools)

    def steps(self) -> Iterator[str]:
        """Yield the changes to make, one line for each file."""
        new = self.new_servers
        if new:
            what = "create" if self.plan.before is None else "change"
            yield f"{what} {shorten_path(self.file)}: {pluralize(len(new), 'server')} ({', '.join(new)})"
        if self.plan.is_changed and self.plan.daemon is not None:
            how = (
                "keep the servers running, shared by your AI tools and windows"
                if self.daemon
                else "run the servers anew for each AI tool and window"
            )
            yield f"{how} (`settings.daemon`)"
        if self.left_out:
            yield f"skip {', '.join(self.left_out)}, which your tools keep"
        if self.plan.variables:
            secrets = pluralize(len(self.plan.variables), "secret")
            yield f"move {secrets} into {shorten_path(self.plan.env_file)}, which only you can read"
        for tool in self.tools:
            file = find_target(tool.adapter, ToolScope.USER, local_machine(None)).file
            names = self._servers_to_remove(tool)
            how = "disable {}" if has_switch(tool.adapter) else "remove {}"
            removal = how.format(", ".join(names))
            where = f"{tool.adapter.title} ({shorten_path(file)})"
            if _has_no_entry(tool.adapter):
                yield f"add dynamic-mcp to {where}{f', and {removal}' if names else ''}"
            elif names:
                yield f"{removal} {'in' if has_switch(tool.adapter) else 'from'} {where}"

    def replacement(self, tool: ToolSettings) -> Replacement:
        """Return the servers of the tool that the config has."""
        return plan_replacement(tool.adapter, tool.scopes, local_machine(None), self.plan.target, self.plan.servers)

    def _servers_to_remove(self, tool: ToolSettings) -> list[str]:
        """Return the servers to remove from the tool, without those already disabled in it."""
        if not self.is_replacing:
            return []
        disabled = {server.name for reading in tool.readings for server in reading.servers if server.is_off}
        names = [name for names in self.replacement(tool).servers.values() for name in names]
        return [name for name in names if not (name in disabled and has_switch(tool.adapter))]


def find_tools(machine: Machine) -> list[ToolSettings]:
    """Return the tools whose user settings exist on this machine and can be written."""
    return [
        ToolSettings(tool, tuple(read_user_settings(tool, machine)))
        for tool in TOOLS
        if any(not place.borrowed for place, _ in locations.find_files(tool, machine, (ToolScope.USER,)))
        and _can_be_written(tool, machine)
    ]


def plan_setup(file: Path, tools: Sequence[ToolSettings]) -> Setup:
    """Plan an import from these tools, with their secrets moved into a private file."""
    machine = local_machine(None)
    request = ImportRequest(
        output=file.absolute(),
        home=str(machine.home),
        project=machine.project,
        secrets="env",
        environment=machine.environment,
    )
    readings = [reading for tool in tools for reading in tool.readings]
    return Setup(file, tuple(tools), plan_import(readings, request, describe=_describe))


@dataclass(frozen=True)
class AppliedSetup:
    """What was done: the id of the change for `undo`, and how each tool starts dynamic-mcp."""

    id: str
    plans: Sequence[tuple[Adapter, InstallPlan]]
    needed: RequiredVariables
    caveat: str

    def warn(self, out: Output) -> None:
        """Warn about the limits of the tools."""
        for adapter, plan in self.plans:
            warn_about_limits(out, adapter, plan, self.needed, self.caveat)


def apply_setup(setup: Setup) -> AppliedSetup:
    """Write the config and the tools' files, all or none, as one change. Raises DynamicMcpError."""
    machine, (program, caveat) = local_machine(None), find_own_program()
    plans: list[tuple[Adapter, InstallPlan]] = []
    needed = RequiredVariables((), {})

    def changes() -> Iterator[FileChange]:
        nonlocal needed
        yield from list_changes(setup.plan, is_private=setup.plan.has_secrets())
        needed = find_required_variables(setup.file, os.environ)  # of the config as it is now
        for tool in setup.tools:
            plan = plan_installation(
                tool.adapter,
                ToolScope.USER,
                machine,
                start=[*program, str(setup.file.absolute())],
                variables=needed.names,
                replacements=setup.replacement(tool).servers if setup.is_replacing else None,
            )
            plans.append((tool.adapter, plan))
            yield from plan.changes

    entry = open_journal().apply(SETUP, "", timestamp(), changes())
    return AppliedSetup(entry.id, plans, needed, caveat)


def _names(readings: Iterable[Reading]) -> list[str]:
    return [found.name for reading in readings for found in reading.servers]


def _is_local(reading: Reading) -> bool:
    return reading.source.scope is ToolScope.LOCAL and not reading.omitted_count


def _describe(server: ForeignServer) -> Entry:
    return description.with_description(server.name, server.entry)


def _has_no_entry(adapter: Adapter) -> bool:
    machine = local_machine(None)
    return read_entry(adapter, find_target(adapter, ToolScope.USER, machine), machine) is None


def _can_be_written(adapter: Adapter, machine: Machine) -> bool:
    try:
        find_target(adapter, ToolScope.USER, machine)
    except DynamicMcpError:
        return False
    return True
