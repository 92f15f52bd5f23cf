"""`dynamic-mcp packages`: where the packages of servers come from, and their versions pinned in the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import DefaultGroup, common_options
from dynamic_mcp.cli.suggestions import complete_group, complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


class _ShowByDefault(DefaultGroup):
    """Shows the packages if no command is given."""

    default = "show"


@click.group(
    cls=_ShowByDefault, short_help="Show where the packages of servers come from.", subcommand_metavar="[COMMAND]"
)
def command() -> None:
    """Show where the packages of servers come from, and pin their versions.

    Nothing is run or installed: npm, PyPI and registries of images are asked. Pinned tool definitions are another
    thing, for which there is `dynamic-mcp pins`.
    """


@command.command("show", short_help="Show what is known of them.")
@click.argument("servers", nargs=-1, metavar="[SERVER]...", shell_complete=complete_group)
@common_options
def show(context: Invocation, servers: tuple[str, ...]) -> int:
    """Show for each server that runs a package: which version, since when, and who vouches for it.

    What was attested, by the registry's word, and what was checked here are told apart. The exit code is 3 if what
    vouches for a package does not hold.
    """
    from dynamic_mcp.features.provenance.commands import listing

    return listing.show(context, servers)


@command.command("pin", short_help="Write exact versions into the config.")
@click.argument("servers", nargs=-1, metavar="[SERVER]...", shell_complete=complete_server)
@click.option("-y", "--yes", is_flag=True, help="Ask no questions, and write what is shown.")
@click.option("--print", "is_print", is_flag=True, help="Print what would be written, and write nothing.")
@common_options
def pin(context: Invocation, servers: tuple[str, ...], *, yes: bool, is_print: bool) -> int:
    """Write the exact versions of packages into the config, of all servers that name none, or of SERVER.

    That is the version that would run now: `NAME@VERSION` for npm, `NAME==VERSION` for PyPI, and the digest of an
    image. `dynamic-mcp undo` takes it back.
    """
    from dynamic_mcp.features.provenance.commands import listing

    return listing.pin(context, servers, yes=yes, is_print=is_print)
