"""`dynamic-mcp init`: a first config, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Make a first config, step by step.")
@common
def command(this: Invocation) -> int:
    """Make a first config, step by step, on a terminal.

    It brings in the servers of the AI tools that are found here, adds others, checks the config, and puts
    dynamic-mcp into those tools. Each step asks first, and is a command of its own that can be run again:
    import, add, doctor, install; `dynamic-mcp undo` takes back what was written into other tools.
    """
    from dynamic_mcp.cli.beginning import begin

    return begin(this)
