"""`dynamic-mcp health`: ask whether what runs here serves, for the checks of containers and of monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import proxy_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Exit with 0 if what runs here serves.")
@click.argument("url", required=False)
@click.option("--ready", is_flag=True, help="Also fail while it ends, or before it has started.")
@proxy_options
def command(context: Invocation, *, url: str | None, ready: bool) -> None:
    """Exit with 0 if the proxies that run on this machine as this user serve, else with 1 and the reason on stderr.

    Those that serve HTTP are asked for `/health`, at the address where they listen; a certificate is not checked
    there. Those that serve stdin and stdout have to have shown within 30 seconds that they run. With a URL, that
    endpoint is asked instead: the one that clients use, `http://127.0.0.1:8808` or `unix:/path`.

    \b
    dynamic-mcp health
    dynamic-mcp health https://mcp.example.com/mcp
    """
    from dynamic_mcp.cli.health import check_running, check_url

    if url is None:
        check_running(context, "/ready" if ready else "/health")
    else:
        check_url(context, url, "ready" if ready else "health")
