"""Implements `add` for a bare name: adds the server of that name from a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = {
    "server": "--as",
    "registry": "--registry",
    "is_package": "--package",
    "is_remote": "--remote",
    "pick": "--pick",
    "values": "--set",
    "yes": "--yes",
    "is_print": "--print",
    "sha256": "--sha256",
}
METAVAR = "NAME[@VERSION]|URL|FILE"
HELP = """\
Without, NAME is a server of a registry, such as
`io.github.user/weather`: its version is pinned, what it needs is asked for, and all is shown first. A URL
alone leads to a server by the server card or the AI catalog of its host. FILE, or a URL that ends with
`.mcpb`, is a bundle: it is checked, its digest and what runs are shown, and it gets a folder of its own."""
EXAMPLE = """\
dynamic-mcp add io.github.user/weather
dynamic-mcp add https://example.com
dynamic-mcp add weather.mcpb"""
_BY_HAND = {"headers": "--header", "kind": "--type", "variables": "--env", "cwd": "--cwd"}
_CLICK_OPTIONS = (
    click.option("--as", "server", metavar="NAME", help="From a registry: its name in the config. Default: its own."),
    click.option("--registry", metavar="NAME", help="From a registry: only this one of `settings.registries`."),
    click.option(
        "--package", "is_package", is_flag=True, help="From a registry: take a package, to be started here."
    ),
    click.option("--remote", "is_remote", is_flag=True, help="From a registry: take a remote server."),
    click.option(
        "--pick", metavar="WORD", help="From a registry: the package or remote, by type, identifier or URL."
    ),
    click.option(
        "--set", "values", multiple=True, metavar="KEY=VALUE", help="From a registry: a value that it needs."
    ),
    click.option("-y", "--yes", is_flag=True, help="From a registry: ask no questions, and write what is shown."),
    click.option("--sha256", metavar="DIGEST", help="Of a bundle: refuse a file with another SHA-256."),
    click.option("--print", "is_print", is_flag=True, help="From a registry: print the entry, and write nothing."),
)


def add_options(command: F) -> F:
    """Add the options to the command."""
    for option in reversed(_CLICK_OPTIONS):
        command = option(command)
    return command


def add(context: Invocation, name: str, values: Mapping[str, Any]) -> int:
    """Add a server of a registry to the config; return the exit code."""
    from dynamic_mcp.features.registry.commands.adding import AddOptions, add_from_registry
    from dynamic_mcp.features.registry.commands.bundling import add_bundle, is_bundle
    from dynamic_mcp.features.registry.commands.by_url import add_by_url

    for member, option in _BY_HAND.items():
        if values[member]:
            raise click.UsageError(f"{option} goes with a command after `--`, or with --url")
    if values["is_package"] and values["is_remote"]:
        raise click.UsageError("give either --package or --remote")
    options = AddOptions(
        reference=name,
        server=values["server"],
        registry=values["registry"],
        kind="package" if values["is_package"] else "remote" if values["is_remote"] else None,
        pick=values["pick"],
        values=values["values"],
        description=values["description"],
        yes=values["yes"],
        is_print=values["is_print"],
        may_replace=values["replace"],
        pin=bool(values.get("pin")),
    )
    if is_bundle(name):
        return add_bundle(context, options, values["sha256"])
    if values["sha256"]:
        raise click.UsageError("--sha256 goes with a bundle")
    return add_by_url(context, options) if "://" in name else add_from_registry(context, options)


def forget(context: Invocation, entry: Mapping[str, object]) -> None:
    """Delete the files of a server whose entry was removed from the config."""
    if "x-bundle" in entry:
        from dynamic_mcp.features.registry.commands.bundling import remove_files

        remove_files(context, entry)
