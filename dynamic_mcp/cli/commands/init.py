"""`dynamic-mcp init`: set up everything for the AI tools on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Set up dynamic-mcp for your AI tools.")
@click.option("-y", "--yes", is_flag=True, help="Ask no questions and use the default answers.")
@click.option(
    "--daemon/--no-daemon",
    default=None,
    help="Keep servers running in the background and share them between AI tools and windows, or run them separately"
    " for each. Default: ask; with --yes, share them if there is more than one AI tool.",
)
@common_options
def command(context: Invocation, *, yes: bool, daemon: bool | None) -> int:
    """Set up dynamic-mcp for the AI tools on this machine.

    It finds the tools and their servers, checks that each server works, shows the changes, and makes them once you
    agree: the servers move into one config, and each tool gets one entry in their place. Enter accepts the default
    answer to a question. `dynamic-mcp undo` reverts all of it.
    """
    from dynamic_mcp.cli.wizard import set_up

    return set_up(context, yes=yes, daemon=daemon)
