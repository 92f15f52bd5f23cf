"""Reads one resource and prints it."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.cli import content_view
from dynamic_mcp.cli.client import with_timeout
from dynamic_mcp.cli.client_opener import open_client
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Config


def read_resource(this: Invocation, uri: str, group: str | None, *, timeout: str | None, save: str | None) -> int:
    """Read a resource and print it; return the exit code."""
    config = with_timeout(this.read_config(group), timeout, "resources_s")
    result = run(_read(this, config, uri, group or ""))
    if this.out.is_json_requested:
        this.out.print_json(bytes(result))
    else:
        with content_view.reject_malformed(group or uri):
            content_view.show_contents(this.out, result, save)
    return 0


async def _read(this: Invocation, config: Config, uri: str, group: str) -> Raw:
    async with open_client(this, config, may_ask=True) as client:
        with this.out.progress(f"waiting for {uri}"):
            return await client.ask("resources/read", {"uri": uri}, group=group)
