"""`dynamic-mcp status`: show the running proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import proxy_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Show what is running.")
@click.option("--watch", "-w", is_flag=True, help="Refresh every second until Ctrl-C, with calls per second.")
@proxy_options
def command(context: Invocation, *, watch: bool) -> int:
    """Show what dynamic-mcp runs: its sessions and groups, with calls, errors, durations and memory.

    Each line is a group: its tools, calls so far, errors (calls without a result), how long half and 95 % of the
    latest calls took at most, the memory and id of its server's process, and its state. If clients do not share the
    server, each of its copies has a line of its own. Memory includes child processes.
    """
    from dynamic_mcp.cli.proxy_status import show_status

    return show_status(context, is_watching=watch)
