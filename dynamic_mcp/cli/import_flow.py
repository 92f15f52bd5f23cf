"""An import on the command line: what is found, what a person says to it, and what is shown of it."""

from __future__ import annotations

import contextlib
import os
import secrets as randomness
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from dynamic_mcp.cli import import_view as view
from dynamic_mcp.cli.change_lock import changing_files
from dynamic_mcp.cli.invocation import Invocation, config_file
from dynamic_mcp.cli.respondent import Asking, asking
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.importer import describe, files, read, vault
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.found import Found, Machine, Reading, Scope
from dynamic_mcp.importer.importing import Order, plan
from dynamic_mcp.importer.journal import Change, Deed, Edit, Journal
from dynamic_mcp.importer.memory import Memories, written
from dynamic_mcp.importer.merge import Conflict, Entry
from dynamic_mcp.importer.plan import Choice, Plan
from dynamic_mcp.importer.tree import NOTHING
from dynamic_mcp.importer.work_tree import is_exposed
from dynamic_mcp.system import paths

OK, FAILED, NOTHING_FOUND, IN_PART = 0, 1, 3, 4


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    tools: tuple[str, ...]
    is_all: bool
    files: tuple[str, ...]
    scope: Literal["user", "project", "local", "all"] | None
    is_global: bool
    project: str | None
    output: str | None
    on_conflict: Literal["ask", "keep", "replace", "rename"]
    only: tuple[str, ...]
    exclude: tuple[str, ...]
    skip_disabled: bool
    secrets: Literal["keep", "env", "fail"]
    describe: Literal["auto", "server", "ask", "none"] | None
    trust: bool
    strict: bool
    yes: bool
    force: bool
    dry_run: bool
    is_list: bool

    @property
    def is_open(self) -> bool:
        """Tell whether nothing says which tools are meant."""
        return not (self.tools or self.files)

    @property
    def only_looks(self) -> bool:
        """Tell whether nothing is written, so that nothing needs to be asked."""
        return self.dry_run or self.is_list


def run(this: Invocation, options: Options) -> int:
    """Import; return the exit code."""
    machine = machine_of(options.project)
    ask = asking(this, is_asked=not (options.yes or options.only_looks or this.out.asked_for_json))
    if options.is_open and not (options.is_all or options.is_list or ask.is_terminal):
        raise click.UsageError("name a tool, or give --all; `dynamic-mcp import --list` shows what is here")
    order = _order(options, machine)
    readings = [reading for reading in _readings(options, machine) if _counts(reading, order.output)]
    if not any(reading.servers or reading.error for reading in readings):
        return _nothing(this, options, machine, readings)
    memories = Memories(paths.state_dir() / "imports", randomness.token_hex(16))
    if options.is_list:
        view.show_readings(this.out, plan(readings, order, memories))
        return OK
    if options.is_open and ask.is_terminal:
        view.show_readings(this.out, plan(readings, order, memories))
        readings = ask.which(readings, is_all=options.is_all)
        if not readings:
            this.out.words("nothing was chosen, and nothing is written")
            return OK
    if order.output.exists() and not options.force and ask.has_answers:
        order = replace(order, is_afresh=ask.may_overwrite(order.output))
    if ask.has_answers:
        readings = _by_name(readings)
    describing = _describing(this, options, order, readings, memories, ask)
    with contextlib.ExitStack() as turn:
        if not (ask.is_terminal or ask.has_answers):
            turn.enter_context(changing_files())
        made = plan(readings, order, memories, settle=_settling(options, ask), describe=describing)
        if ask.is_terminal or ask.has_answers:  # who is asked keeps nobody else waiting
            turn.enter_context(changing_files())
        return _finish(this, options, made, memories)


def machine_of(project: str | None) -> Machine:
    """Return this machine, with the project that is meant."""
    platform: Literal["linux", "darwin", "win32"] = "linux"
    if sys.platform in ("darwin", "win32"):
        platform = sys.platform
    folder = os.path.abspath(project or ".")  # noqa: PTH100 -- tools know a project by its path with links in it
    return Machine(Path.home(), Path(folder), os.environ, platform)


def journal() -> Journal:
    """Return the journal of this user."""
    return Journal(paths.state_dir() / "journal")


