"""`dynamic-mcp uninstall TOOL`: remove the entry from a tool's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options, project_option
from dynamic_mcp.cli.suggestions import complete_ai_tool

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Remove dynamic-mcp from another tool's settings.")
@click.argument("tool", shell_complete=complete_ai_tool)
@click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    show_default=True,
    help="Which settings to change.",
)
@project_option
@click.option(
    "--cli", "as_cli", is_flag=True, help="Remove the instructions of `install --cli` instead of the entry."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed and change nothing.")
@output_options
def command(context: Invocation, tool: str, *, scope: str, project: str | None, as_cli: bool, dry_run: bool) -> int:
    """Undo `install TOOL`. If there is no record of it, only remove the dynamic-mcp entry.

    A file that has not changed since is restored byte for byte. From one that has changed, only the entry is removed.
    """
    if as_cli:
        from dynamic_mcp.cli.instructions import uninstall_instructions

        return uninstall_instructions(context, tool, scope, project, dry_run=dry_run)
    from dynamic_mcp.cli.installer import uninstall

    return uninstall(context, tool, scope, project, dry_run=dry_run)
