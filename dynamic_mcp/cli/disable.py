"""`dynamic-mcp disable NAME`: a server that does not count for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common
from dynamic_mcp.cli.suggestions import complete_any

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Switch a server off.")
@click.argument("name", shell_complete=complete_any)
@common
def command(this: Invocation, name: str) -> int:
    """Switch the server NAME off: its group is nowhere to be seen, its entry stays."""
    from dynamic_mcp.cli.changing import switch

    return switch(this, name, on=False)
