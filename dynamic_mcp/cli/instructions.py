"""`install --cli` and `uninstall --cli`: instructions by which an AI tool runs our commands in its shell."""

from __future__ import annotations

import contextlib
import difflib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from dynamic_mcp.cli.change_events import record_change
from dynamic_mcp.cli.change_history import report
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.installer import find_replaced, report_remaining, require_config, show_diff
from dynamic_mcp.cli.invocation import Invocation, narrow_config
from dynamic_mcp.cli.machine import local_machine, open_journal, timestamp
from dynamic_mcp.config.read import read as read_config
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.importer import reader
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.shapes import NAME
from dynamic_mcp.importer.installer import InstallPlan, find_target, plan_replacements, read_entry
from dynamic_mcp.importer.instructions import (
    InstructionTarget,
    ShellCommand,
    find_instruction_target,
    has_instructions,
    plan_instructions,
    plan_section_removal,
    write_instructions,
    write_shell_command,
)
from dynamic_mcp.importer.journal import ChangedSince, FileChange, JournalEntry
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.planner import Replacement
from dynamic_mcp.importer.tools.instructions import InstructionKind
from dynamic_mcp.system.own_program import find_own_program
from dynamic_mcp.system.shell import format_command


@dataclass(frozen=True)
class _Plan:
    """The changes of an installation; None for instructions that are there, and for servers that stay."""

    target: InstructionTarget
    instructions: FileChange | None
    replacement: Replacement | None
    replaced: InstallPlan | None
    caveat: str

    @property
    def changes(self) -> list[FileChange]:
        own = [] if self.instructions is None else [self.instructions]
        return [*own, *(() if self.replaced is None else self.replaced.changes)]


def install_instructions(
    context: Invocation,
    tool: str,
    scope: str,
    project: str | None,
    *,
    profile: str | None = None,
    replace: bool,
    dry_run: bool,
) -> int:
    """Write instructions where a tool reads them; return the exit code."""
    if scope == "all":
        raise click.UsageError("--cli writes to one scope: user or project")
    adapter, machine = reader.find_tool(tool), local_machine(project)
    with hold_change_lock():
        plan = _plan(context, adapter, ToolScope(scope), machine, profile, replace=replace)
        if dry_run:
            _show_diff(context, plan)
        elif plan.changes:
            entry = open_journal().apply(_title(adapter), _subject(adapter, scope), timestamp(), plan.changes)
            _report(context, adapter, plan, entry)
            _record(context, "install", adapter, scope)
    if not plan.changes:
        context.out.say(f"`{plan.target.file}` already has the instructions")
    if plan.caveat:
        context.out.say(f"warning: {plan.caveat}")
    _report_entry(context, adapter, scope, machine)
    if plan.replacement is not None:
        report_remaining(context, adapter, plan.replacement)
    if context.out.is_json_requested:
        context.out.print_json(_to_json(adapter, plan))
    return 0


def uninstall_instructions(context: Invocation, tool: str, scope: str, project: str | None, *, dry_run: bool) -> int:
    """Remove instructions from where a tool reads them; return the exit code."""
    adapter, machine = reader.find_tool(tool), local_machine(project)
    target = find_instruction_target(adapter, ToolScope(scope), machine)
    with hold_change_lock():
        actions = _uninstall(adapter, target, scope, dry_run=dry_run)
    if not dry_run:
        _record(context, "uninstall", adapter, scope)
    return report(context, actions)


def _plan(
    context: Invocation, adapter: Adapter, scope: ToolScope, machine: Machine, profile: str | None, *, replace: bool
) -> _Plan:
    target = find_instruction_target(adapter, scope, machine)
    config = require_config(context.config_path().absolute())
    command, caveat = _find_command(machine, config, profile)
    servers = _list_servers(config, machine, profile)
    instructions = plan_instructions(target, write_instructions(target.kind, command, servers))
    replacement = find_replaced(adapter, scope.value, machine, config) if replace else None
    replaced = plan_replacements(adapter, machine, replacement.servers) if replacement is not None else None
    return _Plan(target, instructions, replacement, replaced, caveat)


def _uninstall(adapter: Adapter, target: InstructionTarget, scope: str, *, dry_run: bool) -> list[str]:
    """Undo what `install --cli` has changed, or if that has changed since, only remove the instructions."""
    journal, subject = open_journal(), _subject(adapter, scope)
    installs = [
        entry
        for entry in journal.entries()
        if entry.subject == subject and not entry.is_undone and target.file in entry.files
    ]
    note: list[str] = []
    try:
        plan = journal.plan_undo(installs)
    except ChangedSince as exc:
        note = [f"{exc.hint.split(';')[0]} from what `install` wrote: its other changes stay"]
    else:
        if installs:
            steps = plan if dry_run else [journal.undo(entry) for entry in installs]
            return [each.describe(is_done=not dry_run) for restorations in steps for each in restorations]
    if not has_instructions(target):
        raise DynamicMcpError(
            f"`{target.file}` has no instructions of dynamic-mcp", hint="`dynamic-mcp undo --list` lists the changes"
        )
    verb = "would be" if dry_run else "were"
    if not dry_run:
        _remove(adapter, target)
    return [f"the instructions {verb} removed from `{target.file}`", *note]


