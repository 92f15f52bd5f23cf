"""The `install` and `uninstall` commands: our entry in the settings of AI tools."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import click
from msgspec import Struct

from dynamic_mcp.cli.change_events import record_change
from dynamic_mcp.cli.change_history import SETUP, report
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.machine import local_machine, open_journal, timestamp
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.clients import find_client
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.needs import RequiredVariables, find_required_variables
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.read import read as read_config
from dynamic_mcp.config.types import check_profile_name, check_url
from dynamic_mcp.errors import ConfigError, DynamicMcpError, InvalidArguments
from dynamic_mcp.importer import reader
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert.vault import Hiding
from dynamic_mcp.importer.formats.shapes import NAME, variables_in
from dynamic_mcp.importer.installer import InstallPlan, find_target, list_targets, plan_installation, plan_removal
from dynamic_mcp.importer.journal import ChangedSince, JournalEntry
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.planner import RemainingServer, Replacement, plan_replacement, read_output
from dynamic_mcp.proxy.known_clients import KnownClient, find_known_tool
from dynamic_mcp.system.own_program import find_own_program

_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "::1"))


class Start(Struct, frozen=True):
    """The command of our entry: serves a config or, with a `url`, connects to it; optionally in a profile.

    `headers` are sent to the URL; `${VARIABLE}` in them is filled in by the tool.
    """

    url: str | None = None
    profile: str | None = None
    headers: Mapping[str, str] = {}

    @property
    def whole_url(self) -> str | None:
        """The URL, including the profile."""
        if self.url is None or self.profile is None:
            return self.url
        return f"{self.url.rstrip('/')}/profile/{quote(self.profile, safe='')}"

    def words(self, program: Iterable[str], config: Path | None) -> list[str]:
        """Return the command line of the entry."""
        if self.whole_url is not None:
            headers = (word for name, value in self.headers.items() for word in ("--header", f"{name}: {value}"))
            return [*program, "connect", self.whole_url, *headers]
        return [*program, str(config), *([] if self.profile is None else ["--profile", self.profile])]


def install(
    context: Invocation,
    tool: str,
    scope: str,
    project: str | None,
    *,
    start: Start = Start(),  # noqa: B008 - it is frozen
    replace: bool,
    dry_run: bool,
) -> int:
    """Add our entry to a tool's settings; return the exit code."""
    if scope == "all" and not replace:
        raise click.UsageError("--scope all selects the servers to replace, so it needs --replace")
    if start.url is not None:
        _check_url(start.url, start.profile)
    with hold_change_lock():
        return _install(context, tool, scope, project, start=start, replace=replace, dry_run=dry_run)


def _install(
    context: Invocation, tool: str, scope: str, project: str | None, *, start: Start, replace: bool, dry_run: bool
) -> int:
    adapter, machine = reader.find_tool(tool), local_machine(project)
    url = start.whole_url
    config = require_config(context.config_path().absolute()) if url is None or replace else None
    if url is None and config is not None and start.profile is not None:
        from dynamic_mcp.proxy.profiles import require  # part of the proxy, imported only here

        require(read_config(config, os.environ), start.profile)
    where = _scope(adapter, scope, machine)
    replacement = find_replaced(adapter, scope, machine, config) if replace and config is not None else None
    if url is None and config is not None:
        needed = _read_needs(context, config)
    else:
        needed = RequiredVariables(variables_in(start.headers), {})
    program, caveat = find_own_program()
    listing = config if url is None else _find_served_config(context, url)
    is_auto = listing is not None and _uses_auto(listing, start.profile)
    known = find_known_tool(adapter.name) if is_auto else None
    result = plan_installation(
        adapter,
        where,
        machine,
        start=start.words(program, config),
        url=url,
        headers=start.headers,
        variables=needed.names,
        replacements=replacement.servers if replacement else None,
        may_hide=known is not None and known.searches_tools,
    )
    if dry_run:
        show_diff(context, result, start.headers)
    elif result.is_needed:
        entry = open_journal().apply(f"install {adapter.name}", _subject(adapter, where), timestamp(), result.changes)
        _report(context, adapter, result, entry, start)
        changed = {"disabled": list(result.disabled_servers), "removed": list(result.removed_servers)}
        _record(context, "install", adapter, where, {name: each for name, each in changed.items() if each})
    if not result.is_needed:
        context.out.say(f"`{result.file}` already has the entry")
    if is_auto:
        context.out.say(_describe_listing(adapter, known))
    warn_about_limits(context.out, adapter, result, needed, "" if result.is_remote else caveat)
    if replacement is not None:
        report_remaining(context, adapter, replacement)
    if context.out.is_json_requested:
        context.out.print_json(_to_json(adapter, result, replacement))
    return 0


