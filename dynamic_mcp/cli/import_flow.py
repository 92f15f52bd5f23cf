"""The `import` command: reads the settings of tools, lets the user choose, and merges the servers into a config."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
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
from dynamic_mcp.importer.convert import description
from dynamic_mcp.importer.convert.merge import MergeChoice
from dynamic_mcp.importer.convert.plan import Action, ImportItem, Plan, count_actions, describe_difference
from dynamic_mcp.importer.convert.vault import KeychainMoves, set_variables
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.journal import FileChange
from dynamic_mcp.importer.model import Entry, ForeignServer, Machine, Notice, Reading, SettingsSource, ToolScope
from dynamic_mcp.importer.planner import ImportRequest, build_config, plan_import
from dynamic_mcp.oauth import keychain
from dynamic_mcp.system import file_reader
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
    replaced: tuple[str, ...]
    only: tuple[str, ...]
    exclude: tuple[str, ...]
    skip_disabled: bool
    secrets: Literal["keep", "env", "keyring", "fail"]
    describe: Literal["auto", "server", "ask", "none"] | None
    trust: bool
    strict: bool
    yes: bool
    force: bool
    dry_run: bool
    is_list: bool

    @property
    def has_no_source(self) -> bool:
        return not (self.tools or self.files)

    @property
    def is_read_only(self) -> bool:
        """Return whether the options forbid writing, so that no question is asked."""
        return self.dry_run or self.is_list


def import_servers(context: Invocation, options: ImportOptions) -> int:
    """Import servers; return the exit code."""
    machine = local_machine(options.project)
    respondent = find_respondent(
        context, may_ask=not (options.yes or options.is_read_only or context.out.is_json_requested)
    )
    if options.has_no_source and not (options.is_all or options.is_list or respondent.is_terminal):
        raise click.UsageError("name a tool, or give --all; `dynamic-mcp import --list` shows what there is")
    request = _make_request(options, machine)
    readings = [each for each in _read_settings(options, machine) if _is_importable(each, request.output)]
    if not any(reading.servers or reading.error for reading in readings):
        return _report_nothing(context, options, machine, readings)
    if options.is_list:
        _show_list(context.out, plan_import(readings, request))
        return OK
    if options.has_no_source and respondent.is_terminal:
        _show_readings(context.out, readings)
        readings = respondent.choose_files(readings, is_all=options.is_all)
        if not readings:
            context.out.say("nothing was chosen, so nothing was written")
            return OK
    if request.output.exists() and not options.force and respondent.has_answers:
        request = replace(request, is_afresh=respondent.confirm_overwrite(request.output))
    if respondent.has_answers:
        readings = _sort_servers(readings)
    asks_servers = options.describe == "server" and not options.dry_run
    is_quick = not (respondent.is_terminal or respondent.has_answers or asks_servers)
    with contextlib.ExitStack() as turn:
        if is_quick:
            turn.enter_context(hold_change_lock())
        moves = KeychainMoves(_read_keychain)
        plan = plan_import(
            readings,
            request,
            decide=_make_decider(options, respondent),
            describe=_make_describer(options, respondent),
            keychain=moves,
        )
        if asks_servers:
            plan = plan.with_descriptions(_fetch_descriptions(context, plan, may_start_projects=options.trust))
        if not is_quick:  # the lock is not held while users or servers answer
            turn.enter_context(hold_change_lock())
        return _apply(context, options, plan, moves)


def _make_request(options: ImportOptions, machine: Machine) -> ImportRequest:
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
    """Drop project files that are also the user's, as when the project is the home directory."""
    users = {
        (each.source.tool, each.source.file)
        for each in readings
        if each.source.scope is ToolScope.USER and (each.servers or each.error)
    }
    return [
        each
        for each in readings
        if each.source.scope is not ToolScope.PROJECT or (each.source.tool, each.source.file) not in users
    ]


def _tools(options: ImportOptions) -> list[Adapter]:
    return list({tool.name: tool for tool in map(reader.find_tool, options.tools)}.values())


def _scopes(options: ImportOptions) -> tuple[ToolScope, ...] | None:
    if options.is_global:
        return (ToolScope.USER,)
    if options.scope == "all" or (options.scope is None and options.has_no_source and not options.is_all):
        return tuple(ToolScope)
    return None if options.scope is None else (ToolScope(options.scope),)


def _is_importable(reading: Reading, output: Path) -> bool:
    """Return whether a file has servers to import. Raises ConfigError if it is also the output."""
    if reading.source.file.absolute() == output:
        raise ConfigError(str(output), "", "is both an input and the output", hint="name another file with --output")
    return bool(reading.servers or reading.error or reading.notices)


def _report_nothing(
    context: Invocation, options: ImportOptions, machine: Machine, readings: Sequence[Reading]
) -> int:
    for reading in readings:
        _show_notices(context.out, reading.notices)
    context.out.say("no servers were found")
    scopes = _scopes(options) or tuple(ToolScope)
    for tool in _tools(options):
        looked = [str(source.file) for source in reader.list_sources(tool, machine, scopes)]
        context.out.say(f"hint: looked for {tool.title} in " + ", ".join(dict.fromkeys(looked)))
    if context.out.is_json_requested:
        context.out.print_json({"servers": [], "files": [], "changed": False})
    return NOTHING_FOUND


