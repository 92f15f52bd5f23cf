"""`dynamic-mcp cache`: the cached results of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Clear cached results.", subcommand_metavar="COMMAND")
def command() -> None:
    """Manage the results that running proxies cache, as `cache` of their servers says."""


@command.command("clear")
@click.argument("server", required=False, shell_complete=complete_group)
@output_options
def clear(this: Invocation, server: str | None) -> None:
    """Clear the cached results of SERVER in all your running proxies, or of all servers.

    When the command has ended, none of them answers from what it cached before.
    """
    from dynamic_mcp.cli.cache_clearing import clear_cache

    clear_cache(this, server)
