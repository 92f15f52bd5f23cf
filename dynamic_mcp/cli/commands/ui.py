"""`dynamic-mcp ui`: open the page for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Open the page: what there is, what it did, and what waits for you.")
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@common_options
def command(context: Invocation, *, no_browser: bool) -> int:
    """Open the page of a config in a browser, logged in as you.

    It is the page of the process that serves the config over HTTP, or of its daemon; if neither runs, this command
    serves it until Ctrl-C. The link that it prints is valid for five minutes, and once.
    """
    from dynamic_mcp.cli.page_opener import open_page

    return open_page(context, opens_browser=not no_browser)
