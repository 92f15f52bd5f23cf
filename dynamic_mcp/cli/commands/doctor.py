"""`dynamic-mcp doctor [GROUP]`: check the config, then connect to each server and check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import examining_options
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Check the config and every server, and report problems.")
@click.argument("group", required=False, shell_complete=complete_group)
@examining_options
def command(context: Invocation, group: str | None) -> int:
    """Check the config, connect to every group (or only to GROUP), and report what is wrong and how to fix it.

    For each group: how long the handshake took, protocol version, capabilities, tools, invalid schemas, changed
    tool definitions, non-MCP output on stdout, the last lines of stderr, and whether a login is needed. Servers
    that run in the daemon are checked there, and not started again. The exit code is that of the first error.
    """
    from dynamic_mcp.cli.diagnosis import diagnose

    return diagnose(context, group)
