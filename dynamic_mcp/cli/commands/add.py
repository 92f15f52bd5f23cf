"""`dynamic-mcp add NAME`: add a server to the config, described on the command line or found by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dynamic_mcp.cli.options import common_options, header_option
from dynamic_mcp.cli.package_examiner import find_examiner
from dynamic_mcp.cli.server_source import F, find_source

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

_HELP = """\
Add the server NAME to the config. The rest of the file is kept, comments included.

With a command, `--url` or `--openapi`, that is the server. {by_name}
If there is no config yet, it is created in your config directory. What runs applies the change. Write secrets
as '${{VARIABLE}}', in quotes: the variable is filled in when the server starts.

\b
{example}
dynamic-mcp add time -- uvx mcp-server-time --local-timezone Europe/Oslo
dynamic-mcp add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${{GITHUB_TOKEN}}'
"""
_AFTER_DASHES = "options for the server come after `--`, as in `dynamic-mcp add NAME -- npx -y PACKAGE`"
_source = find_source()
_examiner = find_examiner()


def _help() -> str:
    """Return the help, without an empty line if no feature finds servers by name."""
    by_name, example = (_source.HELP, _source.EXAMPLE) if _source else ("", "")
    return _HELP.format(by_name=by_name, example=example).replace("\b\n\n", "\b\n")


def _source_options(command: F) -> F:
    return command if _source is None else _source.add_options(command)


def _package_options(command: F) -> F:
    return command if _examiner is None else _examiner.add_options(command)


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say where options belong that are none of this command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            if exc.possibilities:
                raise
            why = f"no such option `{exc.option_name}`; {_AFTER_DASHES}"
            raise click.UsageError(why, ctx) from exc


@click.command(cls=_Command, short_help="Add a server to the config.", help=_help())
@click.argument("name", metavar=_source.METAVAR if _source else "NAME")
@click.argument("program", nargs=-1, metavar="[-- COMMAND [ARGS]…]")
@click.option("--url", metavar="URL", help="The URL of a remote server, instead of a command.")
@click.option(
    "--openapi",
    metavar="FILE|URL",
    help="The OpenAPI document of a service, whose operations become tools. A file is relative to the config; `--url`"
    " is the service, if the document does not name it.",
)
@header_option
@click.option(
    "--type",
    "kind",
    type=click.Choice(["http", "streamable-http", "sse"]),
    help="The URL's transport; the first two are the same. Default: detected.",
)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the command.")
@click.option("--cwd", metavar="DIR", help="The directory to start the command in, relative to the config.")
@click.option("--description", metavar="TEXT", help="One line that tells a model what the server is for.")
@click.option("--replace", is_flag=True, help="Replace an existing server of this name.")
@_source_options
@_package_options
@common_options
def command(context: Invocation, /, name: str, program: tuple[str, ...], **given: Any) -> int:  # Any: click's values
    """Add a server as the command line says."""
    if not program and not given["url"] and not given["openapi"]:
        return _add_by_name(context, name, given)
    return _add_by_hand(context, name, program, given)


def _add_by_hand(context: Invocation, name: str, program: tuple[str, ...], given: dict[str, Any]) -> int:
    from dynamic_mcp.cli.config_editor import add_server, parse_pairs
    from dynamic_mcp.cli.direct_server import parse_headers

    url = given["url"] or given["openapi"]
    if program and url:
        raise click.UsageError("give either a command after `--` or --url or --openapi")
    if given["openapi"] and given["kind"]:
        raise click.UsageError("--type goes with an MCP server, not with --openapi")
    for member, option in _source.OPTIONS.items() if _source else ():
        if given[member]:
            why = f"{option} goes with a server of a registry, without a command or --url"
            raise click.UsageError(f"{why}; {_AFTER_DASHES}" if program else why)
    if (url and (given["variables"] or given["cwd"])) or (program and (given["headers"] or given["kind"])):
        raise click.UsageError("--env and --cwd go with a command, --header and --type with --url")
    fields: dict[str, object] = {
        "description": given["description"],
        "type": "http" if given["kind"] == "streamable-http" else given["kind"],
        "command": program[0] if program else None,
        "args": list(program[1:]),
        "openapi": given["openapi"],
        "url": given["url"],
        "env": parse_pairs("--env", given["variables"]),
        "headers": parse_headers(given["headers"]),
        "cwd": given["cwd"],
    }
    entry = {field: value for field, value in fields.items() if value or (field == "command" and program)}
    if given.get("pin") and not program:
        raise click.UsageError("--pin goes with a package, not with --url")
    return add_server(context, name, entry, may_replace=given["replace"], pin=bool(given.get("pin")))


def _add_by_name(context: Invocation, name: str, given: dict[str, Any]) -> int:
    if _source is None:
        raise click.UsageError("give a command after `--`, or --url")
    return _source.add(context, name, given)