def _make_decider(options: ImportOptions, respondent: Respondent) -> Callable[[ImportItem], MergeChoice]:
    """Return the function that resolves a difference: by options, by asking the user, or in favor of the config."""

    def decide(item: ImportItem) -> MergeChoice:
        names = (item.name, item.server.name)
        if any(fnmatchcase(name, glob) for name in names for glob in options.replaced):
            return MergeChoice.REPLACE
        return respondent.decide(item) if respondent.is_terminal else MergeChoice.KEEP

    return decide


def _sort_servers(readings: Sequence[Reading]) -> list[Reading]:
    return [replace(each, servers=tuple(sorted(each.servers, key=lambda found: found.name))) for each in readings]


def _make_describer(options: ImportOptions, respondent: Respondent) -> Callable[[ForeignServer], Entry]:
    if options.describe == "none":
        return lambda server: server.entry
    if options.describe != "server" and (
        respondent.has_answers or (options.describe == "ask" and respondent.is_terminal)
    ):
        return respondent.describe_server
    return lambda server: description.with_description(server.name, server.entry)


def _read_keychain(name: str) -> str | None:
    try:
        return keychain.read(name)
    except OSError as exc:
        raise DynamicMcpError(f"{exc}, so nothing was written") from exc


def _apply(context: Invocation, options: ImportOptions, plan: Plan, moves: KeychainMoves) -> int:
    """Show the plan, and write it unless an option forbids that."""
    if options.dry_run and not context.out.is_json_requested:
        _show_diff(context.out, plan)
    _show_notices(context.out, plan.warnings)
    _show_errors(context.out, plan)
    for remark in plan.remarks:
        context.out.say(f"note: {remark}")
    plain = plan.find_secrets()
    if options.secrets == "fail" and plain:
        fields_by_server = "; ".join(f"{name} ({', '.join(fields)})" for name, fields in plain.items())
        raise DynamicMcpError(
            f"secrets in plain text, so nothing was written: {fields_by_server}",
            hint="`--secrets env` moves them into a private file, `--secrets keyring` into the system's keychain",
        )
    if options.strict and (plan.warnings or plan.errors):
        raise DynamicMcpError(
            f"{len(plan.warnings) + len(plan.errors)} warnings with --strict, so nothing was written"
        )
    if all(reading.error for reading in plan.readings):
        return FAILED
    if options.dry_run:
        _show_actions(context.out, plan)
    else:
        stored = moves.list_new(plan.changed_servers)
        _store(stored)
        _write_plan(plan)
        if plan.is_changed:
            record(
                context, plan.output, "config.changed", {"command": "import", "imported": list(plan.changed_servers)}
            )
        if stored:
            context.out.say(f"secrets are in the system's keychain: {', '.join(stored)}")
        _show_summary(context.out, plan, is_exposed=bool(plain) and _is_exposed(plan.output, os.environ))
    if context.out.is_json_requested:
        context.out.print_json(plan.to_json())
    return IN_PART if plan.errors or any(item.is_flawed for item in plan.items) else OK


def _store(secrets: Mapping[str, str]) -> None:
    """Store secrets in the keychain. Raises DynamicMcpError."""
    try:
        for name, value in secrets.items():
            keychain.write(name, value)
    except OSError as exc:
        raise DynamicMcpError(f"{exc}, so the config was not written") from exc


def _write_plan(plan: Plan) -> None:
    tools = dict.fromkeys(reading.source.tool for reading in plan.readings if reading.servers)
    write_changes(plan, " ".join(("import", *tools)), is_private=plan.has_secrets())


def write_changes(plan: Plan, title: str, *, is_private: bool) -> None:
    """Write the config of a plan and its env file, both or none, as one change with this title."""
    if changes := list(list_changes(plan, is_private=is_private)):
        open_journal().apply(title, "", timestamp(), changes)


def list_changes(plan: Plan, *, is_private: bool) -> Iterator[FileChange]:
    """Yield the changes of the env file and the config of a plan."""
    if plan.variables:
        before = files.read_bytes(plan.env_file)
        text = set_variables(file_reader.decode_with_mark(before or b""), plan.variables)
        after = file_reader.encode_like(text, before)
        yield FileChange(plan.env_file, before, after, is_private=True)
    if plan.is_changed:
        before = files.read_bytes_of(plan.output, plan.before)
        yield FileChange(plan.output, before, file_reader.encode_like(plan.after, before), is_private=is_private)


