"""`dynamic-mcp read URI`: read one resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, save_option, timeout_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Read a resource.")
@click.argument("uri")
@click.option("--group", metavar="GROUP", shell_complete=complete_group, help="Ask only this group.")
@timeout_option
@save_option
@asking_options
def command(this: Invocation, uri: str, *, group: str | None, timeout: str | None, save: str | None) -> int:
    """Read the resource at URI and print it. The URI determines the group.

    Text is printed as text; anything else is saved to a file. --json prints the whole result.
    """
    from dynamic_mcp.cli.resource_reader import read_resource

    return read_resource(this, uri, group, timeout=timeout, save=save)
