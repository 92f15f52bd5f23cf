"""`dynamic-mcp ready GROUP/TOOL …`: whether tools could be called, for automations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Exit with 0 if tools could be called now.")
@click.argument("targets", metavar="GROUP/TOOL …", nargs=-1, required=True, shell_complete=complete_group)
@click.option("--live", "is_live", is_flag=True, help="Connect to the servers.")
@asking_options
def command(context: Invocation, *, targets: tuple[str, ...], is_live: bool) -> int:
    """Exit with 0 if all these tools could be called now by the local user; a group stands for its server.

    No server is contacted without --live: what tools there are, who is logged in and which servers are down is what
    this machine knows from before, and from proxies that run. Names of tools are those that the server gives them.

    \b
    2  there is no such tool or group
    3  the access rules do not allow it, or a person must approve it
    4  a login is needed
    5  the server is down, or its tools are not known yet

    The exit code is that of the first tool that is not ready.

    \b
    dynamic-mcp ready github/create_issue mail --json
    """
    from dynamic_mcp.cli.readiness import show_readiness

    return show_readiness(context, targets, is_live=is_live)