def _remove(adapter: Adapter, target: InstructionTarget) -> None:
    if target.kind is not InstructionKind.SECTION:
        folders = [target.file.parent] if target.kind is InstructionKind.SKILL else []
        files.remove(target.file, folders)
        return
    change = plan_section_removal(target)
    if change.after:
        open_journal().apply(f"un{_title(adapter)}", "", timestamp(), [change])
    else:
        files.remove(target.file, [])


def _find_command(machine: Machine, config: Path, profile: str | None) -> tuple[ShellCommand, str]:
    """Return how the tool's shell starts this program with a config, and a warning if the program may disappear."""
    program, caveat = find_own_program()
    on_path = shutil.which(NAME)
    options = ["-c", str(config), *([] if profile is None else ["--profile", profile])]
    is_on_path = on_path is not None and Path(on_path).absolute() == Path(program[0])
    return write_shell_command(program, options, platform=machine.platform, is_on_path=is_on_path), caveat


def _list_servers(config: Path, machine: Machine, profile: str | None) -> dict[str, str]:
    """Return the servers that the commands reach, with their descriptions. Raises ConfigError and NotFound."""
    resolved = narrow_config(read_config(config, machine.environment), profile)
    return {group.name: resolved.presentations[group.name].description or "" for group in resolved.groups}


def _title(adapter: Adapter) -> str:
    return f"install {adapter.name} --cli"


def _subject(adapter: Adapter, scope: str) -> str:
    return f"{adapter.name}/{scope}/cli"


def _record(context: Invocation, command: str, adapter: Adapter, scope: str) -> None:
    members = {"command": command, "tool": adapter.name, "scope": scope, "cli": True}
    record_change(context, (), "tool.changed", members)


def _show_diff(context: Invocation, plan: _Plan) -> None:
    change = plan.instructions
    if change is not None and not context.out.is_json_requested:
        before, after = (
            (data or b"").decode("utf-8", "replace").splitlines() for data in (change.before, change.after)
        )
        name = str(change.file)
        for line in difflib.unified_diff(before, after, name, name, lineterm=""):
            context.out.print_text(line)
    if plan.replaced is not None:
        show_diff(context, plan.replaced, {})


def _report(context: Invocation, adapter: Adapter, plan: _Plan, entry: JournalEntry) -> None:
    context.out.say(f"{adapter.title} now reads how to use dynamic-mcp in its shell: `{plan.target.file}`")
    replaced = plan.replaced
    for text, names in (
        ("disabled there", replaced.disabled_servers if replaced else ()),
        ("removed there", replaced.removed_servers if replaced else ()),
    ):
        if names:
            context.out.say(f"{text}: {', '.join(names)}")
    daemon = format_command("daemon", "install", "-c", context.config_path().absolute())
    context.out.say(f"`{daemon}` keeps the servers running between commands, which are slower without it")
    context.out.say(f"restart {adapter.title}; `dynamic-mcp undo {entry.id}` reverts this")


def _report_entry(context: Invocation, adapter: Adapter, scope: str, machine: Machine) -> None:
    """Say if the tool has our entry too, by which the same tools are in its context."""
    entry = None
    with contextlib.suppress(DynamicMcpError):  # it has no file of this scope, or one that cannot be parsed
        entry = read_entry(adapter, find_target(adapter, ToolScope(scope), machine), machine)
    if entry is not None:
        remove = format_command("uninstall", adapter.name, *([] if scope == "user" else ["--scope", scope]))
        context.out.say(f"{adapter.title} has dynamic-mcp as an MCP server too; `{remove}` removes that")


def _to_json(adapter: Adapter, plan: _Plan) -> Mapping[str, object]:
    remaining = () if plan.replacement is None else plan.replacement.remaining
    return {
        "tool": adapter.name,
        "file": str(plan.target.file),
        "changed": bool(plan.changes),
        "switched_off": list(plan.replaced.disabled_servers if plan.replaced else ()),
        "taken_out": list(plan.replaced.removed_servers if plan.replaced else ()),
        "still_on": [
            {"name": each.name, "scope": each.source.scope.value, "file": str(each.source.file)} for each in remaining
        ],
    }
