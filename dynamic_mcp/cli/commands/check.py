"""`dynamic-mcp check [CONFIG]`: the config alone, without connecting to anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, with_config_argument

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Check the config without connecting to anything.")
@click.argument("config", required=False, type=click.Path())
@click.option("--fix", is_flag=True, help="Give fields with old names their present ones.")
@common_options
def command(context: Invocation, config: str | None, *, fix: bool) -> int:
    """Check the config without connecting to anything.

    It must be valid, its variables set and passed on by the tools that start it, and its commands installed. Secrets
    in plain text and files that others can change are warnings. Exits with 2 on errors, and with 0 if there are only
    warnings.

    With --fix, nothing is checked, and only names of fields are changed in the file. Comments and all else stay, and
    `dynamic-mcp undo` reverts it.
    """
    context = with_config_argument(context, config)
    if fix:
        from dynamic_mcp.cli.config_editor import rename_fields

        return rename_fields(context)
    from dynamic_mcp.cli.diagnosis import check_config

    return check_config(context)
