"""`dynamic-mcp cache`: what running proxies keep of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Have running proxies drop kept results.", subcommand_metavar="COMMAND")
def command() -> None:
    """Deal with the results that running proxies keep, as `cache` of their servers wants it."""


@command.command("clear")
@click.argument("server", required=False, shell_complete=complete_group)
@output_options
def clear(this: Invocation, server: str | None) -> None:
    """Have all your proxies drop what they keep of SERVER, or everything.

    When the command has ended, none of them answers from what it kept before.
    """
    from dynamic_mcp.cli.cache_clearing import clear_cache

    clear_cache(this, server)
