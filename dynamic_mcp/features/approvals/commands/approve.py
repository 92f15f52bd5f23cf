"""`dynamic-mcp approve`: decide about calls that wait for a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import DefaultGroup, common_options, output_options, person_option, proxy_options
from dynamic_mcp.cli.suggestions import completion_items

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.features.approvals.store import Scope


def _complete_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dynamic_mcp.features.approvals.client import ApprovalClient
    from dynamic_mcp.features.approvals.store import parse_id

    typed = parse_id(incomplete)
    waiting = ApprovalClient().list_pending() if typed or not incomplete else []
    return completion_items(((each.id, f"{each.group} {each.name}") for each in waiting), typed)


_id_argument = click.argument("id", shell_complete=_complete_id)


class _ListByDefault(DefaultGroup):
    """Lists the waiting calls if no command is given."""

    default = "list"


@click.group(cls=_ListByDefault, short_help="Decide about calls that wait for you.", subcommand_metavar="[COMMAND]")
def command() -> None:
    """Decide about calls that wait for a user, because of `approve` or a rule with the effect `ask`.

    Without a command, it lists them. An ID may be shortened to its first characters.
    """


@command.command("list")
@proxy_options
def list_(context: Invocation) -> None:
    """List the waiting calls."""
    from dynamic_mcp.features.approvals.commands.calls import list_pending

    list_pending(context)


@command.command("show", short_help="Show one call, with all arguments.")
@_id_argument
@click.option("--reveal", is_flag=True, help="Show what looks like a secret, too.")
@output_options
def show(context: Invocation, id: str, *, reveal: bool) -> None:
    """Show one call: who makes it, the tool's description, why you are asked, and all arguments."""
    from dynamic_mcp.features.approvals.commands.calls import show_pending

    show_pending(context, id, reveals=reveal)


@command.command("allow")
@_id_argument
@click.option(
    "--for",
    "scope",
    type=click.Choice(["once", "hour", "session"]),
    default="once",
    help="Only this call (the default), or the same tool with any arguments for an hour or for the client's session.",
)
@click.option("--always", is_flag=True, help="Print how to change the config so that it does not ask again.")
@person_option
@output_options
def allow(context: Invocation, id: str, *, scope: Scope, always: bool, yes: bool) -> None:
    """Allow a call, after showing it.

    Without a terminal this needs --yes, so that a program with a shell does not approve by accident.
    """
    from dynamic_mcp.features.approvals.commands.calls import allow_call

    allow_call(context, id, scope, prints_rule=always, is_sure=yes)


@command.command("deny")
@_id_argument
@click.option("--reason", metavar="TEXT", default="", help="Why, for the model to read.")
@output_options
def deny(context: Invocation, id: str, *, reason: str) -> None:
    """Deny a call."""
    from dynamic_mcp.features.approvals.commands.calls import deny_call

    deny_call(context, id, reason)


@command.command("edit", short_help="Change the arguments of a call, and allow it.")
@_id_argument
@click.option("--args", "arguments", metavar="JSON", help="The new arguments; `-` reads them from stdin.")
@person_option
@output_options
def edit(context: Invocation, id: str, *, arguments: str | None, yes: bool) -> None:
    """Change the arguments of a call in $VISUAL or $EDITOR, see the difference, and allow it once with them.

    The new arguments are checked like those of any call. Without a terminal this needs --args and --yes.
    """
    from dynamic_mcp.features.approvals.commands.calls import edit_call

    edit_call(context, id, arguments, is_sure=yes)


@command.command("watch", short_help="Show each call as it comes, and ask for a decision.")
@proxy_options
def watch(context: Invocation) -> None:
    """Show each call as it comes, and ask for a decision; one key decides. Ends with Ctrl-C."""
    from dynamic_mcp.features.approvals.commands.watch import watch_pending

    watch_pending(context)


@command.command("grants", short_help="List what is allowed for later calls at all replicas.")
@common_options
def grants(context: Invocation) -> None:
    """List what was decided for later calls, where replicas share `settings.cluster.store`."""
    from dynamic_mcp.features.approvals.commands.grants import list_grants

    list_grants(context)


@command.command("revoke", short_help="End what `grants` lists.")
@click.argument("id", required=False)
@click.option("--all", "ends_all", is_flag=True, help="End all of it.")
@common_options
def revoke(context: Invocation, id: str | None, *, ends_all: bool) -> None:
    """End what was allowed for later calls, by its ID or all of it, at all replicas within a second."""
    if (id is None) is not ends_all:
        raise click.UsageError("give an ID, or --all")
    from dynamic_mcp.features.approvals.commands.grants import revoke_grants

    revoke_grants(context, id)
