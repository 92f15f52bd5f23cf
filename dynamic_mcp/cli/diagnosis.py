"""The `check` and `doctor` commands: print the findings about the config and about each server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dynamic_mcp import __version__
from dynamic_mcp.cli.invocation import Invocation, empty_config_message
from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.cli.output import Output, Progress
from dynamic_mcp.config.clients import CLIENTS, ToolEnvironment
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.config.read import find
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, Level, ServerReport, exit_code
from dynamic_mcp.errors import ConfigError, DynamicMcpError
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.importer.installer import list_targets, read_entry
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.reader import find_tool
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line, pluralize

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.doctor.servers import CheckCatalog, Doctor
    from dynamic_mcp.groups.catalog import Catalog
    from dynamic_mcp.groups.catalog_store import CatalogStore

_STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.ERROR: "red"}
_STDERR_LINES = 5


def check_config(context: Invocation) -> int:
    """Print the findings about the config; return the exit code."""
    file = context.config_path()
    config, findings = check_files(file)
    if context.out.is_json:
        context.out.print_json(findings)
    else:
        show_findings(context.out, findings)
    if config is not None and not config.groups:
        context.out.say(empty_config_message(file))
    return exit_code(findings)


def diagnose(context: Invocation, group: str | None) -> int:
    """Print the findings about the config and its servers; return the exit code."""
    from dynamic_mcp.cli.runner import run

    file = context.config_path()
    config, findings = check_files(file)
    reports: list[ServerReport] = []
    if config is not None:
        chosen = context.read_config(group)
        findings = [each for each in findings if group is None or _concerns(each, group)]
        about_daemon, reports = run(_examine(context, chosen))
        findings += about_daemon
    if context.out.is_json:
        context.out.print_json({"config": str(file), "findings": findings, "groups": reports})
    else:
        show_findings(context.out, findings)
        errors = [finding for finding in findings if finding.level is Level.ERROR]
        for each in reports:
            if each.is_up or not any(_is_about(error, each.group) for error in errors):  # else shown above
                _show_report(context.out, each, is_verbose=context.verbose > 0)
    if config is not None and not config.groups:
        context.out.say(empty_config_message(file))
    return exit_code([*findings, *(finding for each in reports for finding in each.findings)])


def check_files(file: Path) -> tuple[Config | None, list[Finding]]:
    """Return the config, or None if it is invalid, and the findings about its file and the tools that start it."""
    config, findings = check_file(file, os.environ)
    if config is None:
        return None, findings
    load_catalogs = cache(partial(_read_catalogs, config))
    found = [
        *_check_access(config, load_catalogs),
        *_check_address(config),
        *_check_direct(config, load_catalogs),
        *_check_features(config, load_catalogs),
        *_check_variables(file, os.environ),
    ]
    return config, [*findings, *found]


def _read_catalogs(config: Config) -> Mapping[str, Catalog]:
    from dynamic_mcp.cli.access_catalogs import known_catalogs

    return known_catalogs(config)


def _check_access(config: Config, load_catalogs: KnownCatalogs) -> list[Finding]:
    """Return the findings about access rules; most configs have none."""
    if config.access is None and config.http is None:
        return []
    from dynamic_mcp.cli.access_subject import stored_tokens
    from dynamic_mcp.doctor.access import check_access_rules

    try:
        token_roles = [role for token in stored_tokens(config) for role in token.roles]
    except DynamicMcpError as exc:
        return [Finding(Level.ERROR, "tokens", exc.message, exc.hint, exc.exit_code)]
    return list(check_access_rules(config, load_catalogs(), token_roles))


def _check_direct(config: Config, load_catalogs: KnownCatalogs) -> list[Finding]:
    if not any(each.direct.is_all or each.direct.is_auto for each in config.presentations.values()):
        return []
    from dynamic_mcp.doctor.direct import check_max_direct

    return list(check_max_direct(config, load_catalogs()))


def _check_address(config: Config) -> list[Finding]:
    if config.http is None:
        return []
    from dynamic_mcp.doctor.listening import check_http_address

    return list(check_http_address(config))


async def _examine(context: Invocation, config: Config) -> tuple[list[Finding], list[ServerReport]]:
    """Return the findings about the daemon, and a report on each server; servers of the daemon are not restarted."""
    from dynamic_mcp.doctor.exchanges import check_exchanges
    from dynamic_mcp.doctor.public_url import check_public_url
    from dynamic_mcp.doctor.servers import Doctor
    from dynamic_mcp.groups.catalog_store import CatalogStore

    catalog_store = CatalogStore(paths.cache_dir() / "catalogs")
    doctor = Doctor()
    with (
        doctor.record_output(),
        context.out.progress("connecting to", [each.name for each in config.groups]) as progress,
    ):
        check = cache(partial(_make_catalog_check, config))
        findings, reports = await _examine_daemon(context, config, doctor, catalog_store, check, progress)
        findings += await check_public_url(config.http)
        findings += await check_exchanges(config)
        running = {report.group for report in reports}
        rest = tuple(each for each in config.groups if each.name not in running)
        alone = replace(config, groups=rest, middleware=())  # servers are checked without plug-ins
        probed, found = await asyncio.gather(
            probe_features(config), _examine_alone(context, alone, doctor, check, progress)
        )
        findings += probed
        reports += found
    order = [group.name for group in config.groups]
    return findings, sorted(reports, key=lambda report: order.index(report.group))


async def _examine_daemon(
    context: Invocation,
    config: Config,
    doctor: Doctor,
    catalog_store: CatalogStore,
    make_check: Callable[[], CheckCatalog],
    progress: Progress,
) -> tuple[list[Finding], list[ServerReport]]:
    if context.is_alone:
        return [], []
    from dynamic_mcp.cli.daemon_client import DaemonGroup, find_daemon

    async def examine(group: DaemonGroup) -> ServerReport:
        def check_whole(name: str, shown: Catalog) -> Iterable[Finding]:
            stored = catalog_store.load(group.config)  # the daemon filters its catalog
            return make_check()(name, shown if stored is None else stored.catalog)

        try:
            return await doctor.examine_running(group, check_whole)
        finally:
            progress.complete(group.name)

    try:
        daemon = await find_daemon(context, config)
    except DynamicMcpError as exc:
        return [Finding(Level.ERROR, "daemon", exc.message, exc.hint, exc.exit_code)], []
    if daemon is None:
        does_not_run = Finding(Level.NOTE, "daemon", "does not run; the first client starts it")
        return [does_not_run] if config.daemon is not None else [], []
    async with contextlib.aclosing(daemon):
        sessions = await daemon.list_sessions()
        reports = await asyncio.gather(*(examine(group) for group in daemon.groups if group.is_ready))
    names = f" ({', '.join(one_line(name) for name in sessions.clients)})" if sessions.clients else ""
    facts = f"version {__version__}, process {sessions.process}, {pluralize(len(sessions.clients), 'session')}{names}"
    return [Finding(Level.OK, "daemon", f"runs: {facts}, socket {daemon.socket}")], reports


async def _examine_alone(
    context: Invocation, config: Config, doctor: Doctor, make_check: Callable[[], CheckCatalog], progress: Progress
) -> list[ServerReport]:
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.own_client import open_own_client

    if not config.groups:
        return []
    check = make_check()
    async with open_own_client(context, config, wrap_opener=doctor.wrap_opener, uses_cache=False) as client:
        return await for_each_group(client, progress, lambda group: doctor.examine(group, check))


def _concerns(finding: Finding, group: str) -> bool:
    """Return whether a finding about the config is relevant to `doctor GROUP`."""
    return not finding.where.startswith("mcpServers") or _is_about(finding, group)


def _is_about(finding: Finding, group: str) -> bool:
    """Return whether a finding is about the entry of a group."""
    entry = format_path(("mcpServers", group))
    return finding.where == entry or finding.where.startswith((f"{entry}.", f"{entry}["))


def show_findings(out: Output, findings: list[Finding]) -> None:
    """Print findings, each with its hint."""
    for finding in findings:
        out.print_line(f"{out.mark(finding.level)} {finding.where}: {finding.what}", _STYLES[finding.level])
        if finding.hint:
            out.print_line(f"hint: {finding.hint}", indent=4)


def _show_report(out: Output, report: ServerReport, *, is_verbose: bool) -> None:
    out.print_line("")
    if report.is_up:
        out.print_line(f"{out.mark(Level.OK)} {report.group}: {_summary(report)}", _STYLES[Level.OK])
        out.print_line(_details(report), indent=2)
    show_findings(out, report.findings)
    if report.stderr and (is_verbose or not (report.is_up or _has_last_line(report))):
        out.print_line("last lines on stderr:", indent=2)
        for line in report.stderr if is_verbose else report.stderr[-_STDERR_LINES:]:
            out.print_line(line, "dim", indent=4)


def _has_last_line(report: ServerReport) -> bool:
    """Return whether a finding already quotes the last line of stderr."""
    return any(report.stderr[-1] in finding.what for finding in report.findings)


def _summary(report: ServerReport) -> str:
    counts = (("tool", report.tools), ("resource", report.resources), ("prompt", report.prompts))
    has = ", ".join(pluralize(count, noun) for noun, count in counts if count)
    how = "runs in the daemon" if report.runs_in_daemon else f"connected in {report.connect_s or 0:.1f} s"
    return f"{how}, {has or 'offers nothing'}"


def _details(report: ServerReport) -> str:
    handshake = [] if report.runs_in_daemon else [report.server or "unnamed server", f"protocol {report.protocol}"]
    parts = [
        *handshake,
        f"ping {(report.ping_s or 0) * 1000:.0f} ms",
        f"supports {', '.join(report.capabilities) or 'nothing'}",
    ]
    return "; ".join(parts)


def _check_features(config: Config, load_catalogs: KnownCatalogs) -> list[Finding]:
    """Return the findings of features that need no connection."""
    wanted = [feature for feature in FEATURES if feature.check and feature.is_wanted(config)]
    return [finding for feature in wanted for finding in feature.load(feature.check).check(config, load_catalogs)]


async def probe_features(config: Config) -> list[Finding]:
    """Return the findings about the services that features connect to."""
    wanted = [feature for feature in FEATURES if feature.probe and feature.is_wanted(config)]
    return [finding for feature in wanted for finding in await feature.load(feature.probe).probe(config)]


def _make_catalog_check(config: Config) -> CheckCatalog:
    """Return a function that runs the catalog checks of all features."""
    features = [feature for feature in FEATURES if feature.catalog_check]
    checks: list[CheckCatalog] = [feature.load(feature.catalog_check).make_check(config) for feature in features]

    def check(group: str, catalog: Catalog) -> Iterator[Finding]:
        for each in checks:
            yield from each(group, catalog)

    return check


def _check_variables(config: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each tool that starts this config without passing on the variables that it needs."""
    names = find_required_variables(config, environment).names
    if not names:
        return []
    machine = local_machine(None)
    return [
        _variables_finding(client, scope, file, missing, config, environment)
        for client, scope, file, entry in _own_entries(machine)
        if _starts_config(entry, config) and (missing := client.list_withheld(names, entry))
    ]


