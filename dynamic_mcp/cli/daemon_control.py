"""Starts, stops and shows the daemon of a config."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp import __version__
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.location import identify
from dynamic_mcp.errors import DaemonError
from dynamic_mcp.face import frames

if sys.platform == "win32":
    from dynamic_mcp.system import named_pipe
if TYPE_CHECKING:
    from dynamic_mcp.system.private_socket import Socket

# The time for a daemon to start, which may be longer than a window waits: no AI tool waits for an answer.
_START_WITHIN_S = 30.0
# The time for it to stop on request.
_STOP_WITHIN_S = 10.0
# The time for its process to exit after that.
_EXIT_WITHIN_S = 5.0
_POLL_S = 0.01


def start_daemon(context: Invocation) -> int:
    """Start the daemon unless it runs. Raises ConfigError and DaemonError."""
    config = _require_daemon(context)
    running = _find(config)
    if running is not None:
        running.close()
        context.out.say(f"the daemon of `{config}` was already running")
    else:
        _start(config)
        context.out.say(f"started the daemon of `{config}`")
    return 0


def stop_daemon(context: Invocation) -> int:
    """Stop the daemon if it runs, and wait for its end. Raises ConfigError and DaemonError."""
    config = identify(context.config_path())
    is_stopped = stop_running(config)
    context.out.say(
        f"stopped the daemon of `{config}`" if is_stopped else f"the daemon of `{config}` was not running"
    )
    return 0


def restart_daemon(context: Invocation) -> int:
    """Stop the daemon if it runs, and start it. Raises ConfigError and DaemonError."""
    config = _require_daemon(context)
    stop_running(config)
    _start(config)
    context.out.say(f"restarted the daemon of `{config}`")
    return 0


def show_daemon(context: Invocation) -> int:
    """Print whether the daemon runs; return 0 if it does. Raises ConfigError."""
    config = identify(context.config_path())
    connection = _find(config)
    if connection is not None:
        connection.close()
    is_running = connection is not None
    if context.out.is_json:
        context.out.print_json({"config": config, "running": is_running, "version": __version__})
    else:
        context.out.print_line(f"the daemon of `{config}` {'runs' if is_running else 'does not run'}")
        if is_running:
            context.out.say("hint: `dynamic-mcp status` shows its sessions and servers")
    return 0 if is_running else 1


def stop_running(config: str) -> bool:
    """Stop the daemon, also one that is still starting, and wait for its end; return whether there was one."""
    from dynamic_mcp.face import window

    connection = window.find_starting_daemon(config, within_s=_START_WITHIN_S)
    if connection is None:
        return False
    from dynamic_mcp.system.private_socket import peer_process

    with contextlib.closing(connection):
        connection.settimeout(_STOP_WITHIN_S)
        process = peer_process(connection)
        try:
            connection.sendall(frames.hello(b"stop", os.fsencode(config), version=__version__.encode()))
            while connection.recv(1 << 16):
                pass
        except TimeoutError:
            _kill(process, config)
        except OSError:  # it has stopped, by itself or for another command
            pass
    if process is not None:
        _wait_for_exit(process)
    return True


def _wait_for_exit(process: int) -> None:
    """Wait for the exit of a process that has closed its connections."""
    if sys.platform == "win32":
        named_pipe.wait_for_exit(process, _EXIT_WITHIN_S)
    else:
        try:
            pidfd = os.pidfd_open(process)
        except (AttributeError, OSError):  # another system or an old kernel, or the process has exited
            _poll_for_exit(process)
            return
        # not by polling the id: init of a container may reap the process late or never
        try:
            select.select([pidfd], [], [], _EXIT_WITHIN_S)
        finally:
            os.close(pidfd)


def _poll_for_exit(process: int) -> None:
    deadline = time.monotonic() + _EXIT_WITHIN_S
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # the latter if another user's process has reused the id
        while time.monotonic() < deadline:
            os.kill(process, 0)
            time.sleep(_POLL_S)


def _require_daemon(context: Invocation) -> str:
    """Return the path of a config with a daemon; report its errors here rather than in the daemon's log.

    Raises ConfigError and DaemonError.
    """
    config = context.read_config()
    if config.daemon is None:
        hint = '`"settings": {"daemon": true}` lets it; `dynamic-mcp daemon run --linger never` runs one all the same'
        raise DaemonError(f"`{config.file}` asks for no daemon, so nothing would use it", hint=hint)
    return identify(config.file)


def _kill(process: int | None, config: str) -> None:
    """Kill a daemon that hangs; its servers end with it. Raises DaemonError if its process is not known."""
    if process is None:
        why = f"the daemon of `{config}` has not stopped within {_STOP_WITHIN_S:g} s"
        raise DaemonError(why, hint="`dynamic-mcp status` shows its process id")
    if sys.platform == "win32":
        named_pipe.end_process(process)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _find(config: str) -> Socket | None:
    """Return a connection to the daemon of a config; None if none runs."""
    from dynamic_mcp.face import window

    return window.find_daemon(config)


def _start(config: str) -> None:
    """Start a daemon, through its service if one is installed."""
    from dynamic_mcp.cli.daemon_service import find_service
    from dynamic_mcp.face import window

    service = find_service(Path(config))
    if service is not None:
        service.start()
        return
    connection = window.find_or_start_daemon(config, within_s=_START_WITHIN_S)
    if connection is None:
        why = f"the daemon of `{config}` has not started within {_START_WITHIN_S:g} s"
        raise DaemonError(why, hint="`dynamic-mcp logs` may say why")
    connection.close()
