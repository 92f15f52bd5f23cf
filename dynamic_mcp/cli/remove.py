"""`dynamic-mcp remove NAME`: one server less in the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common
from dynamic_mcp.cli.suggestions import complete_any

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Take a server out of the config.")
@click.argument("name", shell_complete=complete_any)
@common
def command(this: Invocation, name: str) -> int:
    """Take the server NAME out of the config; everything else in the file stays as it is.

    `dynamic-mcp disable NAME` keeps its entry.
    """
    from dynamic_mcp.cli.changing import remove

    return remove(this, name)