def uninstall(context: Invocation, tool: str, scope: str, project: str | None, *, dry_run: bool) -> int:
    """Remove our entry from a tool's settings; return the exit code."""
    with hold_change_lock():
        actions = _uninstall(tool, scope, project, dry_run=dry_run)
    if not dry_run:
        _record(context, "uninstall", reader.find_tool(tool), ToolScope(scope))
    return report(context, actions)


def _uninstall(tool: str, scope: str, project: str | None, *, dry_run: bool) -> list[str]:
    """Remove our entry; return the actions, which `dry_run` only describes.

    What `install` or `init` has changed in the tool's files is undone, unless it has changed since.
    """
    adapter, machine = reader.find_tool(tool), local_machine(project)
    _, file = find_target(adapter, ToolScope(scope), machine)
    journal = open_journal()
    subject = _subject(adapter, ToolScope(scope))
    installs = [
        entry
        for entry in journal.entries()
        if (entry.subject == subject or entry.title == SETUP) and not entry.is_undone and file in entry.files
    ]
    own_files = {file, *(target.file for target in list_targets(adapter, tuple(ToolScope), machine))}
    note: list[str] = []
    try:
        plan = journal.plan_undo(installs, own_files)
    except ChangedSince as exc:
        note = [f"{exc.hint.split(';')[0]} from what `install` wrote: its other changes of the file stay"]
    else:
        if installs:
            steps = plan if dry_run else [journal.undo(entry, own_files) for entry in installs]
            return [each.describe(is_done=not dry_run) for restorations in steps for each in restorations]
    result = plan_removal(adapter, ToolScope(scope), machine)
    if not result.is_needed:
        raise DynamicMcpError(f"`{file}` has no entry `{NAME}`", hint="`dynamic-mcp undo --list` lists the changes")
    if dry_run:
        return [f"the entry `{NAME}` would be removed from `{file}`", *note]
    journal.apply(f"uninstall {adapter.name}", "", timestamp(), result.changes)
    return [f"the entry `{NAME}` was removed from `{file}`", *note]


def _record(
    context: Invocation, command: str, adapter: Adapter, scope: ToolScope, more: Mapping[str, object] | None = None
) -> None:
    members = {"command": command, "tool": adapter.name, "scope": scope.value, **(more or {})}
    record_change(context, (), "tool.changed", members)


def _check_url(url: str, profile: str | None) -> None:
    """Raise InvalidArguments for a URL that an AI tool cannot connect to."""
    try:
        check_url(url)
    except FlawError as exc:
        raise InvalidArguments(f"--url {exc}", hint=exc.hint) from exc
    if not url.startswith(("http://", "https://")):
        raise InvalidArguments(f"--url is not one that AI tools take: `{url}`", hint="write `http://` or `https://`")
    if profile is None:
        return
    if "?" in url or "#" in url:
        raise InvalidArguments("--profile needs a --url without `?` and `#`", hint="put the profile into its path")
    try:
        check_profile_name(profile)
    except FlawError as exc:
        raise InvalidArguments(f"--profile: {exc}") from exc


def require_config(config: Path) -> Path:
    """Return the path of the config, which must exist, since tools hide startup errors. Raises ConfigError."""
    if not config.is_file():
        raise ConfigError(
            str(config), "", "does not exist", hint="`dynamic-mcp init` or `dynamic-mcp add` creates one"
        )
    return config


