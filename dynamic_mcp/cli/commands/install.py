"""`dynamic-mcp install TOOL`: add one entry to a tool's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, project_option
from dynamic_mcp.cli.suggestions import complete_ai_tool, complete_profile

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Add dynamic-mcp to another tool's settings.")
@click.argument("tool", shell_complete=complete_ai_tool)
@click.option(
    "--scope",
    type=click.Choice(["user", "project", "local", "all"]),
    default="user",
    show_default=True,
    help="Which settings to change; `local` is yours for one project; `all` replaces servers in every scope.",
)
@project_option
@click.option(
    "--url",
    metavar="URL",
    help="Connect to dynamic-mcp at this URL, such as http://127.0.0.1:8808/mcp, instead of starting it.",
)
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="The profile that TOOL gets: only its servers and tools. Default: all.",
)
@click.option(
    "--replace", is_flag=True, help="Disable or remove the imported servers in TOOL, so that they run only once."
)
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
@common_options
def command(
    this: Invocation,
    tool: str,
    *,
    scope: str,
    project: str | None,
    url: str | None,
    profile: str | None,
    replace: bool,
    dry_run: bool,
) -> int:
    """Add one entry to TOOL's settings that starts dynamic-mcp with the config, or connects to it at a URL.

    The rest of the file, comments included, is kept byte for byte. A backup is made first; `dynamic-mcp undo`
    reverts the change. A file that cannot be parsed is never written. Run it again to update the entry, e.g.
    when the config needs more variables that the tool does not pass on by itself.

    \b
    dynamic-mcp install cursor
    dynamic-mcp install claude --replace --dry-run
    dynamic-mcp install vscode --url https://mcp.example.com/mcp
    dynamic-mcp install zed --profile review
    """
    from dynamic_mcp.cli.installer import Start, install

    start = Start(url, profile)
    return install(this, tool, scope, project, start=start, replace=replace, dry_run=dry_run)
