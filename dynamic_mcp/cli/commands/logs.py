"""`dynamic-mcp logs [GROUP]`: show the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import proxy_options
from dynamic_mcp.cli.suggestions import complete_server

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Show the log.")
@click.argument("group", required=False, shell_complete=complete_server)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new records until Ctrl-C.")
@click.option("--since", metavar="TIME", help="Only the records of this time until now, e.g. `1h` or `10min`.")
@click.option("--level", type=click.Choice(["debug", "info", "warning", "error"]), help="Only this level and above.")
@proxy_options
def command(context: Invocation, group: str | None, *, follow: bool, since: str | None, level: str | None) -> int:
    """Show the log of what runs, or only the records about GROUP, with what its server writes to stderr.

    The log is also kept in a file, because many AI tools hide stderr. When piped, each record is a line of JSON.
    """
    from dynamic_mcp.cli.log_reader import LogFilter, show_logs

    return show_logs(
        context, LogFilter.parse(group, since, level, config=context.explicit_path()), is_following=follow
    )