def _scope(adapter: Adapter, scope: str, machine: Machine) -> ToolScope:
    """Return the scope of the entry; for `all`, the first scope that the tool has, beginning with the user's."""
    if scope != "all":
        return ToolScope(scope)
    for each in ToolScope:
        with contextlib.suppress(DynamicMcpError):
            find_target(adapter, each, machine)
            return each
    return ToolScope.USER


def _find_served_config(context: Invocation, url: str) -> Path | None:
    """Return the config that is served at a URL, as far as it is known: the one that is named, or this machine's."""
    is_here = (urlsplit(url).hostname or "") in _THIS_MACHINE
    try:
        config = context.explicit_path() or (context.config_path().absolute() if is_here else None)
    except ConfigError:  # there is none
        return None
    return config if config is not None and config.is_file() else None


def _uses_auto(config: Path, profile: str | None) -> bool:
    """Return whether a config lists tools by what each AI tool makes of them; not if it is invalid."""
    try:
        root = parse(config).root
    except ConfigError:
        return False
    chosen = root.profiles[profile].direct if profile is not None and profile in root.profiles else None
    shared = root.settings.defaults.direct
    of_servers = (shared if each.direct is None else each.direct for each in root.servers.values())
    return any(each is not None and each.is_auto for each in ([chosen] if chosen is not None else of_servers))


def _describe_listing(adapter: Adapter, known: KnownClient | None) -> str:
    """Say what `direct: "auto"` means for a tool, and why."""
    if known is not None and known.searches_tools:
        return f'`"direct": "auto"` lists {adapter.title} all tools, since {known.why}'
    why = "is not known to search listed tools itself" if known is None else known.why
    return f'`"direct": "auto"` gives {adapter.title} the two tools, since it {why.removeprefix("it ")}'


def _read_needs(context: Invocation, config: Path) -> RequiredVariables:
    """Return the variables that the config needs; none, with a warning, if it is invalid."""
    try:
        parse(config)
        return find_required_variables(config, os.environ)
    except ConfigError as exc:
        context.out.say(f"warning: {exc.message}; the variables that it needs are not known")
        return RequiredVariables((), {})


def find_replaced(adapter: Adapter, scope: str, machine: Machine, config: Path) -> Replacement:
    """Return the servers of a tool to replace. Raises DynamicMcpError if the config has none of them."""
    parse(config)
    scopes = tuple(ToolScope) if scope == "all" else (ToolScope(scope),)
    output = read_output(config, str(machine.home))
    found = plan_replacement(adapter, scopes, machine, output, output.servers)
    if found.servers:
        return found
    others = sorted({each.source.scope.value for each in found.remaining if each.is_in_config})
    if others:
        raise DynamicMcpError(
            f"`{config}` has no server from {adapter.title}'s {scope} settings",
            hint=f"it has some from the scope {' and '.join(others)}: "
            + " or ".join(f"`--scope {each}`" for each in (*others, "all")),
        )
    raise DynamicMcpError(
        f"`{config}` has no server of {adapter.title}, so there is nothing to replace",
        hint=f"run `dynamic-mcp import {adapter.name} --scope {scope} -o {config}` first, or omit --replace",
    )


def _subject(adapter: Adapter, scope: ToolScope) -> str:
    return f"{adapter.name}/{scope.value}"


def show_diff(context: Invocation, result: InstallPlan, headers: Mapping[str, str]) -> None:
    """Print the differences of the tool's files, without the secrets of its servers and of these headers."""
    hiding = Hiding()
    hiding.add_tree({"headers": dict(headers)})
    for each in result.diffs:
        hiding.add_tree(each.servers)
    for each in result.diffs if not context.out.is_json_requested else ():
        name = str(each.file)
        for line in difflib.unified_diff(each.before.splitlines(), each.after.splitlines(), name, name, lineterm=""):
            context.out.print_text(hiding.hidden(line))


