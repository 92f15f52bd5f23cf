"""`dynamic-mcp enable NAME`: enable a server again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.cli.suggestions import complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Enable a server again.")
@click.argument("name", shell_complete=complete_server)
@common_options
def command(context: Invocation, name: str) -> int:
    """Enable the server NAME again."""
    from dynamic_mcp.cli.config_editor import set_enabled

    return set_enabled(context, name, enabled=True)
