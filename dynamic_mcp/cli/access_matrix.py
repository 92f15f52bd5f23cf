"""Shows the effect of the access rules for each role and each known tool."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynamic_mcp.cli.access_catalogs import read_catalogs
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.access_matrix import class_of, effect_for_role, list_tools
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.policy.access import Policy
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.system.text import defuse_formula

_NO_TOOLS = "no tools are known"


@dataclass(frozen=True)
class MatrixRow:
    """A tool, its class, and the effect for each role."""

    group: str
    tool: str
    access: str
    roles: Mapping[str, str]


def show_matrix(context: Invocation, *, as_csv: bool, connects: bool) -> int:
    """Print the matrix; return the exit code."""
    config = context.read_groups()
    policy = Policy(config.access) if config.access is not None else None
    if not config.has_access_rules:
        context.out.say("the config has no access rules, so everybody may use everything")
    rows = list(_rows(config, policy, read_catalogs(context, config, connects=connects)))
    roles = list(policy.rules) if policy is not None else []
    if as_csv:
        context.out.print_text(_format_csv(rows, roles))
    else:
        cells = [[row.group, row.tool, row.access, *(row.roles[role] for role in roles)] for row in rows]
        context.out.print_rows(rows, ["GROUP", "TOOL", "CLASS", *roles], cells, if_none=_NO_TOOLS)
    return 0


def _rows(config: Config, policy: Policy | None, catalogs: Mapping[str, Catalog]) -> Iterator[MatrixRow]:
    for group, tool in list_tools(config, catalogs):
        access = class_of(config, catalogs, group, tool)
        effects: dict[str, str] = {}
        if policy is not None:
            effects = {role: effect_for_role(policy, role, group, tool, access) for role in policy.rules}
        yield MatrixRow(group, tool, access, effects)


def _format_csv(rows: list[MatrixRow], roles: list[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "tool", "access", *map(defuse_formula, roles)])
    for row in rows:
        names = [defuse_formula(row.group), defuse_formula(row.tool)]
        writer.writerow([*names, row.access, *(row.roles[role] for role in roles)])
    return text.getvalue().rstrip("\n")


def show_classes(context: Invocation, group: str | None, *, connects: bool) -> int:
    """Print the class of each tool; return the exit code."""
    config = context.read_groups(group)
    catalogs = read_catalogs(context, config, connects=connects)
    found = [
        (name, tool, access_of(tool, entry, config.presentations[name].effects))
        for name, catalog in catalogs.items()
        for tool, entry in catalog.tools.items()
    ]
    facts = [
        {
            "group": name,
            "tool": tool,
            "access": each.access,
            "source": each.source,
            "confidence": each.confidence,
            "evidence": each.evidence,
        }
        for name, tool, each in found
    ]
    rows = [
        [name, tool, each.access, each.source, f"{each.confidence:.0%}", "; ".join(each.evidence)]
        for name, tool, each in found
    ]
    context.out.print_rows(facts, ["GROUP", "TOOL", "CLASS", "SOURCE", "SURE", "WHY"], rows, if_none=_NO_TOOLS)
    return 0
