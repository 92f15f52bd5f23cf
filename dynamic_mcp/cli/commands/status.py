"""`dynamic-mcp status`: show the running proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import proxy_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Show your running proxies.")
@click.option("--watch", "-w", is_flag=True, help="Refresh every second until Ctrl-C.")
@proxy_options
def command(this: Invocation, *, watch: bool) -> int:
    """Show your running proxies: their groups, states, calls, errors and memory.

    Each line is a group: its tools, calls in flight, calls so far, errors (calls without a result), and state.
    Memory is that of the proxy and of the servers it started.
    """
    from dynamic_mcp.cli.proxy_status import show_status

    return show_status(this, is_watching=watch)
