"""`dynamic-mcp daemon`: the process that runs the servers of a config for all its clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dynamic_mcp.cli.options import common_options, config_option

if TYPE_CHECKING:
    from dynamic_mcp.cli.invocation import Invocation


_system_option = click.option("--system", "is_system", is_flag=True, help="The service of the machine (systemd).")


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


@command.command("install", short_help="Install the daemon as a service of your user, or of the machine.")
@click.option("--print", "is_printing", is_flag=True, help="Print the files of the service and change nothing.")
@_system_option
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="With --system: write the files below DIR and start nothing, for packages and images.",
)
@click.option("--overwrite", is_flag=True, help="With --system: replace files that were edited.")
@common_options
def install(context: Invocation, *, is_printing: bool, is_system: bool, root: str | None, overwrite: bool) -> int:
    """Install the daemon as a service of your user, which starts with each login.

    With --system, it is a confined service of systemd that serves the config over HTTP, by default
    /etc/dynamic-mcp/dynamic-mcp.json, as a user of its own. systemd listens for it, so an upgrade refuses nobody.
    """
    if is_system:
        from dynamic_mcp.cli.system_service import install_system_service

        return install_system_service(context, is_printing=is_printing, root=root, overwrites=overwrite)
    if root is not None or overwrite:
        raise click.UsageError("`--root` and `--overwrite` are for `--system`")
    from dynamic_mcp.cli.daemon_service import install_service

    return install_service(context, is_printing=is_printing)


@command.command("uninstall")
@click.option("--print", "is_printing", is_flag=True, help="Print the commands that do it and change nothing.")
@_system_option
@common_options
def uninstall(context: Invocation, *, is_printing: bool, is_system: bool) -> int:
    """Stop the service and remove it."""
    if is_system:
        from dynamic_mcp.cli.system_service import uninstall_system_service

        return uninstall_system_service(context, is_printing=is_printing)
    from dynamic_mcp.cli.daemon_service import uninstall_service

    return uninstall_service(context, is_printing=is_printing)
