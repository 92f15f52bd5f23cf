"""`dynamic-mcp cache`: the cached results of servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options
from dynamic_mcp.cli.suggestions import complete_group
from dynamic_mcp.errors import DynamicMcpError

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Clear cached results.", subcommand_metavar="COMMAND")
def command() -> None:
    """Manage the results that are cached where `cache` of a server says so."""


@command.command("clear", short_help="Clear the cached results of one server, or of all.")
@click.argument("server", required=False, shell_complete=complete_group)
@output_options
def clear(context: Invocation, server: str | None) -> None:
    """Clear the cached results of SERVER, or of all servers, wherever dynamic-mcp runs.

    When the command has ended, none of them answers from what it cached before.
    """
    from dynamic_mcp.features.cache.clearing import SEEN_AFTER_S, clearing_folder, mark_cleared
    from dynamic_mcp.system import paths

    state_folder = paths.state_dir()
    try:
        mark_cleared(state_folder, server)
    except OSError as exc:
        raise DynamicMcpError(f"{clearing_folder(state_folder)} cannot be written: {exc}") from exc
    time.sleep(SEEN_AFTER_S)
    context.out.say(f"cleared the cached results{f' of `{server}`' if server else ''}")
