"""The `init` command: puts the servers of this machine's AI tools into one config, and one entry into each tool.

It asks first and writes once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynamic_mcp.cli import first_setup, import_flow
from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.client import for_each_group
from dynamic_mcp.cli.command_group import invoke
from dynamic_mcp.cli.first_setup import AppliedSetup, Setup, ToolSettings
from dynamic_mcp.cli.invocation import Invocation, start_invocation
from dynamic_mcp.cli.machine import local_machine, shorten_path
from dynamic_mcp.cli.output import Output, Progress
from dynamic_mcp.cli.own_client import open_own_client
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError, DynamicMcpError, InvalidArguments, LoginNeeded, TimedOut
from dynamic_mcp.importer.convert.program import split_command_line
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.importer.planner import build_config
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.text import pluralize

# The first `npx` or `uvx` downloads the server.
_CHECK_WITHIN_S = 60.0
# More servers than this are counted in a question, not named.
_MOST_NAMED = 4


class _SetupPrompt:
    """Asks the questions of `init`, or takes the default answers. Raises KeyboardInterrupt on Ctrl-C."""

    def __init__(self, *, takes_defaults: bool) -> None:
        self._takes_defaults = takes_defaults

    def choose_tools(self, tools: Sequence[ToolSettings]) -> list[ToolSettings]:
        if self._takes_defaults:
            return list(tools)
        import questionary

        choices = [questionary.Choice(str(tool), value=number, checked=True) for number, tool in enumerate(tools)]
        question = "Set up dynamic-mcp for (space toggles, enter continues):"
        checkbox = questionary.checkbox(question, choices=choices, instruction=" ")  # the default one is too long
        return [tools[number] for number in checkbox.unsafe_ask()]

    def confirm(self, question: str) -> bool:
        return self._takes_defaults or _confirm(question)

    def share_servers(self, *, is_default: bool) -> bool | None:
        """Ask whether one daemon runs the servers; None leaves the config unchanged."""
        if self._takes_defaults:
            return True if is_default else None
        question = "Keep the servers running in the background, and share them between AI tools and windows?"
        return _confirm(question, default=is_default)


def set_up(context: Invocation, *, yes: bool, daemon: bool | None = None, platform: str = sys.platform) -> int:
    """Set up a config and the tools; return the exit code. Raises InvalidArguments without a terminal.

    With `daemon` None, the user decides whether one daemon runs the servers.
    """
    if not yes and not (sys.stdin.isatty() and context.out.is_terminal):
        raise InvalidArguments(
            "`init` asks questions, and there is no terminal to answer on",
            hint="`dynamic-mcp init --yes` takes the default answers",
        )
    file, prompt = context.config_path(may_be_new=True), _SetupPrompt(takes_defaults=yes)
    found = first_setup.find_tools(local_machine(None, platform))
    if not found:
        context.out.say("No AI tool was found on this machine.")
        return _add_by_hand(context, file, may_ask=not yes, daemon=daemon)
    chosen = prompt.choose_tools(found)
    if not chosen:
        context.out.say("No tool was chosen, so nothing was changed.")
        return 0
    planned = first_setup.plan_setup(file, [_decide_on_local_servers(tool, prompt) for tool in chosen])
    if not (planned.plan.servers or file.exists()):
        import_flow.show_warnings(context.out, planned.plan)
        context.out.say("These AI tools have no servers yet.")
        return _add_by_hand(context, file, may_ask=not yes, daemon=daemon)
    decided = _decide(context, planned, prompt)
    if not decided.has_config:
        context.out.say("No server is left, so nothing was changed.")
        return _add_by_hand(context, file, may_ask=not yes, daemon=daemon)
    setup = _decide_on_daemon(decided, prompt, choice=daemon)
    if not setup.has_changes:
        context.out.say("Everything is set up already; nothing was changed.")
        return 0
    _show(context.out, setup)
    if not prompt.confirm("Go ahead? (can be undone)"):
        context.out.say("Nothing was changed.")
        return 0
    with hold_change_lock():
        applied = first_setup.apply_setup(setup)
    tools = [tool.adapter.name for tool in setup.tools]
    record(context, file, "config.changed", {"command": "init", "imported": list(setup.new_servers), "tools": tools})
    _report(context.out, setup, applied)
    return 0


def offer_setup() -> int | None:
    """Offer `init` if there is no config yet; return its exit code, or None if it did not run."""
    context = start_invocation(None, quiet=False, verbose=0, as_json=None)
    try:
        context.config_path()
    except ConfigError:
        context.out.say("There is no config yet.")
        return (
            set_up(context, yes=False) if _confirm("Set up dynamic-mcp for the AI tools on this machine?") else None
        )
    return None


def _decide(context: Invocation, setup: Setup, prompt: _SetupPrompt) -> Setup:
    """Check the servers, then decide which to leave out and whether to remove them from the tools."""
    results = _check_servers(context, setup.new_servers, setup.file, {**os.environ, **setup.plan.variables})
    _show_results(context.out, setup, results)
    broken = [name for name, result in results.items() if result.is_broken]
    count = "the server that does" if len(broken) == 1 else f"the {len(broken)} servers that do"
    if broken and prompt.confirm(f"Skip {count} not work now ({', '.join(broken)})?"):
        setup = setup.without(broken)
    titles = _join([tool.adapter.title for tool in setup.tools_with_servers])
    if not titles:
        return setup
    names = setup.imported_names
    servers = _join(names) if len(names) <= _MOST_NAMED else f"the {len(names)} servers"
    if prompt.confirm(f"Replace {servers} in {titles} by dynamic-mcp? (can be undone)"):
        return setup.with_replacement()
    context.out.say(f"{titles} will show every tool twice and run every server twice.", "yellow")
    return setup


def _decide_on_local_servers(tool: ToolSettings, prompt: _SetupPrompt) -> ToolSettings:
    """Decide whether to import the servers that a tool has only in the current directory."""
    names = tool.local_servers
    if not names:
        return tool
    title, servers = tool.adapter.title, _join(names)
    if prompt.confirm(f"Import {servers} too, which {title} has only in {shorten_path(Path.cwd())}?"):
        return tool
    return tool.without_local_servers()


def _decide_on_daemon(setup: Setup, prompt: _SetupPrompt, *, choice: bool | None) -> Setup:
    """Decide whether one daemon runs the servers, unless the config says so already."""
    if not setup.has_config:
        return setup
    if choice is None and setup.daemon is None:
        choice = prompt.share_servers(is_default=len(setup.tools) > 1)
    return setup if choice is None else setup.with_daemon(is_on=choice)


def _show_results(out: Output, setup: Setup, results: Mapping[str, _CheckResult]) -> None:
    marks = {(True, False): "ok", (False, True): "error", (False, False): "warning"}
    styles = {"ok": "green", "error": "red", "warning": "yellow"}
    for name, result in results.items():
        mark = marks[result.is_ok, result.is_broken]
        out.say(f"{out.mark(mark)} {name} ({setup.origin(name)}): {result.summary}", styles[mark])


def _show(out: Output, setup: Setup) -> None:
    """Show all changes before they are made."""
    import_flow.show_warnings(out, setup.plan)
    for line in setup.steps():
        out.say(f"  {line}")
    for name, servers in setup.plan.exports.items():
        out.say(f"  set the variable {name} yourself, for {_join(servers)}", "yellow")


def _report(out: Output, setup: Setup, applied: AppliedSetup) -> None:
    titles = _join([tool.adapter.title for tool in setup.tools])
    out.say(f"Done. Next: restart {titles}; `dynamic-mcp status` shows each of them once it has connected.")
    out.say(f"To revert: `dynamic-mcp undo {applied.id}`")
    import_flow.show_environment(out, setup.plan)
    applied.warn(out)


def _add_by_hand(context: Invocation, file: Path, *, may_ask: bool, daemon: bool | None) -> int:
    """Ask for servers one by one, if none can be imported."""
    while may_ask and _confirm("Add a server by hand?", default=not file.exists()):
        _add(context, file)
    if not file.exists():
        context.out.say("There is no config yet. `dynamic-mcp add` creates one; `dynamic-mcp init` starts again.")
        return 0
    if daemon is not None:
        setup = first_setup.plan_setup(file, []).with_daemon(is_on=daemon)
        if setup.has_changes:
            _show(context.out, setup)
            with hold_change_lock():
                first_setup.apply_setup(setup)
            record(context, file, "config.changed", {"command": "init", "daemon": daemon})
    context.out.say(f"The config is {file}. Next: `dynamic-mcp install TOOL` connects your AI tool.")
    return 0


def _add(context: Invocation, file: Path) -> None:
    import questionary

    name = questionary.text("Name:", validate=lambda text: bool(text.strip())).unsafe_ask().strip()
    question = "Command with arguments, or URL:"
    start = questionary.text(question, validate=_validate_command).unsafe_ask().strip()
    description = questionary.text("What it is good for, in one line (optional):").unsafe_ask().strip()
    source = ["--url", start] if "://" in start else ["--", *split_words(start)]
    try:
        invoke(
            ["add", name, "--config", str(file), *(["--description", description] if description else []), *source]
        )
    except DynamicMcpError as exc:
        context.out.say(f"error: {exc}", "red")


def split_words(text: str, platform: str = sys.platform) -> list[str]:
    """Return the words of a typed command, in which a backslash of Windows stays one. Raises ValueError."""
    return split_command_line(text, is_windows=platform == "win32")


def _validate_command(text: str) -> bool | str:
    try:
        return bool(split_words(text))
    except ValueError as exc:
        return f"cannot be read: {exc}"


def _confirm(question: str, *, default: bool = True) -> bool:
    import questionary

    return questionary.confirm(question, default=default).unsafe_ask() is True


def _join(names: Collection[str]) -> str:
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class _CheckResult:
    """The result of connecting to one server; `is_broken` means that another attempt will not help."""

    summary: str
    is_ok: bool = False
    is_broken: bool = False


def _check_servers(
    context: Invocation, servers: Mapping[str, Entry], file: Path, environment: Mapping[str, str]
) -> dict[str, _CheckResult]:
    """Connect to the enabled servers as serving `file` would; return the results by name.

    `environment` fills in their variables.
    """
    enabled = {name: entry for name, entry in servers.items() if entry.get("enabled") is not False}
    if not enabled:
        return {}
    config = build_config(enabled, file, environment)
    with context.out.progress("trying", list(enabled)) as progress:
        return run(_check_all(context, config, progress))


async def _check_all(context: Invocation, config: Config, progress: Progress) -> dict[str, _CheckResult]:
    async with open_own_client(context, config) as client:
        results = await for_each_group(client, progress, _check)
        return {group.name: result for group, result in zip(client.groups, results, strict=True)}


async def _check(group: ClientGroup) -> _CheckResult:
    try:
        async with asyncio.timeout(_CHECK_WITHIN_S):
            catalog = await group.read_catalog()
            if group.offers("tools"):  # they may be known from an earlier start of a server that no longer works
                catalog = await group.reread()
    except (TimeoutError, TimedOut):
        return _CheckResult(f"not ready within {_CHECK_WITHIN_S:g} s; it may still be downloading")
    except LoginNeeded as exc:
        return _CheckResult(f"{exc.reason}: {exc.hint}")
    except DynamicMcpError as exc:
        return _CheckResult(getattr(exc, "reason", exc.message), is_broken=True)
    return _CheckResult(pluralize(len(catalog.tools), "tool"), is_ok=True)
