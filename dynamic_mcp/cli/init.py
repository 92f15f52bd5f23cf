"""`dynamic-mcp init`: from the AI tools on this machine to a working setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Set up dynamic-mcp for your AI tools.")
@click.option("-y", "--yes", is_flag=True, help="Take the default answers, and ask nothing.")
@common
def command(this: Invocation, *, yes: bool) -> int:
    """Set up dynamic-mcp for the AI tools on this machine.

    It finds the tools and their servers, tries each server, shows what is going to happen, and does it after one
    yes: the servers go into one config, and each tool gets one entry in place of its own. Enter is a good answer to
    every question. `dynamic-mcp undo` takes back what was done.
    """
    from dynamic_mcp.cli.wizard import begin

    return begin(this, yes=yes)
