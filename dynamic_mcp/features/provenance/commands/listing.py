"""Implements `packages` and `packages pin`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import asdict, replace

from dynamic_mcp.cli.agreement import agree
from dynamic_mcp.cli.diagnosis import show_findings
from dynamic_mcp.cli.entry_plan import start_plan, write_plan
from dynamic_mcp.cli.invocation import Invocation, unknown_group
from dynamic_mcp.cli.runner import run
from dynamic_mcp.doctor.findings import Finding, Level, exit_code
from dynamic_mcp.errors import NotFound, UntrustedPackage
from dynamic_mcp.features.provenance.commands.entries import packages_of
from dynamic_mcp.features.provenance.examination import Examined, ServerPackage, examine, list_findings
from dynamic_mcp.features.provenance.packages import ForeignCode, PackageUse
from dynamic_mcp.features.provenance.pinning import NotPinnable, pinned_entry, word_of
from dynamic_mcp.features.provenance.probe import list_packages
from dynamic_mcp.importer.convert.plan import Plan
from dynamic_mcp.importer.model import Entry
from dynamic_mcp.system.text import pluralize


def show(context: Invocation, servers: Sequence[str]) -> int:
    """Print what is known of the packages of servers; return the exit code."""
    config = context.read_config()
    names = [group.name for group in config.groups]
    for name in servers:
        if name not in names:
            raise unknown_group(name, config)
    chosen = [each for each in list_packages(config) if not servers or each.server in servers]
    examined = _ask(context, chosen)
    findings = list_findings(examined)
    if context.out.is_json:
        context.out.print_json([_to_json(each) for each in examined])
    elif not examined:
        context.out.say("no server runs a package")
    else:
        show_findings(context.out, findings)
    return exit_code(findings)


def pin(context: Invocation, servers: Sequence[str], *, yes: bool, is_print: bool) -> int:
    """Write the exact versions of packages into the config; return the exit code."""
    plan = start_plan(context.config_path())
    for name in servers:
        if name not in plan.servers:
            raise NotFound("server", name, plan.servers)
    changed = _pin_all(context, plan, servers)
    if not changed:
        context.out.say("nothing to pin: no server floats that can be pinned")
    if context.out.is_json_requested or is_print:
        context.out.print_json({"mcpServers": changed})
    if is_print or not changed:
        return 0
    if not agree(context, f"Write this to {plan.output}?", done="written", yes=yes):
        return 1
    write_plan(context, plan.with_servers(changed), f"pin the versions of {', '.join(changed)}")
    context.out.say(f"pinned the {_versions(len(changed))} of {pluralize(len(changed), 'server')} in `{plan.output}`")
    return 0


def _versions(count: int) -> str:
    return "version" if count == 1 else "versions"


def _pin_all(context: Invocation, plan: Plan, servers: Sequence[str]) -> dict[str, Entry]:
    """Return the entries that get a version, and print how they change. Raises UntrustedPackage."""
    environments = {each.server: each for each in list_packages(context.read_config())}
    entries = {name: entry for name, entry in plan.servers.items() if not servers or name in servers}
    floating = [
        _as_served(each, environments)
        for each in packages_of(entries)
        if isinstance(each.use, ForeignCode) or (isinstance(each.use, PackageUse) and not each.use.is_fixed)
    ]
    examined = _ask(context, floating)
    _refuse(list_findings(examined))
    changed: dict[str, Entry] = {}
    for each in examined:
        name = each.package.server
        try:
            changed[name] = pinned_entry(entries[name], each)
        except NotPinnable as exc:
            context.out.say(f"{name}: not pinned: {exc}")
            continue
        context.out.say(f"{name}: {word_of(entries[name], each)} -> {word_of(changed[name], each)}")
    return changed


def _as_served(package: ServerPackage, served: dict[str, ServerPackage]) -> ServerPackage:
    """Return a package with the environment that its launcher gets, if the server is enabled."""
    known = served.get(package.server)
    return package if known is None else replace(package, environment=known.environment, cwd=known.cwd)


def _refuse(findings: Sequence[Finding]) -> None:
    for each in findings:
        if each.level is Level.ERROR:
            raise UntrustedPackage(f"{each.where}: {each.what}", hint=each.hint)


def _ask(context: Invocation, packages: Sequence[ServerPackage]) -> list[Examined]:
    with context.out.progress("asking where packages come from"):
        return run(examine(packages))


def _to_json(examined: Examined) -> dict[str, object]:
    use, record = examined.use, examined.record
    facts: dict[str, object] = {"server": examined.package.server}
    if isinstance(use, ForeignCode):
        facts["code"] = use.text
    else:
        facts |= {"kind": use.kind, "name": use.name, "version": use.version or use.digest, "pinned": use.is_fixed}
    if record is not None:
        facts |= {
            "registry": record.registry,
            "newest": record.newest,
            "release": record.release,
            "attested": [{**asdict(each), "state": each.state.value} for each in record.attested],
            "signature": record.signature.holds,
            "digest": record.digest,
            "attachments": list(record.attachments),
        }
    findings = list_findings([examined], now=datetime.now(UTC))
    return {**facts, "findings": findings}