def _report(context: Invocation, adapter: Adapter, result: InstallPlan, entry: JournalEntry, start: Start) -> None:
    url = start.whole_url
    what = f"connects to `{url}`" if result.is_remote else "starts dynamic-mcp"
    context.out.say(f"{adapter.title} now {what}: `{result.file}`")
    if url is not None and not result.is_remote:
        urls = "headers like these with a URL" if start.headers else "URLs"
        context.out.say(f"{adapter.title} is not known to take {urls}: it starts `dynamic-mcp connect {url}`")
        if any("$" not in value for value in start.headers.values()):
            context.out.say("warning: the list of processes shows these headers; write a secret as '${VARIABLE}'")
    for text, names in (
        ("disabled there", result.disabled_servers),
        ("removed there", result.removed_servers),
        ("no longer there", result.missing_servers),
        (f"variables that {adapter.title} is asked to pass on", result.requested_variables),
    ):
        if names:
            context.out.say(f"{text}: {', '.join(names)}")
    others = [f"`{change.file}`" for change in result.changes if change.file != result.file]
    if others:
        context.out.say(f"also changed: {', '.join(others)}")
    if result.remark:
        context.out.say(f"note: {result.remark}")
    context.out.say(f"restart {adapter.title}; `dynamic-mcp undo {entry.id}` reverts this")


def warn_about_limits(
    out: Output, adapter: Adapter, result: InstallPlan, needed: RequiredVariables, caveat: str
) -> None:
    """Warn about the limits of this tool."""
    client = find_client(adapter.name)
    if caveat:
        out.say(f"warning: {caveat}")
    if client is not None and result.withheld_variables:
        out.say(
            f"warning: {adapter.title} {client.habit}, and its entry cannot ask for "
            f"{', '.join(result.withheld_variables)}: put"
            " what the config needs into a file that `settings.variables_file` names"
        )
    restricted = [name for name, unwanted in needed.wants_all.items() if not _withheld_globs(adapter) <= unwanted]
    if client is not None and restricted and client.withheld == ("*",):
        more = "; name what they need in `inherit_env` and install again" if client.can_be_asked else ""
        out.say(
            f"warning: {adapter.title} {client.habit}; servers that want your whole environment (`inherit_env`)"
            f" get no more than that: {', '.join(restricted)}{more}"
        )


def _withheld_globs(adapter: Adapter) -> frozenset[str]:
    """Return globs of the variables that a tool withholds; `*` if it passes on only a few."""
    if adapter.inherits is None or isinstance(adapter.inherits, str):
        return frozenset("*")
    return frozenset(each for each in adapter.inherits if each.startswith("!"))


def report_remaining(context: Invocation, adapter: Adapter, replacement: Replacement) -> None:
    """Report the servers that stay active next to our entry, and the commands to replace them."""
    in_config = [each for each in replacement.remaining if each.is_in_config and each.is_writable]
    others = [each for each in replacement.remaining if not each.is_in_config]
    fixed = [each for each in replacement.remaining if each.is_in_config and not each.is_writable]
    scopes = _scopes(in_config)
    # one command a scope: `--scope all` would skip servers that another scope shadows
    imports = [f"`dynamic-mcp import {adapter.name} --scope {each}`" for each in _scopes(others)]
    for text, servers, hint in (
        ("in other scopes", in_config, f"`--scope {scopes[0] if len(scopes) == 1 else 'all'}` replaces them too"),
        ("not in the config", others, f"{' and '.join(imports)} imports them, or shows why not"),
        ("in files that dynamic-mcp does not write", fixed, f"disable them in {adapter.title}"),
    ):
        if servers:
            names = ", ".join(f"{each.name} ({each.source.scope.value}, `{each.source.file}`)" for each in servers)
            context.out.say(f"still active beside dynamic-mcp, {text}: {names}; {hint}")


def _scopes(found: Iterable[RemainingServer]) -> list[str]:
    return sorted({each.source.scope.value for each in found})


def _to_json(adapter: Adapter, result: InstallPlan, replacement: Replacement | None) -> dict[str, object]:
    staying = replacement.remaining if replacement is not None else ()
    return {
        "tool": adapter.name,
        "file": str(result.file),
        "changed": result.is_needed,
        "switched_off": list(result.disabled_servers),
        "taken_out": list(result.removed_servers),
        "variables": list(result.requested_variables),
        "withheld": list(result.withheld_variables),
        "still_on": [
            {"name": each.name, "scope": each.source.scope.value, "file": str(each.source.file)} for each in staying
        ],
    }
