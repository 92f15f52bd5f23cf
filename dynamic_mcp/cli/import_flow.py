"""The `import` command: reads the settings of tools, lets a person choose, and merges the servers into a config."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets as randomness
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation, find_config
from dynamic_mcp.cli.machine import local_machine, open_journal, timestamp
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.respondent import Respondent, find_respondent
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.importer import reader
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert import description, vault
from dynamic_mcp.importer.convert.memory import MemoryStore, encode_memory
from dynamic_mcp.importer.convert.merge import Conflict, Entry
from dynamic_mcp.importer.convert.plan import Action, Choice, Item, Plan, count_actions
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.changes import Change, Edit
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.importer.journal import Journal, JournalEntry
from dynamic_mcp.importer.model import ForeignServer, Machine, Notice, Reading, Scope, Source
from dynamic_mcp.importer.planner import ImportRequest, build_config, plan_import
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import pluralize

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.groups.catalog import Catalog
    from dynamic_mcp.proxy.client_group import ClientGroup

OK, FAILED, NOTHING_FOUND, IN_PART = 0, 1, 3, 4
_GIT_WITHIN_S = 5.0
_SAFE_GIT_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_DESCRIBED_WITHIN_S = 60.0
_MOST_TOOLS = 12


@dataclass(frozen=True)
class ImportOptions:
    """The options of the command line."""

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
    def has_no_source(self) -> bool:
        """Tell whether neither tools nor files are given."""
        return not (self.tools or self.files)

    @property
    def is_read_only(self) -> bool:
        """Tell whether nothing is written, so that there is nothing to ask."""
        return self.dry_run or self.is_list


def import_servers(this: Invocation, options: ImportOptions) -> int:
    """Import servers; return the exit code."""
    machine = local_machine(options.project)
    respondent = find_respondent(
        this, may_ask=not (options.yes or options.is_read_only or this.out.is_json_requested)
    )
    if options.has_no_source and not (options.is_all or options.is_list or respondent.is_terminal):
        raise click.UsageError("name a tool, or give --all; `dynamic-mcp import --list` shows what there is")
    order = _order(options, machine)
    readings = [reading for reading in _read_settings(options, machine) if _is_importable(reading, order.output)]
    if not any(reading.servers or reading.error for reading in readings):
        return _report_nothing(this, options, machine, readings)
    memories = MemoryStore(paths.state_dir() / "imports", randomness.token_hex(16))
    if options.is_list:
        _show_readings(this.out, plan_import(readings, order, memories))
        return OK
    if options.has_no_source and respondent.is_terminal:
        _show_readings(this.out, plan_import(readings, order, memories))
        readings = respondent.choose_files(readings, is_all=options.is_all)
        if not readings:
            this.out.say("nothing was chosen, so nothing was written")
            return OK
    if order.output.exists() and not options.force and respondent.has_answers:
        order = replace(order, is_afresh=respondent.confirm_overwrite(order.output))
    if respondent.has_answers:
        readings = _sort_servers(readings)
    describer = _describer(this, options, order, readings, memories, respondent)
    with contextlib.ExitStack() as turn:
        if not (respondent.is_terminal or respondent.has_answers):
            turn.enter_context(hold_change_lock())
        planned = plan_import(
            readings, order, memories, settle=_conflict_settler(options, respondent), describe=describer
        )
        if respondent.is_terminal or respondent.has_answers:  # the lock is not held while a person answers
            turn.enter_context(hold_change_lock())
        return _apply(this, options, planned, memories)


def _order(options: ImportOptions, machine: Machine) -> ImportRequest:
    return ImportRequest(
        output=find_config(options.output, may_be_new=True).absolute(),
        home=str(machine.home),
        project=machine.project,
        only=options.only,
        exclude=options.exclude,
        skip_disabled=options.skip_disabled,
        secrets=options.secrets,
        is_afresh=options.force,
        environment=machine.environment,
    )


def _read_settings(options: ImportOptions, machine: Machine) -> list[Reading]:
    scopes = _scopes(options)
    found: list[Reading] = []
    for tool in _tools(options):
        found += reader.read_tool(tool, scopes, machine)
    found += [reader.read_file(Path(file).absolute(), machine) for file in options.files]
    if options.has_no_source:
        found += reader.read_all(machine, scopes)
    return _without_duplicates(found)


def _without_duplicates(readings: Sequence[Reading]) -> list[Reading]:
    """Leave out project files that are the user's own, as when the project is the home directory."""
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


