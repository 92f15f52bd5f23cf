"""`dynamic-mcp restore`: puts the content of a backup in the place of what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options
from dynamic_mcp.features.backup.commands.backup import passphrase_option

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Put a backup in the place of what dynamic-mcp keeps.")
@click.argument("file", metavar="FILE", type=click.Path())
@passphrase_option
@click.option("--overwrite", is_flag=True, help="Replace what is there without a question.")
@click.option("--list", "lists", is_flag=True, help="Verify the backup, show what is in it, and change nothing.")
@common_options
def command(context: Invocation, file: str, *, passphrase_file: str | None, overwrite: bool, lists: bool) -> int:
    """Put the content of FILE, or of stdin (`-`), in the place of what dynamic-mcp keeps: all of it, or nothing.

    Nothing may serve meanwhile. What was revoked after the backup was made is valid again.
    """
    from dynamic_mcp.features.backup.commands.restoring import list_backup, restore

    if lists:
        return list_backup(context, file, passphrase_file=passphrase_file)
    return restore(context, file, passphrase_file=passphrase_file, overwrites=overwrite)
