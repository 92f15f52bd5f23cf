"""`dynamic-mcp resources [GROUP]`: list the resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, partial_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="List resources.")
@click.argument("group", required=False, shell_complete=complete_group)
@partial_option
@asking_options
def command(context: Invocation, group: str | None, *, partial: bool) -> int:
    """List the resources and resource templates of all groups, or of GROUP.

    The URIs are those that AI tools see. With GROUP they are the server's own, as `read --group` takes them.
    """
    from dynamic_mcp.cli.catalog_view import list_entries
    from dynamic_mcp.groups.catalog import ListKind

    return list_entries(context, group, [ListKind.RESOURCES, ListKind.TEMPLATES], is_partial=partial)
