"""`dynamic-mcp undo [ID…]`: undo imports and installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Undo what init, import, install or uninstall has changed.")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--list", "is_list", is_flag=True, help="List the changes, latest first.")
@click.option("-y", "--yes", is_flag=True, help="Undo the latest change without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone and change nothing.")
@output_options
def command(context: Invocation, ids: tuple[str, ...], *, is_list: bool, yes: bool, dry_run: bool) -> int:
    """Undo the changes with these IDs, in this order; without an ID, the latest one after asking.

    A file is restored byte for byte. If it has been saved since, what the change wrote is put back and the rest of
    the file stays. Nothing is undone if what it wrote has itself changed since.
    """
    from dynamic_mcp.cli.change_history import show_changes, undo

    return show_changes(context) if is_list else undo(context, ids, yes=yes, dry_run=dry_run)
