"""`dynamic-mcp import [TOOL…]`: import the servers of other tools."""

from __future__ import annotations

from typing import Any

import click

from dynamic_mcp.cli.options import json_option, project_option, quiet_option, verbose_option
from dynamic_mcp.cli.suggestions import complete_ai_tool

_EPILOG = """\
Exit codes: 0 done, or nothing to do; 1 an error, or warnings with --strict; 2 the command line or the output is
wrong; 3 nothing found; 4 partly done.
"""


@click.command("import", short_help="Import the servers of other tools.", epilog=_EPILOG)
@click.argument("tools", nargs=-1, metavar="[TOOL]…", shell_complete=complete_ai_tool)
@click.option("--all", "is_all", is_flag=True, help="Import from all tools on this machine.")
@click.option(
    "--file", "files", multiple=True, type=click.Path(), metavar="PATH", help="A file to import, in any known format."
)
@click.option(
    "--scope",
    type=click.Choice(["user", "project", "local", "all"]),
    help="Which settings to read. Default: the project's if there are any, else the user's.",
)
@click.option("-g", "--global", "is_global", is_flag=True, help="The same as `--scope user`.")
@project_option
@click.option(
    "-o",
    "--output",
    "-c",
    "--config",
    "output",
    metavar="FILE",
    type=click.Path(),
    help="The config to write. Default: $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json if it exists, else the one in"
    " your config directory.",
)
@click.option(
    "--replace",
    "replaced",
    multiple=True,
    metavar="NAME",
    help="Replace this server of the config by the tool's, where they differ; NAME may be a glob. Default: ask on a"
    " terminal, else keep the config's.",
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only servers with matching names.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip servers with matching names.")
@click.option("--skip-disabled", is_flag=True, help="Skip disabled servers.")
@click.option(
    "--secrets",
    type=click.Choice(["keep", "env", "keyring", "fail"]),
    default="keep",
    show_default=True,
    help="Secrets in plain text: keep them, move them into a private env file or the system's keychain, or do not"
    " import them.",
)
@click.option(
    "--describe",
    type=click.Choice(["auto", "server", "ask", "none"]),
    help="Where to get a description that the tool does not have: from a table of well-known servers (auto, the"
    " default), from the server itself, or from you.",
)
@click.option("--trust", is_flag=True, help="Let `--describe server` start servers from a project's files too.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("-y", "--yes", is_flag=True, help="Ask no questions.")
@click.option(
    "-f", "--force", is_flag=True, help="Replace the config instead of merging into it; `undo` restores the old one."
)
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
@click.option("--list", "is_list", is_flag=True, help="List what was found and write nothing.")
@quiet_option
@verbose_option
@json_option
def command(**values: Any) -> int:  # Any: click's values, each of its option's kind
    """Import the MCP servers of TOOLs into one config. No server is started, unless `--describe server` asks for it.

    Without a TOOL, on a terminal, it shows what it finds and lets you choose. It merges into an existing config: your
    descriptions, filters, comments and order stay. A server that the config has with other content is shown with the
    difference, and stays unless you replace it.

    \b
    dynamic-mcp import cursor
    dynamic-mcp import claude codex --scope all
    dynamic-mcp import --all --yes
    """
    from dynamic_mcp.cli.import_flow import ImportOptions, import_servers
    from dynamic_mcp.cli.invocation import start_invocation

    context = start_invocation(
        None,
        quiet=values.pop("quiet"),
        verbose=values.pop("verbose"),
        as_json=values.pop("as_json"),
        command="dynamic-mcp import",
    )
    if values["is_global"] and values["scope"] not in (None, "user"):
        raise click.UsageError("--global means `--scope user`, but --scope is something else")
    if values["is_all"] and values["tools"]:
        raise click.UsageError("name tools, or give --all")
    return import_servers(context, ImportOptions(**values))
