"""`dynamic-mcp add NAME`: add a server to the config, one of a registry or one that you describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dynamic_mcp.cli.options import common_options, header_option

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

_OF_REGISTRY = {
    "server": "--as",
    "registry": "--registry",
    "is_package": "--package",
    "is_remote": "--remote",
    "pick": "--pick",
    "values": "--set",
    "yes": "--yes",
    "is_print": "--print",
}
_BY_HAND = {"headers": "--header", "kind": "--type", "variables": "--env", "cwd": "--cwd"}


@click.command(short_help="Add a server to the config.")
@click.argument("name", metavar="NAME[@VERSION]")
@click.argument("program", nargs=-1, metavar="[-- COMMAND [ARGS]…]")
@click.option("--url", metavar="URL", help="The URL of a remote server, instead of a command.")
@header_option
@click.option("--type", "kind", type=click.Choice(["http", "sse"]), help="The URL's transport. Default: detected.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the command.")
@click.option("--cwd", metavar="DIR", help="The directory to start the command in, relative to the config.")
@click.option("--description", metavar="TEXT", help="One line that tells a model what the server is for.")
@click.option("--replace", is_flag=True, help="Replace an existing server of this name.")
@click.option("--as", "server", metavar="NAME", help="From a registry: its name in the config. Default: its own.")
@click.option("--registry", metavar="NAME", help="From a registry: only this one of `settings.registries`.")
@click.option("--package", "is_package", is_flag=True, help="From a registry: take a package, to be started here.")
@click.option("--remote", "is_remote", is_flag=True, help="From a registry: take a remote server.")
@click.option("--pick", metavar="WORD", help="From a registry: the package or remote, by type, identifier or URL.")
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="From a registry: a value that it needs.")
@click.option("-y", "--yes", is_flag=True, help="From a registry: ask no questions, and write what is shown.")
@click.option("--print", "is_print", is_flag=True, help="From a registry: print the entry, and write nothing.")
@common_options
def command(this: Invocation, /, name: str, program: tuple[str, ...], **given: Any) -> int:  # Any: click's values
    """Add the server NAME to the config. The rest of the file is kept, comments included.

    With a command or a URL, that is the server. Without, NAME is a server of a registry, such as
    `io.github.user/weather`: its version is pinned, what it needs is asked for, and all is shown first.
    If there is no config yet, it is created in your config directory. Running proxies apply the change. Write secrets
    as '${VARIABLE}', in quotes: the variable is filled in when the server starts.

    \b
    dynamic-mcp add io.github.user/weather
    dynamic-mcp add time -- uvx mcp-server-time --local-timezone Europe/Oslo
    dynamic-mcp add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
    """
    if not program and not given["url"]:
        return _add_from_registry(this, name, given)
    return _add_by_hand(this, name, program, given)


def _add_by_hand(this: Invocation, name: str, program: tuple[str, ...], given: dict[str, Any]) -> int:
    from dynamic_mcp.cli.config_editor import add_server, parse_pairs
    from dynamic_mcp.cli.headers import parse_headers

    url = given["url"]
    if program and url:
        raise click.UsageError("give either a command after `--` or --url")
    _refuse(given, _OF_REGISTRY, "goes with a server of a registry, without a command or --url")
    if (url and (given["variables"] or given["cwd"])) or (program and (given["headers"] or given["kind"])):
        raise click.UsageError("--env and --cwd go with a command, --header and --type with --url")
    fields: dict[str, object] = {
        "description": given["description"],
        "type": given["kind"],
        "command": program[0] if program else None,
        "args": list(program[1:]),
        "url": url,
        "env": parse_pairs("--env", given["variables"]),
        "headers": parse_headers(given["headers"]),
        "cwd": given["cwd"],
    }
    entry = {field: value for field, value in fields.items() if value or (field == "command" and program)}
    return add_server(this, name, entry, may_replace=given["replace"])


def _add_from_registry(this: Invocation, name: str, given: dict[str, Any]) -> int:
    from dynamic_mcp.features.registry.commands.add import AddOptions, add_from_registry

    _refuse(given, _BY_HAND, "goes with a command after `--`, or with --url")
    if given["is_package"] and given["is_remote"]:
        raise click.UsageError("give either --package or --remote")
    options = AddOptions(
        reference=name,
        server=given["server"],
        registry=given["registry"],
        kind="package" if given["is_package"] else "remote" if given["is_remote"] else None,
        pick=given["pick"],
        values=given["values"],
        description=given["description"],
        yes=given["yes"],
        is_print=given["is_print"],
        may_replace=given["replace"],
    )
    return add_from_registry(this, options)


def _refuse(given: dict[str, Any], options: dict[str, str], why: str) -> None:
    for member, option in options.items():
        if given[member]:
            raise click.UsageError(f"{option} {why}")
