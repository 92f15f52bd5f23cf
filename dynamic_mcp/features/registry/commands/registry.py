"""`dynamic-mcp registry`: searches registries, and updates the servers that come from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.cli.suggestions import complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation

_registry_option = click.option("--registry", metavar="NAME", help="Only this registry of `settings.registries`.")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Ask no questions, and write what is shown.")


@click.group(short_help="Search registries of servers, and update what is from one.", subcommand_metavar="COMMAND")
def command() -> None:
    """Search registries of servers, and update servers that come from one.

    `settings.registries` says which; by default it is the official one. `dynamic-mcp add NAME` adds a server.
    """


@command.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@click.option("--all", "is_all", is_flag=True, help="Show all that was found.")
@_registry_option
@common_options
def search(context: Invocation, words: tuple[str, ...], *, is_all: bool, registry: str | None) -> int:
    """Search for servers by words in their names."""
    from dynamic_mcp.features.registry.commands import view

    return view.search(context, words, registry=registry, is_all=is_all)


@command.command("show", short_help="Show one server, and how it can be run.")
@click.argument("name", metavar="NAME[@VERSION]")
@_registry_option
@common_options
def show(context: Invocation, name: str, *, registry: str | None) -> int:
    """Show one server: what it is, how it can be run, and which values it needs."""
    from dynamic_mcp.features.registry.commands import view

    return view.show(context, name, registry=registry)


@command.command("outdated", short_help="Show which servers have a newer version.")
@common_options
def outdated(context: Invocation) -> int:
    """Show which servers of the config have a newer version in their registry."""
    from dynamic_mcp.features.registry.commands import view

    return view.outdated(context)


@command.command("update", short_help="Update servers to their newest versions.")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=complete_server)
@_yes_option
@click.option("--print", "is_print", is_flag=True, help="Print what would be written, and write nothing.")
@common_options
def update(context: Invocation, names: tuple[str, ...], *, yes: bool, is_print: bool) -> int:
    """Update servers of the config to their newest versions; all that come from a registry if none is named.

    The difference is shown first: changes of yours to the command, arguments, variables, URL or headers are replaced.
    `dynamic-mcp undo` takes the update back.
    """
    from dynamic_mcp.features.registry.commands import updating

    return updating.update(context, names, yes=yes, is_print=is_print)


@command.command("link", short_help="Find servers of the config in a registry.")
@click.argument("server", required=False, shell_complete=complete_server)
@click.argument("name", required=False, metavar="[NAME[@VERSION]]")
@_yes_option
@common_options
def link(context: Invocation, server: str | None, name: str | None, *, yes: bool) -> int:
    """Find out which servers of the config are in a registry, so that `outdated` and `update` know them.

    They are recognised by their packages and URLs, and not changed otherwise. With a NAME, SERVER is that one.
    """
    from dynamic_mcp.features.registry.commands import linking

    return linking.link(context, server, name, yes=yes)
