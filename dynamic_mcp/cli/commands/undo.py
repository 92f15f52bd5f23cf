"""`dynamic-mcp undo [ID…]`: undo imports and installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import output_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Undo an import, an install or an uninstall.")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--list", "is_list", is_flag=True, help="List the changes, latest first.")
@click.option("-y", "--yes", is_flag=True, help="Undo the latest change without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone and change nothing.")
@output_options
def command(context: Invocation, ids: tuple[str, ...], *, is_list: bool, yes: bool, dry_run: bool) -> int:
    """Undo the changes with these IDs, in this order; without an ID, the latest one after asking.

    All that one `init` has changed is undone together, without an ID or by an ID such as `init-1`. The ID of a part
    undoes that part alone.

    Each file is restored byte for byte. If one has changed since, nothing is undone.
    """
    from dynamic_mcp.cli.change_history import show_changes, undo

    return show_changes(context) if is_list else undo(context, ids, yes=yes, dry_run=dry_run)
