"""Shows where the packages of new entries come from, for `add` and `registry update`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.package_examiner import Entries
from dynamic_mcp.cli.server_source import F

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.doctor.findings import Finding


def add_options(command: F) -> F:
    """Add `--pin` to a command."""
    option = click.option(
        "--pin", is_flag=True, help="Write the exact version of the package, or the digest of the image, of now."
    )
    return option(command)


def examine(context: Invocation, entries: Entries, *, pin: bool = False) -> dict[str, dict[str, object]]:
    """Print what is known of the packages of entries; return the entries. Raises DynamicMcpError."""
    from dynamic_mcp.cli.runner import run
    from dynamic_mcp.errors import InvalidArguments
    from dynamic_mcp.features.provenance import examination
    from dynamic_mcp.features.provenance.commands.entries import packages_of
    from dynamic_mcp.features.provenance.pinning import NotPinnable, pinned_entry, word_of

    packages = [each for each in packages_of(entries) if each.use is not None]
    if not packages and not pin:
        return {name: dict(entry) for name, entry in entries.items()}
    with context.out.progress("asking where its package comes from"):
        examined = run(examination.examine(packages))
    for finding in examination.list_findings(examined):
        _show(context, finding)
    if not pin:
        return {name: dict(entry) for name, entry in entries.items()}
    by_name = {each.package.server: each for each in examined}
    try:
        pinned = {name: pinned_entry(entry, by_name.get(name)) for name, entry in entries.items()}
    except NotPinnable as exc:
        raise InvalidArguments(f"no version can be pinned: {exc}") from exc
    for name, entry in pinned.items():
        context.out.say(f"  pinned as: {word_of(entry, by_name[name])}")
    return pinned


def _show(context: Invocation, finding: Finding) -> None:
    """Print a finding. Raises UntrustedPackage for an error."""
    from dynamic_mcp.doctor.findings import Level
    from dynamic_mcp.errors import UntrustedPackage

    match finding.level:
        case Level.ERROR:
            raise UntrustedPackage(finding.what, hint=finding.hint)
        case Level.WARNING:
            context.out.say(f"warning: {finding.what}")
            if finding.hint:
                context.out.say(f"hint: {finding.hint}")
        case _:
            context.out.say(f"  package: {finding.what}")