def now() -> str:
    """Return the time as the journal has it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _order(options: Options, machine: Machine) -> Order:
    return Order(
        output=config_file(options.output, may_be_new=True).absolute(),
        home=str(machine.home),
        project=machine.project,
        only=options.only,
        exclude=options.exclude,
        skip_disabled=options.skip_disabled,
        secrets=options.secrets,
        is_afresh=options.force,
        environment=machine.environment,
    )


def _readings(options: Options, machine: Machine) -> list[Reading]:
    scopes = _scopes(options)
    found: list[Reading] = []
    for tool in _tools(options):
        found += read.read_tool(tool, scopes, machine)
    found += [read.read_file(Path(file).absolute(), machine) for file in options.files]
    if options.is_open:
        found += read.read_all(machine, scopes)
    return _without_echoes(found)


def _without_echoes(readings: Sequence[Reading]) -> list[Reading]:
    """Leave out the project's files that are the user's own, as they are in the home directory."""
    users = {
        (each.source.tool, each.source.file)
        for each in readings
        if each.source.scope is Scope.USER and (each.servers or each.error)
    }
    return [
        each
        for each in readings
        if each.source.scope is not Scope.PROJECT or (each.source.tool, each.source.file) not in users
    ]


def _tools(options: Options) -> list[Adapter]:
    return list({tool.name: tool for tool in map(read.tool_named, options.tools)}.values())


def _scopes(options: Options) -> tuple[Scope, ...] | None:
    if options.is_global:
        return (Scope.USER,)
    if options.scope == "all" or (options.scope is None and options.is_open and not options.is_all):
        return tuple(Scope)
    return None if options.scope is None else (Scope(options.scope),)


def _counts(reading: Reading, output: Path) -> bool:
    """Tell whether a file is to be imported: not what the import itself writes, and not what holds nothing."""
    if reading.source.file.absolute() == output:
        raise ConfigError(str(output), "", "is also the output", hint="name another file with --output")
    return bool(reading.servers or reading.error or reading.notices)


def _nothing(this: Invocation, options: Options, machine: Machine, readings: Sequence[Reading]) -> int:
    for reading in readings:
        view.show_notices(this.out, reading.notices)
    this.out.words("nothing was found")
    scopes = _scopes(options) or tuple(Scope)
    for tool in _tools(options):
        looked = [str(source.file) for source in read.sources(tool, machine, scopes)]
        this.out.words(f"hint: looked for {tool.title} in " + ", ".join(dict.fromkeys(looked)))
    if this.out.asked_for_json:
        this.out.json({"servers": [], "files": [], "changed": False})
    return NOTHING_FOUND


def _settling(options: Options, ask: Asking) -> Callable[[Conflict], Choice]:
    """Return what decides a conflict: the command line, a person at the terminal, or what is there already."""
    if options.on_conflict != "ask":
        return lambda conflict: Choice(options.on_conflict)
    return ask.whose if ask.is_terminal else lambda conflict: Choice.KEEP


def _by_name(readings: Sequence[Reading]) -> list[Reading]:
    return [replace(each, servers=tuple(sorted(each.servers, key=lambda found: found.name))) for each in readings]


def _describing(
    this: Invocation, options: Options, order: Order, readings: Sequence[Reading], memories: Memories, ask: Asking
) -> Callable[[Found], Entry]:
    """Return what describes a new server; the servers themselves are asked here, before any file is locked."""
    if options.describe == "server" and not options.dry_run:
        quiet = options if options.on_conflict != "ask" else replace(options, on_conflict="keep")
        return _from_servers(this, options, plan(readings, order, memories, settle=_settling(quiet, ask)))
    if options.describe == "none":
        return lambda found: found.entry
    if ask.has_answers or (options.describe == "ask" and ask.is_terminal):
        return ask.about
    return lambda found: describe.described(found.name, found.entry)


def _from_servers(this: Invocation, options: Options, first: Plan) -> Callable[[Found], Entry]:
    from dynamic_mcp.cli.server_descriptions import descriptions

    texts: Mapping[str, str] = descriptions(this.out, first, may_start_projects=options.trust)
    return lambda found: describe.described(found.name, found.entry, texts.get(found.name, ""))


def _finish(this: Invocation, options: Options, made: Plan, memories: Memories) -> int:
    """Show the plan, and carry it out where nothing is against it."""
    if options.dry_run and not this.out.asked_for_json:
        view.show_diff(this.out, made)
    view.show_warnings(this.out, made)
    plain = made.literal_secrets()
    if options.secrets == "fail" and plain:
        named = "; ".join(f"{name} ({', '.join(fields)})" for name, fields in plain.items())
        raise DynamicMcpError(
            f"secrets in plain text, so nothing was written: {named}",
            hint="`--secrets env` moves them into a private file",
        )
    if options.strict and (made.warnings or made.errors):
        raise DynamicMcpError(
            f"{len(made.warnings) + len(made.errors)} warnings with --strict, and nothing is written"
        )
    if all(reading.error for reading in made.readings):
        return FAILED
    if options.dry_run:
        view.show_to_do(this.out, made)
    else:
        write(made, memories)
        view.show_done(this.out, made, is_exposed=bool(plain) and is_exposed(made.output, os.environ))
    if this.out.asked_for_json:
        this.out.json(made.as_json())
    return IN_PART if made.errors or any(item.is_flawed for item in made.items) else OK


def write(made: Plan, memories: Memories) -> Deed | None:
    """Write what a plan says; return what can be undone, None where only the memory of the import changes."""
    changes: list[Change] = []
    if made.env_file is not None:
        before = files.read_bytes(made.env_file)
        after = vault.updated((before or b"").decode(), made.variables).encode()
        changes.append(Change(made.env_file, before, after, is_private=True))
    if made.is_changed:
        before = None if made.before is None else made.before.encode()
        changes.append(Change(made.output, before, made.after.encode(), _edits(made), made.has_secrets()))
    memory = memories.file(made.output)
    changes.append(
        Change(memory, files.read_bytes(memory), written(made.output, made.memory), is_private=True, is_silent=True)
    )
    if len(changes) > 1:
        tools = list(dict.fromkeys(reading.source.tool for reading in made.readings if reading.servers))
        return journal().do(f"import {' '.join(tools)}", "", now(), changes)
    paths.write_private(memory, changes[0].after)
    return None


def _edits(made: Plan) -> tuple[Edit, ...]:
    return tuple(
        Edit(("mcpServers", item.name), NOTHING if item.before is None else dict(item.before), dict(item.entry))
        for item in made.items
        if item.entry is not None and item.entry != item.before
    )