def _tools(options: ImportOptions) -> list[Adapter]:
    return list({tool.name: tool for tool in map(reader.find_tool, options.tools)}.values())


def _scopes(options: ImportOptions) -> tuple[Scope, ...] | None:
    if options.is_global:
        return (Scope.USER,)
    if options.scope == "all" or (options.scope is None and options.has_no_source and not options.is_all):
        return tuple(Scope)
    return None if options.scope is None else (Scope(options.scope),)


def _is_importable(reading: Reading, output: Path) -> bool:
    """Tell whether a file has anything to import. Raises ConfigError if it is also the output."""
    if reading.source.file.absolute() == output:
        raise ConfigError(str(output), "", "is both an input and the output", hint="name another file with --output")
    return bool(reading.servers or reading.error or reading.notices)


def _report_nothing(this: Invocation, options: ImportOptions, machine: Machine, readings: Sequence[Reading]) -> int:
    for reading in readings:
        _show_notices(this.out, reading.notices)
    this.out.say("no servers were found")
    scopes = _scopes(options) or tuple(Scope)
    for tool in _tools(options):
        looked = [str(source.file) for source in reader.list_sources(tool, machine, scopes)]
        this.out.say(f"hint: looked for {tool.title} in " + ", ".join(dict.fromkeys(looked)))
    if this.out.is_json_requested:
        this.out.print_json({"servers": [], "files": [], "changed": False})
    return NOTHING_FOUND


def _conflict_settler(options: ImportOptions, respondent: Respondent) -> Callable[[Conflict], Choice]:
    """Return what settles a conflict: the command line, a person at the terminal, or else the config's side."""
    if options.on_conflict != "ask":
        return lambda conflict: Choice(options.on_conflict)
    return respondent.settle_conflict if respondent.is_terminal else lambda conflict: Choice.KEEP


def _sort_servers(readings: Sequence[Reading]) -> list[Reading]:
    return [replace(each, servers=tuple(sorted(each.servers, key=lambda found: found.name))) for each in readings]


def _describer(
    this: Invocation,
    options: ImportOptions,
    order: ImportRequest,
    readings: Sequence[Reading],
    memories: MemoryStore,
    respondent: Respondent,
) -> Callable[[ForeignServer], Entry]:
    """Return what describes a new server. Servers are asked here, before any file is locked."""
    if options.describe == "server" and not options.dry_run:
        quiet = options if options.on_conflict != "ask" else replace(options, on_conflict="keep")
        return _ask_servers(
            this, options, plan_import(readings, order, memories, settle=_conflict_settler(quiet, respondent))
        )
    if options.describe == "none":
        return lambda found: found.entry
    if respondent.has_answers or (options.describe == "ask" and respondent.is_terminal):
        return respondent.describe_server
    return lambda found: description.with_description(found.name, found.entry)


def _ask_servers(this: Invocation, options: ImportOptions, first: Plan) -> Callable[[ForeignServer], Entry]:
    texts: Mapping[str, str] = _fetch_descriptions(this, first, may_start_projects=options.trust)
    return lambda found: description.with_description(found.name, found.entry, texts.get(found.name, ""))


def _apply(this: Invocation, options: ImportOptions, planned: Plan, memories: MemoryStore) -> int:
    """Show the plan, and write it unless an option forbids that."""
    if options.dry_run and not this.out.is_json_requested:
        _show_diff(this.out, planned)
    show_warnings(this.out, planned)
    plain = planned.find_secrets()
    if options.secrets == "fail" and plain:
        fields_by_server = "; ".join(f"{name} ({', '.join(fields)})" for name, fields in plain.items())
        raise DynamicMcpError(
            f"secrets in plain text, so nothing was written: {fields_by_server}",
            hint="`--secrets env` moves them into a private file",
        )
    if options.strict and (planned.warnings or planned.errors):
        raise DynamicMcpError(
            f"{len(planned.warnings) + len(planned.errors)} warnings with --strict, so nothing was written"
        )
    if all(reading.error for reading in planned.readings):
        return FAILED
    if options.dry_run:
        _show_actions(this.out, planned)
    else:
        write_plan(planned, memories)
        if planned.is_changed:
            servers = [edit.path[1] for edit in _list_edits(planned) if edit.path[:1] == ("mcpServers",)]
            record(this, planned.output, "config.changed", {"command": "import", "imported": servers})
        _show_summary(this.out, planned, is_exposed=bool(plain) and _is_exposed(planned.output, os.environ))
    if this.out.is_json_requested:
        this.out.print_json(planned.to_json())
    return IN_PART if planned.errors or any(item.is_flawed for item in planned.items) else OK


