"""`dynamic-mcp pins`: reviews and approves changed definitions of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import DefaultGroup, common_options, person_option
from dynamic_mcp.cli.suggestions import complete_group, complete_server, completion_items, own_catalogs

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.cli.invocation import Invocation


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dynamic_mcp.features.pins.definition import definitions

    typed = ctx.params.get("names") or ()
    catalogs = (catalog for _, catalog in own_catalogs(ctx))
    found = [(name or kind.noun, kind.noun) for catalog in catalogs for kind, name, _ in definitions(catalog)]
    return completion_items(((name, noun) for name, noun in found if name not in typed), incomplete)


_live_option = click.option(
    "--live", is_flag=True, help="Ask the servers now, instead of using what they said when they last ran."
)
_servers_argument = click.argument("servers", nargs=-1, metavar="[SERVER]...", shell_complete=complete_group)
_names_argument = click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_complete_name)


class _StatusByDefault(DefaultGroup):
    """Shows the status if no command is given."""

    default = "status"


@click.group(cls=_StatusByDefault, short_help="Review changed definitions of tools.", subcommand_metavar="[COMMAND]")
def command() -> None:
    """Compare the definitions of tools and prompts and the instructions of servers with their pins.

    Without a command, it shows the status of all servers. SERVER is a server of the config; NAME is a tool, a prompt
    or a resource template as the server names it, or `instructions`.
    """


@command.command("status", short_help="Show what is pinned, and what has changed.")
@_servers_argument
@_live_option
@common_options
def status(context: Invocation, servers: tuple[str, ...], *, live: bool) -> int:
    """Show for each server how much is pinned, what has changed, and what is held back."""
    from dynamic_mcp.features.pins.commands.review import show_status

    return show_status(context, servers, is_live=live)


@command.command("diff", short_help="Show how definitions differ from their pins.")
@click.argument("group", metavar="[SERVER]", required=False, shell_complete=complete_group)
@_names_argument
@_live_option
@common_options
def diff(context: Invocation, group: str | None, names: tuple[str, ...], *, live: bool) -> int:
    """Show how definitions differ from their pins, as JSON, line by line.

    Lines with `-` are pinned, lines with `+` are new. Characters that cannot be seen are escaped.
    """
    from dynamic_mcp.features.pins.commands.review import show_differences

    return show_differences(context, group, names, is_live=live)


@command.command("approve")
@click.argument("group", metavar="[SERVER]", required=False, shell_complete=complete_group)
@_names_argument
@click.option("--all", "is_all", is_flag=True, help="Approve what differs of all servers.")
@person_option
@_live_option
@common_options
def approve(
    context: Invocation, group: str | None, names: tuple[str, ...], *, is_all: bool, yes: bool, live: bool
) -> int:
    """Show what differs of a server, ask, and pin exactly that.

    Without names, it is all that differs: one approval for one update of the server. Without a terminal this needs
    --yes, so that a program with a shell does not approve by accident.
    """
    from dynamic_mcp.features.pins.commands.approving import approve_definitions

    if is_all is (group is not None):
        raise click.UsageError("give either a SERVER or `--all`")
    return approve_definitions(context, group, names, is_sure=yes, is_live=live)


@command.command("verify", short_help="Compare servers with the lock file, for CI.")
@_servers_argument
@click.option("--frozen", is_flag=True, help="Fail for what is new or gone, too: the lock file must be exact.")
@common_options
def verify(context: Invocation, servers: tuple[str, ...], *, frozen: bool) -> int:
    """Ask the servers and compare their definitions with the lock file, as a step of CI. Nothing is written.

    Exits with 0 if they are equal and with 1 if a definition has changed or would be held back; with 2 if there is no
    lock file, with 4 if a server needs a login, and with 5 if one fails.
    """
    from dynamic_mcp.features.pins.commands.review import verify_definitions

    return verify_definitions(context, servers, is_frozen=frozen)


@command.command("reset", short_help="Forget what is pinned of a server.")
@click.argument("group", metavar="SERVER", shell_complete=complete_server)
@person_option
@common_options
def reset(context: Invocation, group: str, *, yes: bool) -> int:
    """Forget what is pinned of a server: what it offers next counts as approved."""
    from dynamic_mcp.features.pins.commands.review import reset_server

    return reset_server(context, group, is_sure=yes)
