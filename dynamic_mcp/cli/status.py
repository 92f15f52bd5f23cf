"""`dynamic-mcp status`: the proxies that run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import about_proxies

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Show the running proxies of this user.")
@click.option("--watch", "-w", is_flag=True, help="Show it again and again, until Ctrl-C.")
@about_proxies
def command(this: Invocation, *, watch: bool) -> int:
    """Show the running proxies of this user: their groups, states, calls, errors and memory.

    Each line is a group: its state, the calls in flight and so far, and those that ended without a result.
    Memory is that of the proxy, and of the servers that it has started.
    """
    from dynamic_mcp.cli.standing import status

    return status(this, is_watching=watch)
