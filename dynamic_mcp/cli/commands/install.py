"""`dynamic-mcp install TOOL`: add one entry to a tool's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, header_option, project_option
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
@header_option
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="The profile that TOOL gets: only its servers and tools. Default: all.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Disable or remove the imported servers in TOOL, so that they run only through dynamic-mcp.",
)
@click.option(
    "--cli",
    "as_cli",
    is_flag=True,
    help="Write a skill or instructions by which TOOL runs these commands in its shell, instead of an entry.",
)
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
@common_options
def command(
    context: Invocation,
    tool: str,
    *,
    scope: str,
    project: str | None,
    url: str | None,
    headers: tuple[str, ...],
    profile: str | None,
    replace: bool,
    as_cli: bool,
    dry_run: bool,
) -> int:
    """Add one entry to TOOL's settings that starts dynamic-mcp with the config, or connects to it at a URL.

    The rest of the file, comments included, is kept byte for byte. A backup is made first; `dynamic-mcp undo`
    reverts the change. A file that cannot be parsed is never written. Run it again to update the entry, e.g.
    when the config needs more variables that the tool does not pass on by itself. A `${VARIABLE}` in a header is
    written as TOOL writes it. A tool that is not known to take headers starts `dynamic-mcp connect`, which does.

    With --cli, TOOL gets no entry but a skill: an agent with a shell finds and calls tools by `dynamic-mcp tools` and
    `dynamic-mcp call`, and has none in its context until it needs one.

    \b
    dynamic-mcp install cursor
    dynamic-mcp install claude --replace --dry-run
    dynamic-mcp install vscode --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
    dynamic-mcp install zed --profile review
    dynamic-mcp install claude --cli
    """
    from dynamic_mcp.cli.direct_server import parse_headers
    from dynamic_mcp.cli.installer import Start, install

    if as_cli:
        if url is not None or headers:
            raise click.UsageError("--cli runs commands with a config, and takes no --url and no --header")
        from dynamic_mcp.cli.instructions import install_instructions

        return install_instructions(context, tool, scope, project, profile=profile, replace=replace, dry_run=dry_run)
    if headers and url is None:
        raise click.UsageError("--header goes with --url")
    start = Start(url, profile, parse_headers(headers))
    return install(context, tool, scope, project, start=start, replace=replace, dry_run=dry_run)
