"""`dynamic-mcp stats [CONFIG]`: show the context cost of tools, listed directly and through this proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, partial_option, with_config_argument

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Show what the tools cost a model's context.")
@click.argument("config", required=False, type=click.Path())
@partial_option
@asking_options
def command(context: Invocation, config: str | None, *, partial: bool) -> int:
    """Show what the tools of CONFIG cost a model's context: listed directly, and through dynamic-mcp.

    Starts servers whose tools are not known yet. Tokens are counted with `tiktoken` if it is installed, else
    estimated as characters / 4.
    """
    from dynamic_mcp.cli.context_cost import show_stats

    return show_stats(with_config_argument(context, config), is_partial=partial)
