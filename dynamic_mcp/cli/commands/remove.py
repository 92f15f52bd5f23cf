"""`dynamic-mcp remove NAME`: remove a server from the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.cli.suggestions import complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Remove a server from the config.")
@click.argument("name", shell_complete=complete_server)
@common_options
def command(context: Invocation, name: str) -> int:
    """Remove the server NAME from the config. The rest of the file is kept.

    To keep its entry, use `dynamic-mcp disable NAME`.
    """
    from dynamic_mcp.cli.config_editor import remove_server

    return remove_server(context, name)
