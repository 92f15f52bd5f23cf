"""`dynamic-mcp read URI`: read one resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Read a resource.")
@click.argument("uri")
@click.option("--group", metavar="GROUP", shell_complete=complete_group, help="Ask this group only.")
@click.option("--save", metavar="DIR", type=click.Path(file_okay=False), help="Where images and other files go.")
@common
def command(this: Invocation, uri: str, *, group: str | None, save: str | None) -> int:
    """Read the resource at URI from the group that has it, and print it.

    Text is printed as text; everything else is saved in a file. --json prints the whole result.
    """
    from dynamic_mcp.cli.reading import read

    return read(this, uri, group, save)
