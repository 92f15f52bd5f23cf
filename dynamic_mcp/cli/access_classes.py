"""Shows which tools count as `read` and which as `write`, who says so, and why."""

from __future__ import annotations

from dynamic_mcp.cli.access_catalogs import read_catalogs
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.policy.classify import access_of


def show_classes(this: Invocation, group: str | None, *, connects: bool) -> int:
    """Print the class of each tool; return the exit code."""
    config = this.read_groups(group)
    catalogs = read_catalogs(this, config, connects=connects)
    found = [
        (name, tool, access_of(tool, entry, config.presentations[name].access))
        for name, catalog in catalogs.items()
        for tool, entry in catalog.tools.items()
    ]
    if this.out.is_json:
        this.out.print_json(
            [
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
        )
        return 0
    rows = [
        [name, tool, each.access, each.source, f"{each.confidence:.0%}", "; ".join(each.evidence)]
        for name, tool, each in found
    ]
    if rows:
        columns = ["GROUP", "TOOL", "CLASS", "SOURCE", "SURE", "WHY"]
        this.out.print_table(columns, rows)
    return 0
