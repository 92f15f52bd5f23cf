"""`dynamic-mcp read URI`: read one resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import asking_options, save_option, timeout_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from msgspec import Raw

    from dynamic_mcp.cli.invocation import Invocation
    from dynamic_mcp.config.resolved import Config


@click.command(short_help="Read a resource.")
@click.argument("uri")
@click.option("--group", metavar="GROUP", shell_complete=complete_group, help="Ask only this group.")
@timeout_option
@save_option
@asking_options
def command(context: Invocation, uri: str, *, group: str | None, timeout: str | None, save: str | None) -> int:
    """Read the resource at URI and print it. The URI determines the group.

    Text is printed as text; anything else is saved to a file. --json prints the whole result.
    """
    from dynamic_mcp.cli import content_view
    from dynamic_mcp.cli.client import with_timeout
    from dynamic_mcp.cli.runner import run

    config = with_timeout(context.read_config(group), timeout, "resources_s")
    result = run(_read(context, config, uri, group or ""))
    if context.out.is_json_requested:
        context.out.print_json(bytes(result))
    else:
        with content_view.reject_malformed(group or uri):
            content_view.show_contents(context.out, result, save)
    return 0


async def _read(context: Invocation, config: Config, uri: str, group: str) -> Raw:
    from dynamic_mcp.cli.client_opener import open_client

    async with open_client(context, config, may_ask=True) as client:
        with context.out.progress(f"waiting for {uri}"):
            return await client.ask("resources/read", {"uri": uri}, group=group)
