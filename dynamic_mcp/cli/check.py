"""`dynamic-mcp check [CONFIG]`: the config alone, without connecting to anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common, one_config

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Check the config, without connecting to anything.")
@click.argument("config", required=False, type=click.Path())
@common
def command(this: Invocation, config: str | None) -> int:
    """Check the config, without connecting to anything.

    It must be valid, its variables set and passed on by the tools that it is installed in, its commands there, its
    secrets not in plain text, and the file nobody else's to change. Exit code 2 when something is in the
    way; warnings alone are 0.
    """
    from dynamic_mcp.cli.examining import check

    return check(one_config(this, config))
