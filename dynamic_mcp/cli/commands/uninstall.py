"""`dynamic-mcp uninstall TOOL`: our entry out of the tool's settings again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options
from dynamic_mcp.cli.suggestions import complete_ai_tool

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Remove dynamic-mcp from another tool's settings.")
@click.argument("tool", shell_complete=complete_ai_tool)
@click.option("--scope", type=click.Choice(["user", "project", "local"]), default="user", show_default=True)
@click.option("--project", metavar="DIR", type=click.Path(file_okay=False), help="The project. Default: here.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@output_options
def command(this: Invocation, tool: str, *, scope: str, project: str | None, dry_run: bool) -> int:
    """Undo `install TOOL`; without a record of it, just remove the dynamic-mcp entry.

    A file that has not changed since gets its old bytes back. In one that has changed, only our edits are undone.
    """
    from dynamic_mcp.cli.installer import uninstall

    return uninstall(this, tool, scope, project, dry_run=dry_run)
