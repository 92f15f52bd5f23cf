"""Findings for whoever looks: of the config, and of each server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.cli.invocation import Invocation, without_groups
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.keys import path
from dynamic_mcp.doctor.files import check as check_file
from dynamic_mcp.doctor.findings import Examined, Finding, Level, exit_code
from dynamic_mcp.system.text import counted

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

_STYLES = {Level.OK: "green", Level.NOTE: "", Level.WARNING: "yellow", Level.ERROR: "red"}
_STDERR_LINES = 5


def check(this: Invocation) -> int:
    """Print what is to be said of the config; returns the exit code."""
    file = this.file()
    config, findings = _of_files(file)
    if this.out.is_json:
        this.out.json(findings)
    else:
        _show(this.out, findings)
    if config is not None and not config.groups:
        this.out.words(without_groups(file))
    return exit_code(findings)


def doctor(this: Invocation, group: str | None) -> int:
    """Print what is to be said of the config and of its servers; returns the exit code."""
    from dynamic_mcp.cli.runner import run

    file = this.file()
    config, findings = _of_files(file)
    examined: list[Examined] = []
    if config is not None:
        chosen = this.config_of(group)
        findings = [each for each in findings if group is None or _concerns(each, group)]
        examined = run(_examined(chosen, this.out))
    if this.out.is_json:
        this.out.json({"config": str(file), "findings": findings, "groups": examined})
    else:
        _show(this.out, findings)
        errors = [finding for finding in findings if finding.level is Level.ERROR]
        for each in examined:
            if each.is_up or not any(_is_of(error, each.group) for error in errors):  # else it stands above
                _show_group(this.out, each, is_verbose=this.verbose > 0)
    if config is not None and not config.groups:
        this.out.words(without_groups(file))
    return exit_code([*findings, *(finding for each in examined for finding in each.findings)])


def _of_files(file: Path) -> tuple[Config | None, list[Finding]]:
    """Return the config, unless it is wrong, and what its file and those of the tools that start it show."""
    from dynamic_mcp.cli.tool_entries import withheld

    config, findings = check_file(file, os.environ)
    return config, findings if config is None else [*findings, *withheld(file, os.environ)]


async def _examined(config: Config, out: Output) -> list[Examined]:
    from dynamic_mcp.cli.client import client, each_group
    from dynamic_mcp.doctor.servers import Doctor
    from dynamic_mcp.groups.catalog_store import CatalogStore
    from dynamic_mcp.system import paths

    catalog_store = CatalogStore(paths.cache_dir() / "catalogs")
    examiner = Doctor()
    names = [each.name for each in config.groups]
    with examiner.listening(), out.waiting("connecting to", names) as waiting:
        async with client(config, out, wrapped=examiner.around, learns_anew=True) as made:
            return await each_group(
                made, waiting, lambda group: examiner.examine(group, catalog_store.load(group.config))
            )


def _concerns(finding: Finding, group: str) -> bool:
    """Tell whether what was found in the config is of use to somebody who asks about one group."""
    return not finding.where.startswith("mcpServers") or _is_of(finding, group)


def _is_of(finding: Finding, group: str) -> bool:
    """Tell whether something stands in the entry of a group."""
    entry = path(("mcpServers", group))
    return finding.where == entry or finding.where.startswith((f"{entry}.", f"{entry}["))


def _show(out: Output, findings: list[Finding]) -> None:
    for finding in findings:
        out.line(f"{out.mark(finding.level)} {finding.where}: {finding.what}", _STYLES[finding.level])
        if finding.hint:
            out.line(f"hint: {finding.hint}", indent=4)


def _show_group(out: Output, examined: Examined, *, is_verbose: bool) -> None:
    out.line("")
    if examined.is_up:
        out.line(f"{out.mark(Level.OK)} {examined.group}: {_summary(examined)}", _STYLES[Level.OK])
        out.line(_details(examined), indent=2)
    _show(out, examined.findings)
    if examined.stderr and (is_verbose or not (examined.is_up or _are_told(examined))):
        out.line("last lines on stderr:", indent=2)
        for line in examined.stderr if is_verbose else examined.stderr[-_STDERR_LINES:]:
            out.line(line, "dim", indent=4)


def _are_told(examined: Examined) -> bool:
    """Tell whether a finding has the last words already."""
    return any(examined.stderr[-1] in finding.what for finding in examined.findings)


def _summary(examined: Examined) -> str:
    counts = (("tool", examined.tools), ("resource", examined.resources), ("prompt", examined.prompts))
    has = ", ".join(counted(count, noun) for noun, count in counts if count)
    return f"connected in {examined.connect_s or 0:.1f} s, {has or 'offers nothing'}"


def _details(examined: Examined) -> str:
    parts = [
        examined.server or "unnamed server",
        f"protocol {examined.protocol}",
        f"ping {(examined.ping_s or 0) * 1000:.0f} ms",
        f"supports {', '.join(examined.capabilities) or 'nothing'}",
    ]
    return "; ".join(parts)
