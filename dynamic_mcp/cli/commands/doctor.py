"""`dynamic-mcp doctor [GROUP]`: check the config, then connect to each server and check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import examining_options, header_option
from dynamic_mcp.cli.suggestions import complete_group

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.command(short_help="Check the config and every server, and report problems.")
@click.argument("group", required=False, shell_complete=complete_group)
@click.option("--deployment", is_flag=True, help="Check the service and what is in front of it, and no servers.")
@header_option
@examining_options
def command(context: Invocation, group: str | None, *, deployment: bool, headers: tuple[str, ...]) -> int:
    """Check the config, connect to every group (or only to GROUP), and report what is wrong and how to fix it.

    For each group: how long the handshake took, protocol version, capabilities, tools, invalid schemas, changed
    tool definitions, non-MCP output on stdout, the last lines of stderr, and whether a login is needed. Servers
    that run in the daemon are checked there, and not started again. The exit code is that of the first error.

    With --deployment, no server is started. It is for a service over HTTP, on its machine and as its user: clocks,
    disks, open files, the keys and the other replicas, the identity provider, the certificate of the public URL, and
    what the reverse proxy does with requests and streams. It is a client for some seconds, for which it makes itself
    a token if it can, or with the one of --header.
    """
    if deployment and group is not None:
        raise click.UsageError("`--deployment` is about the service, and takes no GROUP")
    if headers and not deployment:
        raise click.UsageError("`--header` is for `--deployment`")
    if deployment:
        from dynamic_mcp.cli.deployment import diagnose_deployment

        return diagnose_deployment(context, headers)
    from dynamic_mcp.cli.diagnosis import diagnose

    return diagnose(context, group)
