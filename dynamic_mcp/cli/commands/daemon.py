"""`dynamic-mcp daemon`: the process that runs the servers for all AI tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Run the servers once for all AI tools.", subcommand_metavar="COMMAND")
def command() -> None:
    """Run the servers of a config once for all AI tools, in a process of their own."""


@command.command("install")
@click.option("--print", "is_printing", is_flag=True, help="Print the file of the service and change nothing.")
@common_options
def install(this: Invocation, *, is_printing: bool) -> int:
    """Start the daemon with each login, as a service of systemd or launchd."""
    from dynamic_mcp.cli.daemon_service import install_service

    return install_service(this, is_printing=is_printing)


@command.command("uninstall")
@click.option("--print", "is_printing", is_flag=True, help="Print the commands that do it and change nothing.")
@common_options
def uninstall(this: Invocation, *, is_printing: bool) -> int:
    """Stop the service of `daemon install` and remove it."""
    from dynamic_mcp.cli.daemon_service import uninstall_service

    return uninstall_service(this, is_printing=is_printing)
