"""`dynamic-mcp tools [GROUP]`: what there is to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common, partial_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="List tools, or find them.")
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--query", metavar="WORDS", help="The tools that fit these words best, as a model would find them.")
@click.option("--detail", type=click.Choice(["names", "brief", "full"]), help="How much of each tool is shown.")
@partial_option
@common
def command(this: Invocation, group: str | None, *, query: str | None, detail: str | None, partial: bool) -> int:
    """List the tools of all groups, or of GROUP.

    Groups whose tools are not known yet are connected to. With --query the answer is the one that a model
    gets, best match first.
    """
    from dynamic_mcp.cli.listing import list_tools, search_tools

    if query is not None:
        return search_tools(this, group, query, detail)
    return list_tools(this, group, detail or ("brief" if this.out.is_terminal else "full"), is_partial=partial)
