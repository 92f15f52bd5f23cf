"""`dynamic-mcp tools [GROUP]`: list the tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, partial_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="List or search tools.")
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--query", metavar="WORDS", help="Show the tools that match these words best, as a model sees them.")
@click.option("--detail", type=click.Choice(["names", "brief", "full"]), help="How much of each tool to show.")
@partial_option
@asking_options
def command(context: Invocation, group: str | None, *, query: str | None, detail: str | None, partial: bool) -> int:
    """List the tools of all groups, or of GROUP.

    Connects to groups whose tools are not known yet. JSON has the whole schemas, a table the descriptions. With
    --query, the answer is what a model gets, best match first.
    """
    from dynamic_mcp.cli.catalog_view import list_tools, search_tools

    if query is not None:
        return search_tools(context, group, query, detail)
    return list_tools(context, group, detail or ("full" if context.out.is_json else "brief"), is_partial=partial)
