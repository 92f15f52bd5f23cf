"""`dynamic-mcp doctor [GROUP]`: check the config, then connect to each server and look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Check the config, connect to every server, say what is wrong.")
@click.argument("group", required=False, shell_complete=complete_group)
@common
def command(this: Invocation, group: str | None) -> int:
    """Check the config, then connect to every group, or to GROUP, and say what is wrong and what to do.

    For each: the handshake and how long it took, protocol, capabilities, tools, schemas that are none,
    definitions that have changed, what was written to stdout without being a message, the last lines of stderr,
    and whether a login is needed. The exit code is that of the first error.
    """
    from dynamic_mcp.cli.examining import doctor

    return doctor(this, group)