def write_plan(planned: Plan, memories: MemoryStore, journal: Journal | None = None) -> JournalEntry | None:
    """Write what a plan says; return the change to undo, or None if only the memory of the import changes.

    Without a `journal`, the change stands alone.
    """
    changes: list[Change] = []
    if planned.env_file is not None:
        before = files.read_bytes(planned.env_file)
        after = vault.set_variables((before or b"").decode(), planned.variables).encode()
        changes.append(Change(planned.env_file, before, after, is_private=True))
    if planned.is_changed:
        before = None if planned.before is None else planned.before.encode()
        changes.append(
            Change(planned.output, before, planned.after.encode(), _list_edits(planned), planned.has_secrets())
        )
    memory = memories.file_of(planned.output)
    changes.append(
        Change(
            memory,
            files.read_bytes(memory),
            encode_memory(planned.output, planned.memory),
            is_private=True,
            is_silent=True,
        )
    )
    if len(changes) > 1:
        tools = list(dict.fromkeys(reading.source.tool for reading in planned.readings if reading.servers))
        return (journal or open_journal()).apply(" ".join(("import", *tools)), "", timestamp(), changes)
    paths.write_private(memory, changes[0].after)
    return None


def _list_edits(planned: Plan) -> tuple[Edit, ...]:
    of_servers = (
        Edit(("mcpServers", item.name), NOTHING if item.before is None else dict(item.before), dict(item.entry))
        for item in planned.items
        if item.entry is not None and item.entry != item.before
    )
    return (*of_servers, *planned.other_edits)