def _own_entries(machine: Machine) -> Iterator[tuple[ToolEnvironment, ToolScope, Path, Mapping[str, object]]]:
    """Yield our entries in the tools that withhold variables; a file that cannot be read counts as empty."""
    for client in CLIENTS:
        adapter = find_tool(client.tool)
        for target in list_targets(adapter, tuple(ToolScope), machine):
            try:
                entry = read_entry(adapter, target, machine)
            except DynamicMcpError:
                continue
            if entry is not None:
                yield client, target.place.scope, target.file, entry


def _starts_config(entry: Mapping[str, object], config: Path) -> bool:
    """Return whether this config is among the arguments of an entry."""
    words = [word for value in entry.values() for word in (value if isinstance(value, list) else [value])]
    return str(config.absolute()) in words


def _variables_finding(
    client: ToolEnvironment,
    scope: ToolScope,
    file: Path,
    names: list[str],
    config: Path,
    environment: Mapping[str, str],
) -> Finding:
    variables = ", ".join(f"`{name}`" for name in names)
    verb = "may not" if client.inspects_values else "does not"
    what = f"{client.title} {verb} pass {variables} to dynamic-mcp: it {client.habit}"
    if not client.can_be_asked:
        return Finding(Level.WARNING, str(file), what, "put them into a file that `settings.variables_file` names")
    command = f"dynamic-mcp install {client.tool}"
    if scope is not ToolScope.USER:
        command += f" --scope {scope.value}"
    if not _is_default(config, environment):
        command += f" -c {config.absolute()}"
    return Finding(Level.WARNING, str(file), what, f"run `{command}`")


def _is_default(config: Path, environment: Mapping[str, str]) -> bool:
    """Return whether this config is the one used by default."""
    try:
        return find(None, environment, cwd=Path.cwd(), user_dir=paths.config_dir()).absolute() == config.absolute()
    except ConfigError:
        return False
