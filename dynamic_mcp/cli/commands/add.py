"""`dynamic-mcp add NAME`: add a server to the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Add a server to the config.")
@click.argument("name")
@click.argument("program", nargs=-1, metavar="[-- COMMAND [ARGS]…]")
@click.option("--url", metavar="URL", help="The URL of a remote server, instead of a command.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header to send with every request.")
@click.option("--type", "kind", type=click.Choice(["http", "sse"]), help="The URL's transport. Default: detected.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the command.")
@click.option("--cwd", metavar="DIR", help="The directory to start the command in, relative to the config.")
@click.option("--description", metavar="TEXT", help="One line that tells a model what the server is for.")
@click.option("--replace", is_flag=True, help="Replace an existing server of this name.")
@common_options
def command(
    this: Invocation,
    name: str,
    program: tuple[str, ...],
    *,
    url: str | None,
    headers: tuple[str, ...],
    kind: str | None,
    variables: tuple[str, ...],
    cwd: str | None,
    description: str | None,
    replace: bool,
) -> int:
    """Add the server NAME to the config. The rest of the file is kept, comments included.

    If there is no config yet, it is created in your config directory. Running proxies apply the change. Write
    secrets as '${VARIABLE}', in quotes: the variable is filled in when the server starts.

    \b
    dynamic-mcp add time -- uvx mcp-server-time --local-timezone Europe/Oslo
    dynamic-mcp add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization=Bearer ${GITHUB_TOKEN}'
    """
    from dynamic_mcp.cli.config_editor import add_server, parse_pairs

    if bool(program) == bool(url):
        raise click.UsageError("give either a command after `--` or --url")
    if (url and (variables or cwd)) or (program and (headers or kind)):
        raise click.UsageError("--env and --cwd go with a command, --header and --type with --url")
    fields: dict[str, object] = {
        "description": description,
        "type": kind,
        "command": program[0] if program else None,
        "args": list(program[1:]),
        "url": url,
        "env": parse_pairs("--env", variables),
        "headers": parse_pairs("--header", headers),
        "cwd": cwd,
    }
    entry = {field: value for field, value in fields.items() if value or (field == "command" and program)}
    return add_server(this, name, entry, may_replace=replace)
