"""`dynamic-mcp install TOOL`: one entry in the tool's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common
from dynamic_mcp.cli.suggestions import complete_ai_tool

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Add dynamic-mcp to another tool's settings.")
@click.argument("tool", shell_complete=complete_ai_tool)
@click.option(
    "--scope",
    type=click.Choice(["user", "project", "local", "all"]),
    default="user",
    show_default=True,
    help="Whose settings; `local` is the user's own for one project, `all` replaces servers in all of them.",
)
@click.option("--project", metavar="DIR", type=click.Path(file_okay=False), help="The project. Default: here.")
@click.option("--replace", is_flag=True, help="Switch off there what was imported from it, or take it out.")
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
@common
def command(this: Invocation, tool: str, *, scope: str, project: str | None, replace: bool, dry_run: bool) -> int:
    """Put one entry into TOOL's settings, so that it starts dynamic-mcp with the config that --config names.

    Every comment and byte around the entry stays. A backup comes first; `dynamic-mcp undo` takes it all back.
    A file that cannot be parsed is never written. Installed again, the entry is brought up to date: a tool that
    passes on few variables is asked for those that the config needs by now.

    \b
    dynamic-mcp install cursor
    dynamic-mcp install claude --replace --dry-run
    """
    from dynamic_mcp.cli.installing import install

    return install(this, tool, scope, project, replace=replace, dry_run=dry_run)
