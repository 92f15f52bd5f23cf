"""`dynamic-mcp disable NAME`: disable a server and keep its entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.cli.suggestions import complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Disable a server.")
@click.argument("name", shell_complete=complete_server)
@common_options
def command(context: Invocation, name: str) -> int:
    """Disable the server NAME: its group disappears, its entry in the config stays."""
    from dynamic_mcp.cli.config_editor import set_enabled

    return set_enabled(context, name, enabled=False)
