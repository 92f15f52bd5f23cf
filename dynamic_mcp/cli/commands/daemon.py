"""`dynamic-mcp daemon`: the process that runs the servers of a config for all its clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, config_option

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


@click.group(short_help="Run, start, stop or install the daemon of a config.", subcommand_metavar="COMMAND")
def command() -> None:
    """Manage the daemon of a config, which runs servers that all clients of this user share.

    With `"daemon": true` in the config's settings, the first client starts it by itself.
    """


@command.command("run", short_help="Serve in the foreground, as services do.")
@config_option
@click.option(
    "--linger", metavar="TIME", help="How long to stay without clients, or `never`. Default: as configured."
)
@click.option("--replace", is_flag=True, help="Stop the daemon that runs, instead of leaving it to it.")
@click.option("--socket", hidden=True, type=click.Path(path_type=Path))
@click.option("--ready", hidden=True, type=int)
def run(config_file: str | None, *, linger: str | None, replace: bool, socket: Path | None, ready: int | None) -> int:
    """Serve in the foreground until stopped, or until there has been no client for a while."""
    from dynamic_mcp.cli.startup import serve_daemon

    return serve_daemon(config_file, linger=linger, replaces=replace, socket=socket, ready=ready)


@command.command("start")
@common_options
def start(context: Invocation) -> int:
    """Start the daemon in the background, unless it runs."""
    from dynamic_mcp.cli.daemon_control import start_daemon

    return start_daemon(context)


@command.command("stop")
@common_options
def stop(context: Invocation) -> int:
    """Stop the daemon; requests in flight get a few seconds. A client that needs it again starts another."""
    from dynamic_mcp.cli.daemon_control import stop_daemon

    return stop_daemon(context)


@command.command("restart")
@common_options
def restart(context: Invocation) -> int:
    """Stop the daemon if it runs, and start it."""
    from dynamic_mcp.cli.daemon_control import restart_daemon

    return restart_daemon(context)


@command.command("status")
@common_options
def status(context: Invocation) -> int:
    """Show whether the daemon runs. Exit code 0: it does; 1: it does not."""
    from dynamic_mcp.cli.daemon_control import show_daemon

    return show_daemon(context)


@command.command("install", short_help="Install the daemon as a service of your user.")
@click.option("--print", "is_printing", is_flag=True, help="Print the file of the service and change nothing.")
@common_options
def install(context: Invocation, *, is_printing: bool) -> int:
    """Install the daemon as a service of your user, which starts with each login."""
    from dynamic_mcp.cli.daemon_service import install_service

    return install_service(context, is_printing=is_printing)


@command.command("uninstall")
@click.option("--print", "is_printing", is_flag=True, help="Print the commands that do it and change nothing.")
@common_options
def uninstall(context: Invocation, *, is_printing: bool) -> int:
    """Stop the service and remove it."""
    from dynamic_mcp.cli.daemon_service import uninstall_service

    return uninstall_service(context, is_printing=is_printing)