def _is_exposed(file: Path, environment: Mapping[str, str]) -> bool:
    """Return whether a file is inside a git work tree that does not ignore it."""
    folder = file.resolve().parent
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return False
    command = ["git", *_SAFE_GIT_OPTIONS, "check-ignore", "--quiet", "--", str(file)]
    quiet = {**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        result = subprocess.run(
            command, cwd=folder, env=quiet, capture_output=True, timeout=_GIT_WITHIN_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True  # without git it is unknown, and a needless warning is harmless
    return result.returncode == 1


def _show_readings(out: Output, readings: Sequence[Reading]) -> None:
    rows = [[*_format_reading(each), ", ".join(server.name for server in each.servers)] for each in readings]
    out.print_table(["TOOL", "SCOPE", "FILE", "SERVERS"], rows)


def _show_list(out: Output, plan: Plan) -> None:
    """Print the servers of each file, and what an import would do with them."""
    if out.is_json:
        out.print_json(plan.to_json())
        return
    rows: list[list[str]] = []
    for reading in plan.readings:
        counts = count_actions([item for item in plan.items if item.server.source == reading.source])
        numbers = [
            str(len(reading.servers)),
            *(str(counts[each]) for each in (Action.NEW, Action.SAME, Action.DIFFERS)),
        ]
        rows.append([*_format_reading(reading), *numbers])
    out.print_table(["TOOL", "SCOPE", "FILE", "SERVERS", "NEW", "SAME", "DIFFERENT"], rows)


def _format_reading(reading: Reading) -> list[str]:
    source = reading.source
    return [source.tool, source.scope.value, f"{source.file}: {reading.error}" if reading.error else str(source.file)]


def _show_diff(out: Output, plan: Plan) -> None:
    """Print the diff of the config, without secrets."""
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
    """Print warnings about lost fields, unreadable files, and what no longer exists, but not about variables."""
    _show_notices(out, (notice for notice in plan.warnings if not notice.is_about_environment))
    _show_errors(out, plan)


def _show_errors(out: Output, plan: Plan) -> None:
    for error in plan.errors:
        out.say(f"error: {error}", "red")


def show_environment(out: Output, plan: Plan) -> None:
    """Print which variables servers get that not every tool passed on."""
    about_environment = [notice.reason for notice in plan.warnings if notice.is_about_environment]
    for remark in (*about_environment, *plan.remarks):
        out.say(f"note: {remark}")


def _show_notices(out: Output, notices: Iterable[Notice]) -> None:
    """Print one line for each lost field."""
    for notice in notices:
        out.say(f"warning: {notice}", "yellow")


def _show_summary(out: Output, plan: Plan, *, is_exposed: bool) -> None:
    """Print a summary and the next steps."""
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
    """Print the action for each server, the variables to set, and advice about secrets."""
    for item in plan.items:
        source = _format_source(item.server.source)
        if item.action is Action.SAME and item.reason:
            out.say(f"  same: {item.server.name}{source}, which {item.reason}")
        elif item.action is Action.SKIP and item.reason:
            out.say(f"  skipped: {item.server.name}{source}: {item.reason}")
        elif item.action is not Action.SAME:
            origin = source + (f", where it is `{item.server.name}`" if item.server.name != item.name else "")
            fields = f": {', '.join(item.fields)}" if item.fields else ""
            out.say(f"  {item.action}: {item.name}{origin}{fields}")
            _show_difference(out, item)
    for name, servers in plan.exports.items():
        out.say(f"set the variable {name} (for {', '.join(servers)})")
    if any(item.action is Action.DIFFERS for item in plan.items):
        out.say("hint: the config keeps what differs; `--replace NAME` takes the tool's server instead")
    if plan.find_secrets():
        out.say("hint: `--secrets env` moves the secrets into a private file, `--secrets keyring` into the keychain")


def _show_difference(out: Output, item: ImportItem) -> None:
    for line in describe_difference(item.before, item.proposal):
        out.say(f"    {line}", _STYLES.get(line[:1], ""))


def _format_source(source: SettingsSource) -> str:
    return f" from {source.tool} ({source.scope.value})"


def _fetch_descriptions(context: Invocation, plan: Plan, *, may_start_projects: bool) -> dict[str, str]:
    """Return the descriptions that new servers give of themselves, by name."""
    items = {item.name: item for item in plan.items if _lacks_description(item)}
    for name, item in list(items.items()):
        if item.server.source.scope is not ToolScope.USER and not may_start_projects:
            context.out.say(
                f"`{name}` is not started, because {item.server.source.file} belongs to a project; --trust allows it",
                "yellow",
            )
            del items[name]
    if not items:
        return {}
    from dynamic_mcp.cli.runner import run

    config = build_config({name: item.server.entry for name, item in items.items()}, plan.output, os.environ)
    with context.out.progress(f"asking {pluralize(len(items), 'server')} for a description"):
        return run(_connect_and_describe(context, config))


def _lacks_description(item: ImportItem) -> bool:
    entry = item.server.entry
    return item.action is Action.NEW and not entry.get("description") and entry.get("enabled") is not False


async def _connect_and_describe(context: Invocation, config: Config) -> dict[str, str]:
    from dynamic_mcp.cli.own_client import open_own_client

    async with open_own_client(context, config, uses_cache=False) as client:
        texts = await asyncio.gather(*(_describe(group, context.out) for group in client.groups))
        described = zip(client.groups, texts, strict=True)
        return {group.name: description.shorten(text) for group, text in described if text}


async def _describe(group: ClientGroup, out: Output) -> str:
    try:
        async with asyncio.timeout(_DESCRIBED_WITHIN_S):
            return _summarize(await group.read_catalog())
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