def _is_exposed(file: Path, environment: Mapping[str, str]) -> bool:
    """Tell whether a file is inside a git work tree that does not ignore it."""
    folder = file.resolve().parent
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return False
    command = ["git", *_SAFE_GIT_OPTIONS, "check-ignore", "--quiet", "--", str(file)]
    quiet = {**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, timeout=_GIT_WITHIN_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return True  # unknown without git, and a needless warning does no harm
    return done.returncode == 1


def _show_readings(out: Output, plan: Plan) -> None:
    """Print what each file holds, and what an import would do with it."""
    if out.is_json_requested or not out.is_terminal:
        out.print_json(plan.to_json())
        return
    rows: list[list[str]] = []
    for reading in plan.readings:
        source = reading.source
        counts = count_actions([item for item in plan.items if item.server.source == source])
        changed = counts[Action.UPDATE] + counts[Action.CONFLICT]
        numbers = [str(len(reading.servers)), str(counts[Action.NEW]), str(counts[Action.SAME]), str(changed)]
        file = f"{source.file}: {reading.error}" if reading.error else str(source.file)
        rows.append([source.tool, source.scope.value, *numbers, file])
    out.print_table(["TOOL", "SCOPE", "SERVERS", "NEW", "SAME", "CHANGED", "FILE"], rows)


def _show_diff(out: Output, plan: Plan) -> None:
    """Print the difference that would be written, without secrets."""
    lines = list(plan.diff())
    if not lines:
        out.say(f"`{plan.output}` would not change")
    for line in lines:
        if out.is_terminal:
            out.print_line(line, _STYLES.get(line[:1], ""))
        else:
            out.print_text(line)
    if plan.variables:
        out.say(f"`{plan.env_file}` would get {', '.join(plan.variables)}")


def show_warnings(out: Output, plan: Plan) -> None:
    """Print what is lost, what could not be read, and what no longer exists."""
    _show_notices(out, plan.warnings)
    for error in plan.errors:
        out.say(f"error: {error}", "red")
    for remark in plan.remarks:
        out.say(f"note: {remark}")


def _show_notices(out: Output, notices: Iterable[Notice]) -> None:
    """Print what is lost, one line for each field."""
    for notice in notices:
        out.say(f"warning: {notice}", "yellow")


def _show_summary(out: Output, plan: Plan, *, is_exposed: bool) -> None:
    """Print what was done and what to do next."""
    counts = count_actions(plan.items)
    parts = [f"{number} {action}" for action, number in counts.items() if number]
    summary = f"{plan.output}: " + (", ".join(parts) or "no servers")
    out.say(summary if plan.is_changed or plan.variables else f"{summary}; nothing to write")
    _show_actions(out, plan)
    if is_exposed:
        out.say(f"warning: `{plan.output}` is in a git work tree that does not ignore it", "yellow")
    if plan.variables:
        out.say(f"secrets are in `{plan.env_file}`: {', '.join(plan.variables)}")
    if plan.is_changed:
        out.say("next: `dynamic-mcp install TOOL` connects your AI tool")


def _show_actions(out: Output, plan: Plan) -> None:
    """Print what happens to each server, which variables to set, and what to do about secrets."""
    for item in plan.items:
        if item.action not in (Action.SAME, Action.SKIP):
            choice = f" ({item.choice})" if item.choice else ""
            origin = _format_origin(item.server.source, item.server.name, item.name)
            fields = f", which differ in {', '.join(item.conflicts)}" if item.conflicts else ""
            out.say(f"  {item.action}{choice}: {item.name}{origin}{fields}")
        elif item.action is Action.SAME and item.reason:
            out.say(f"  same: {item.server.name}{_format_source(item.server.source)}, which {item.reason}")
        elif item.reason:
            out.say(f"  skipped: {item.server.name}{_format_source(item.server.source)}: {item.reason}")
    for name, servers in plan.exports.items():
        out.say(f"set the variable {name} (for {', '.join(servers)})")
    if plan.find_secrets():
        out.say("hint: `--secrets env` moves the secrets into a private file")


def _format_origin(source: Source, found: str, name: str) -> str:
    return _format_source(source) + (f", where it is `{found}`" if found != name else "")


def _format_source(source: Source) -> str:
    return f" from {source.tool} ({source.scope.value})"


def _fetch_descriptions(this: Invocation, plan: Plan, *, may_start_projects: bool) -> dict[str, str]:
    """Return how new servers describe themselves, by the name that they have in their tool."""
    items = {item.server.name: item for item in plan.items if _lacks_description(item)}
    for name, item in list(items.items()):
        if item.server.source.scope is not Scope.USER and not may_start_projects:
            this.out.say(
                f"`{name}` is not started, because {item.server.source.file} belongs to a project; --trust allows it",
                "yellow",
            )
            del items[name]
    if not items:
        return {}
    from dynamic_mcp.cli.runner import run

    config = build_config({name: item.server.entry for name, item in items.items()}, plan.output, os.environ)
    with this.out.progress(f"asking {pluralize(len(items), 'server')} for a description"):
        return run(_connect_and_describe(this, config))


def _lacks_description(item: Item) -> bool:
    entry = item.server.entry
    return item.action is Action.NEW and not entry.get("description") and entry.get("enabled") is not False


async def _connect_and_describe(this: Invocation, config: Config) -> dict[str, str]:
    from dynamic_mcp.cli.own_client import open_own_client

    async with open_own_client(this, config, uses_cache=False) as client:
        texts = await asyncio.gather(*(_describe(group, this.out) for group in client.groups))
        return {group.name: text for group, text in zip(client.groups, texts, strict=True) if text}


async def _describe(group: ClientGroup, out: Output) -> str:
    try:
        async with asyncio.timeout(_DESCRIBED_WITHIN_S):
            return _summarize(await group.catalog())
    except TimeoutError:
        reason = f"no answer within {_DESCRIBED_WITHIN_S:g} s"
    except DynamicMcpError as exc:
        reason = exc.message
    out.say(f"`{group.name}` did not answer: {reason}", "yellow")
    return ""


def _summarize(catalog: Catalog) -> str:
    """Return one line: the first sentence of a server's instructions, else the names of its tools."""
    sentence = re.split(r"(?<=[.!?])\s|\n", catalog.instructions.strip(), maxsplit=1)[0].strip("# ")
    if sentence:
        return sentence
    names = list(catalog.tools)
    more = ", …" if len(names) > _MOST_TOOLS else ""
    about = f"{catalog.title}: " if catalog.title else "Tools: "
    return about + ", ".join(names[:_MOST_TOOLS]) + more if names else catalog.title
