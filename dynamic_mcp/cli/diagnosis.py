"""What `check` and `doctor` print: the findings about the config and about each server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dynamic_mcp import __version__
from dynamic_mcp.cli.feature_check import check_features, probe_features
from dynamic_mcp.cli.invocation import Invocation, empty_config_message
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Finding, Level, ServerReport, exit_code
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line, pluralize

if TYPE_CHECKING:
    from dynamic_mcp.cli.progress import Progress
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.doctor.servers import Doctor
    from dynamic_mcp.groups.catalog import Catalog
    from dynamic_mcp.groups.catalog_store import CatalogStore

_STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.ERROR: "red"}
_STDERR_LINES = 5


def check_config(this: Invocation) -> int:
    """Print the findings about the config; return the exit code."""
    file = this.config_path()
    config, findings = _check_files(file)
    if this.out.is_json:
        this.out.print_json(findings)
    else:
        _show_findings(this.out, findings)
    if config is not None and not config.groups:
        this.out.say(empty_config_message(file))
    return exit_code(findings)


def diagnose(this: Invocation, group: str | None) -> int:
    """Print the findings about the config and its servers; return the exit code."""
    from dynamic_mcp.cli.runner import run

    file = this.config_path()
    config, findings = _check_files(file)
    reports: list[ServerReport] = []
    if config is not None:
        chosen = this.read_config(group)
        findings = [each for each in findings if group is None or _concerns(each, group)]
        about_daemon, reports = run(_examine(this, chosen))
        findings += about_daemon
    if this.out.is_json:
        this.out.print_json({"config": str(file), "findings": findings, "groups": reports})
    else:
        _show_findings(this.out, findings)
        errors = [finding for finding in findings if finding.level is Level.ERROR]
        for each in reports:
            if each.is_up or not any(_is_about(error, each.group) for error in errors):  # else shown above
                _show_report(this.out, each, is_verbose=this.verbose > 0)
    if config is not None and not config.groups:
        this.out.say(empty_config_message(file))
    return exit_code([*findings, *(finding for each in reports for finding in each.findings)])


def _check_files(file: Path) -> tuple[Config | None, list[Finding]]:
    """Return the config, or None if it is invalid, and the findings about its file and the tools that start it."""
    from dynamic_mcp.cli.tool_entries import check_variables

    config, findings = check_file(file, os.environ)
    if config is None:
        return None, findings
    found = [
        *_check_access(config),
        *_check_rules(config),
        *_check_address(config),
        *check_features(config),
        *check_variables(file, os.environ),
    ]
    return config, [*findings, *found]


def _check_access(config: Config) -> list[Finding]:
    """Return the findings about who may use what; most configs say nothing about that."""
    if config.access is None and config.http is None:
        return []
    from dynamic_mcp.cli.access_catalogs import known_catalogs
    from dynamic_mcp.cli.access_subject import stored_tokens
    from dynamic_mcp.doctor.access import check_access_rules

    try:
        token_roles = [role for token in stored_tokens(config) for role in token.roles]
    except DynamicMcpError as exc:
        return [Finding(Level.ERROR, "tokens", exc.message, exc.hint, exc.exit_code)]
    return list(check_access_rules(config, known_catalogs(config), token_roles))


def _check_address(config: Config) -> list[Finding]:
    """Return the findings about the address of HTTP."""
    if config.http is None:
        return []
    from dynamic_mcp.doctor.listening import check_http_address

    return list(check_http_address(config))


def _check_rules(config: Config) -> list[Finding]:
    """Return the findings about the rules on calls."""
    if not any(each.rules for each in config.presentations.values()):
        return []
    from dynamic_mcp.cli.access_catalogs import known_catalogs
    from dynamic_mcp.doctor.call_rules import check_call_rules
    from dynamic_mcp.doctor.guards import check_guards, check_redact

    catalogs = known_catalogs(config)
    checks = check_guards, check_call_rules, check_redact
    return [finding for check in checks for finding in check(config, catalogs)]


async def _examine(this: Invocation, config: Config) -> tuple[list[Finding], list[ServerReport]]:
    """Return the findings about the daemon, and a report on each server: on those that run there, as they run."""
    from dynamic_mcp.doctor.public_url import check_public_url
    from dynamic_mcp.doctor.servers import Doctor
    from dynamic_mcp.groups.catalog_store import CatalogStore
    from dynamic_mcp.system import paths

    catalog_store = CatalogStore(paths.cache_dir() / "catalogs")
    doctor = Doctor()
    with (
        doctor.record_output(),
        this.out.progress("connecting to", [each.name for each in config.groups]) as progress,
    ):
        findings, reports = await _examine_daemon(this, config, doctor, catalog_store, progress)
        findings += await check_public_url(config.http)
        findings += await probe_features(config)
        running = {report.group for report in reports}
        rest = tuple(each for each in config.groups if each.name not in running)
        alone = replace(config, groups=rest, middleware=())  # it is about servers, whatever plug-ins make of them
        reports += await _examine_alone(this, alone, doctor, catalog_store, progress)
    order = [group.name for group in config.groups]
    return findings, sorted(reports, key=lambda report: order.index(report.group))


async def _examine_daemon(
    this: Invocation, config: Config, doctor: Doctor, catalog_store: CatalogStore, progress: Progress
) -> tuple[list[Finding], list[ServerReport]]:
    if this.is_alone or sys.platform == "win32":
        return [], []
    from dynamic_mcp.cli.daemon_client import DaemonGroup, find_daemon
    from dynamic_mcp.doctor.pins import PinChecker

    pins = PinChecker(config, paths.state_dir() / "pins")

    def check(group: DaemonGroup, shown: Catalog) -> Iterator[Finding]:
        # what the daemon shows lacks what it holds back
        stored = catalog_store.load(group.config)
        return pins.check(group.name, shown if stored is None else stored.catalog)

    async def examine(group: DaemonGroup) -> ServerReport:
        try:
            return await doctor.examine_running(group, partial(check, group))
        finally:
            progress.complete(group.name)

    try:
        daemon = await find_daemon(this, config)
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
    this: Invocation, config: Config, doctor: Doctor, catalog_store: CatalogStore, progress: Progress
) -> list[ServerReport]:
    from dynamic_mcp.cli.client import for_each_group
    from dynamic_mcp.cli.own_client import open_own_client
    from dynamic_mcp.doctor.pins import PinChecker

    if not config.groups:
        return []
    pins = PinChecker(config, paths.state_dir() / "pins")
    async with open_own_client(this, config, wrap_opener=doctor.wrap_opener, uses_cache=False) as client:
        return await for_each_group(
            client, progress, lambda group: doctor.examine(group, partial(pins.check, group.name))
        )


def _concerns(finding: Finding, group: str) -> bool:
    """Tell whether a finding about the config matters to someone who asks about one group."""
    return not finding.where.startswith("mcpServers") or _is_about(finding, group)


def _is_about(finding: Finding, group: str) -> bool:
    """Tell whether a finding is about the entry of a group."""
    entry = format_path(("mcpServers", group))
    return finding.where == entry or finding.where.startswith((f"{entry}.", f"{entry}["))


def _show_findings(out: Output, findings: list[Finding]) -> None:
    for finding in findings:
        out.print_line(f"{out.mark(finding.level)} {finding.where}: {finding.what}", _STYLES[finding.level])
        if finding.hint:
            out.print_line(f"hint: {finding.hint}", indent=4)


def _show_report(out: Output, report: ServerReport, *, is_verbose: bool) -> None:
    out.print_line("")
    if report.is_up:
        out.print_line(f"{out.mark(Level.OK)} {report.group}: {_summary(report)}", _STYLES[Level.OK])
        out.print_line(_details(report), indent=2)
    _show_findings(out, report.findings)
    if report.stderr and (is_verbose or not (report.is_up or _has_last_line(report))):
        out.print_line("last lines on stderr:", indent=2)
        for line in report.stderr if is_verbose else report.stderr[-_STDERR_LINES:]:
            out.print_line(line, "dim", indent=4)


def _has_last_line(report: ServerReport) -> bool:
    """Tell whether a finding quotes the last line of stderr already."""
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
