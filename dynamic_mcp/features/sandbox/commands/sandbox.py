"""`dynamic-mcp sandbox`: what a server needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options
from dynamic_mcp.cli.suggestions import complete_group, complete_tool

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Find out what a server needs.", subcommand_metavar="COMMAND")
def command() -> None:
    """Find out what `sandbox` of a server must allow."""


@command.command("learn", short_help="Run a server without a sandbox, and propose one.")
@click.argument("server", shell_complete=complete_group)
@click.argument("tool", required=False, shell_complete=complete_tool)
@click.argument("arguments", nargs=-1, metavar="[JSON | key=value … | -]")
@asking_options
def learn(context: Invocation, server: str, tool: str | None, arguments: tuple[str, ...]) -> int:
    """Run SERVER without a sandbox, and print a `sandbox` with what it has used.

    It connects and lists what the server offers, and calls TOOL, if there is one, with arguments as those of `call`.
    What a server does not do while it is watched is not in the proposal. It needs `strace`.
    """
    from dynamic_mcp.features.sandbox.commands.learning import learn as run_learning

    return run_learning(context, server, tool, arguments)
