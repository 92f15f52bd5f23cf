"""A first setup as a value: what is imported, and what happens to each AI tool; then carrying it out."""

from __future__ import annotations

import os
import secrets as randomness
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynamic_mcp.cli.import_flow import journal, machine_of, now, write
from dynamic_mcp.cli.installer import tell_limits
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.own_program import own_program
from dynamic_mcp.config.needs import needs
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer import describe, locations
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.found import Found, Machine, Reading, Scope
from dynamic_mcp.importer.importing import Order, plan
from dynamic_mcp.importer.install import entry_in, installation, target
from dynamic_mcp.importer.known import TOOLS
from dynamic_mcp.importer.memory import Key, Memories, key_of
from dynamic_mcp.importer.merge import Entry
from dynamic_mcp.importer.plan import Plan
from dynamic_mcp.importer.read import read_tool
from dynamic_mcp.importer.replacing import replacing
from dynamic_mcp.importer.shapes import has_switch
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import counted

_NAMES_SHOWN = 60


@dataclass(frozen=True)
class FoundTool:
    """An AI tool with settings of the user's on this machine, and the servers in them."""

    adapter: Adapter
    readings: tuple[Reading, ...]

    def __str__(self) -> str:
        names = [found.name for reading in self.readings for found in reading.servers]
        if not names:
            return f"{self.adapter.title}: no servers yet"
        listed = ", ".join(names)
        short = listed if len(listed) <= _NAMES_SHOWN else f"{listed[: _NAMES_SHOWN - 1]}…"
        return f"{self.adapter.title}: {counted(len(names), 'server')} ({short})"


@dataclass(frozen=True)
class Setup:
    """Everything that is going to happen: the `plan` of the import, and whether tools lose what is imported."""

    file: Path
    tools: tuple[FoundTool, ...]
    plan: Plan
    memories: Memories
    replaces: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def new_servers(self) -> dict[str, Entry]:
        """The servers that are not in the config yet, or others than there, by the name that they get."""
        return {item.name: item.entry for item in self.plan.items if item.entry is not None and item.changes}

    @property
    def tools_with_servers(self) -> list[FoundTool]:
        """The tools of which a server is, or will be, in the config."""
        names = {item.found.source.tool for item in self.plan.items if item.entry is not None}
        return [tool for tool in self.tools if tool.adapter.name in names]

    @property
    def is_anything(self) -> bool:
        """Tell whether a file would be another."""
        return self.plan.is_changed or any(
            _has_no_entry(tool.adapter) or self._taken_from(tool) for tool in self.tools
        )

    def without(self, names: Collection[str]) -> Setup:
        """Return the setup without the servers that would get these names."""
        gone = {key_of(item.found) for item in self.plan.items if item.name in names}
        tools = tuple(replace(tool, readings=_kept(tool.readings, gone)) for tool in self.tools)
        return replace(_planned(self.file, tools, self.memories), left_out=tuple(names))

    def replacing(self) -> Setup:
        """Return the setup in which tools lose what is imported from them."""
        return replace(self, replaces=True)

    def origin(self, name: str) -> str:
        """Return the tools that a server is from, in words."""
        tools = {item.found.source.tool for item in self.plan.items if item.name == name}
        return " and ".join(tool.adapter.title for tool in self.tools if tool.adapter.name in tools)

    def steps(self) -> Iterator[str]:
        """Yield what is going to happen, a line for each file."""
        new = self.new_servers
        if self.plan.is_changed:
            what = "create" if self.plan.before is None else "change"
            yield f"{what} {self.file}: {counted(len(new), 'server')} ({', '.join(new)})"
        if self.left_out:
            yield f"leave out {', '.join(self.left_out)}; the tools keep what they have"
        if self.plan.variables:
            secrets = counted(len(self.plan.variables), "secret")
            yield f"move {secrets} into {self.plan.env_file}, which only you can read"
        for tool in self.tools:
            file = target(tool.adapter, Scope.USER, machine_of(None)).file
            out = self._taken_from(tool)
            how = "switch {} off" if has_switch(tool.adapter) else "take {} out"
            rest = how.format(", ".join(out))
            where = f"{tool.adapter.title} ({file})"
            if _has_no_entry(tool.adapter):
                yield f"add dynamic-mcp to {where}{f', and {rest}' if out else ''}"
            elif out:
                yield f"{rest} {'in' if has_switch(tool.adapter) else 'of'} {where}"

    def _taken_from(self, tool: FoundTool) -> list[str]:
        """Return the servers that the tool loses: those that are in the config, and not switched off already."""
        if not self.replaces:
            return []
        found = (found for reading in tool.readings for found in reading.servers)
        there = {key_of(each) for each in found if not (each.is_off and has_switch(tool.adapter))}
        return [item.found.name for item in self.plan.items if item.entry is not None and key_of(item.found) in there]


def found_tools(machine: Machine) -> list[FoundTool]:
    """Return the tools that have settings of the user's here, which can be written."""
    return [
        FoundTool(tool, tuple(read_tool(tool, (Scope.USER,), machine)))
        for tool in TOOLS
        if any(not place.borrowed for place, _ in locations.files(tool, machine, (Scope.USER,)))
        and _can_be_written(tool, machine)
    ]


def planned(file: Path, tools: Sequence[FoundTool]) -> Setup:
    """Work out what importing from these tools would do, with their secrets moved into a private file."""
    return _planned(file, tuple(tools), Memories(paths.state_dir() / "imports", randomness.token_hex(16)))


def carried_out(setup: Setup, out: Output) -> list[str]:
    """Write the config and the tools' files; return the ids of what can be undone, the first first."""
    machine = machine_of(None)
    deeds = [write(setup.plan, setup.memories)]
    needed = needs(setup.file, os.environ)
    program, remark = own_program()
    for tool in setup.tools:
        wanted = replacing(
            tool.adapter, (Scope.USER,), machine, memory=setup.plan.memory, names=setup.plan.servers.keys()
        )
        made = installation(
            tool.adapter,
            Scope.USER,
            machine,
            start=[*program, str(setup.file.absolute())],
            needed=needed.names,
            replaced=wanted.replaced if setup.replaces else None,
        )
        if made.is_needed:
            about = f"{tool.adapter.name}/{Scope.USER.value}"
            deeds.append(journal().do(f"install {tool.adapter.name}", about, now(), made.changes))
        tell_limits(out, tool.adapter, made, needed, remark)
    return [deed.id for deed in deeds if deed is not None]


def _planned(file: Path, tools: tuple[FoundTool, ...], memories: Memories) -> Setup:
    machine = machine_of(None)
    order = Order(
        output=file.absolute(),
        home=str(machine.home),
        project=machine.project,
        secrets="env",
        environment=machine.environment,
    )
    readings = [reading for tool in tools for reading in tool.readings]
    return Setup(file, tools, plan(readings, order, memories, describe=_described), memories)


def _described(found: Found) -> Mapping[str, object]:
    return describe.described(found.name, found.entry)


def _kept(readings: Sequence[Reading], gone: Collection[Key]) -> tuple[Reading, ...]:
    return tuple(
        replace(reading, servers=tuple(found for found in reading.servers if key_of(found) not in gone))
        for reading in readings
    )


def _has_no_entry(adapter: Adapter) -> bool:
    machine = machine_of(None)
    return entry_in(adapter, target(adapter, Scope.USER, machine), machine) is None


def _can_be_written(adapter: Adapter, machine: Machine) -> bool:
    try:
        target(adapter, Scope.USER, machine)
    except DynamicMcpError:
        return False
    return True
