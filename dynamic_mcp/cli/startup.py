"""The start of a serving proxy: finds its config, sets up its log and hands both to the host, without click."""

from __future__ import annotations

import logging
import os
import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dynamic_mcp.cli.invocation import find_config, narrow_config, unknown_group
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.location import choose_profile, identify
from dynamic_mcp.config.read import ConfigState, read_all
from dynamic_mcp.config.resolved import Config, DaemonConfig
from dynamic_mcp.config.types import parse_idle_time
from dynamic_mcp.errors import ConfigError, DaemonError, InvalidArguments, ListenError, NotFound
from dynamic_mcp.face.lines import Streams
from dynamic_mcp.host import stdio
from dynamic_mcp.host.serving import ConfigSource
from dynamic_mcp.host.serving_log import LogOptions, ServingLog
from dynamic_mcp.observe import log_output
from dynamic_mcp.system.text import escape, pluralize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dynamic_mcp.cli.direct_server import DirectServer
    from dynamic_mcp.face.shim import Shim
    from dynamic_mcp.host.http_control import HttpOverrides
    from dynamic_mcp.system.worker import WorkerIdentity

log = logging.getLogger("dynamic_mcp")

_NO_DAEMON = "the daemon could not be reached or started in time: this client is served alone, by servers of its own"
_BESIDE_A_DAEMON = (
    "a daemon of %s runs already, so clients over HTTP get other servers than its windows; to share them, set"
    " `settings.http`, with which the daemon serves HTTP itself, or stop it first with `dynamic-mcp daemon stop`"
)
_ON_A_TERMINAL = """\
dynamic-mcp is an MCP server: your AI tool starts it and talks to it over stdin and stdout.
`dynamic-mcp install TOOL` adds it to a tool's settings; by hand, add the command `{command}` there.
Serving {count} on this terminal until Ctrl-D. `dynamic-mcp --help` lists the other commands."""
_CONNECTED = """\
dynamic-mcp is an MCP server: your AI tool starts this command and talks to it over stdin and stdout.
Serving `{label}` on this terminal until Ctrl-D."""


def serve(
    argument: str | None,
    *,
    only: str | None = None,
    profile: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
) -> int:
    """Serve the config from `argument`, the environment or the default places until the client disconnects.

    With `only`, the client sees just that group, which must be in its `profile`. Returns the exit code. Raises
    ConfigError and NotFound.
    """
    serving_log = _open_log(log_level, log_format)
    profile = choose_profile(profile, os.environ)
    try:
        configs = _read_config(argument, serving_log)
        chosen = narrow_config(configs.base, profile)
        if only is not None and only not in chosen.presentations:
            raise unknown_group(only, chosen)
        if sys.stdin.isatty():
            _explain(chosen)
        is_on_terminal = sys.stdin.isatty() or sys.stdout.isatty()
        shim = None
        if not is_on_terminal:
            shim = _find_or_start_daemon(configs.base, serving_log, only=only, profile=profile)
            shim = shim or _take_over(configs.base, only=only, profile=profile)
        if shim is None:
            streams = Streams(sys.stdin.fileno(), _claim_stdout(), only=only, profile=profile)
            stdio.run(configs, serving_log, streams)
            return 0
    except (ConfigError, NotFound) as exc:
        serving_log.record_failure(exc)
        raise
    finally:
        serving_log.close()
    code = shim.run()
    return go_on_alone(shim, log_level=log_level, log_format=log_format) if code is None else code


def go_on_alone(shim: Shim, *, log_level: str | None = None, log_format: str | None = None) -> int:
    """Continue to serve a window without a daemon; return the exit code. Raises ConfigError."""
    from dynamic_mcp.session.continuation import Continuation

    serving_log = _open_log(log_level, log_format)
    try:
        configs = _read_config(shim.config, serving_log)
        if not shim.is_refused:
            log.warning("%s", _NO_DAEMON)
        interrupted, unread = tuple(shim.backlog.interrupted()), shim.backlog.unread()
        continuation = Continuation(shim.generation, shim.notes, interrupted, shim.unwritten(), unread)
        streams = Streams(sys.stdin.fileno(), _claim_stdout(), continuation, shim.only, shim.profile)
        stdio.run(configs, serving_log, streams)
    except ConfigError as exc:
        serving_log.record_failure(exc)
        raise
    finally:
        serving_log.close()
    return 0


def connect(server: DirectServer, *, log_level: str | None = None, log_format: str | None = None) -> int:
    """Serve a remote server without a config to one client; return the exit code. Raises InvalidArguments."""
    from dynamic_mcp.cli.direct_server import configure

    serving_log = _open_log(log_level, log_format)
    serving_log.config = server.label
    try:
        configs = configure(server, os.environ)
        serving_log.configure(configs.base.log)
        if sys.stdin.isatty():
            _say(_CONNECTED.format(label=server.label))
        (group,) = configs.base.groups
        streams = Streams(sys.stdin.fileno(), _claim_stdout(), only=group.name)
        stdio.run(configs, serving_log, streams, ConfigSource(server.label, server.login_command))
    except InvalidArguments as exc:
        serving_log.record_failure(exc)
        raise
    finally:
        serving_log.close()
    return 0


def serve_daemon(
    argument: str | None, *, linger: str | None, replaces: bool, socket: Path | None, ready: int | None
) -> int:
    """Serve the windows of a config until no client has needed it for a while. Raises ConfigError and DaemonError."""
    from dynamic_mcp.cli.daemon_control import stop_running
    from dynamic_mcp.host import daemon

    serving_log = _open_log(None, None)
    try:
        configs = _read_config(argument, serving_log)
        if replaces:
            stop_running(identify(configs.base.file))
        options = daemon.DaemonOptions(_place_socket(configs.base, socket), ready, _parse_linger(linger))
        is_only_one = daemon.run(configs, serving_log, options)
    except ConfigError as exc:
        serving_log.record_failure(exc)
        raise
    finally:
        serving_log.close()
    if not is_only_one:
        raise DaemonError(f"another daemon of `{configs.base.file}` runs", hint="`dynamic-mcp daemon stop` stops it")
    return 0


def serve_http(
    argument: str | None,
    overrides: HttpOverrides,
    *,
    workers: int | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
) -> int:
    """Serve over HTTP until a signal; as the daemon if the config has one, or by so many `workers`.

    Returns the exit code. Raises ConfigError, NotFound, ListenError and InvalidArguments.
    """
    from dynamic_mcp.host import http

    worker = None if workers is None else _this_worker()
    serving_log = _open_log(log_level, log_format, worker="" if worker is None else worker.name)
    try:
        configs = _read_config(argument, serving_log)
        overrides = replace(overrides, profile=choose_profile(overrides.profile, os.environ))
        narrow_config(configs.base, overrides.profile)  # raises NotFound
        if worker is not None:
            http.run(configs, serving_log, _with_port(overrides, configs.base, worker.port), worker)
        elif workers is not None:
            return _supervise(configs.base, overrides, workers)
        elif not _serve_http_as_daemon(configs, serving_log, overrides):
            http.run(configs, serving_log, overrides)
    except (ConfigError, NotFound, ListenError, InvalidArguments) as exc:
        serving_log.record_failure(exc)
        raise
    finally:
        serving_log.close()
    return 0


def serve_ui(argument: str, show: Callable[[str], Awaitable[None]]) -> int:
    """Serve the page of a config until a signal; `show` gets its URL. Raises DynamicMcpError."""
    from dynamic_mcp.host import ui

    serving_log = _open_log(None, None)
    try:
        ui.run(_read_config(argument, serving_log), serving_log, show)
    finally:
        serving_log.close()
    return 0


def _this_worker() -> WorkerIdentity | None:
    from dynamic_mcp.system.worker import of_process

    return of_process(os.environ)


def _with_port(overrides: HttpOverrides, config: Config, port: int) -> HttpOverrides:
    """Return the options with the port that all workers share, if the config leaves that to the system."""
    from dynamic_mcp.config.addresses import TcpAddress

    listen = overrides.override(config.http).listen
    return (
        replace(overrides, listen=TcpAddress(listen.host, port))
        if port and isinstance(listen, TcpAddress)
        else overrides
    )


def _supervise(config: Config, overrides: HttpOverrides, workers: int) -> int:
    """Serve by this many processes; return the exit code. Raises InvalidArguments and ListenError."""
    if sys.platform == "win32":
        raise InvalidArguments("`--workers` needs ports that processes share, and Windows has none")
    from dynamic_mcp.host import supervisor

    return supervisor.run(config, overrides, workers)


def _serve_http_as_daemon(configs: ConfigState, serving_log: ServingLog, overrides: HttpOverrides) -> bool:
    """Serve over HTTP as the daemon of the config; return False if it has none, or if one runs already."""
    config = configs.base
    if config.daemon is None:
        return False
    from dynamic_mcp.host import daemon

    try:
        options = daemon.DaemonOptions(_place_socket(config, None), http=overrides)
    except DaemonError as exc:
        log.warning("windows of %s get servers of their own: %s", config.file, exc)
        return False
    if daemon.run(configs, serving_log, options):
        return True
    log.warning(_BESIDE_A_DAEMON, config.file)
    return False


def _open_log(level: str | None, form: str | None, *, worker: str = "") -> ServingLog:
    level = _parse_level(level, "--log-level")
    return ServingLog(
        LogOptions(level or _parse_level(os.environ.get("DYNAMIC_MCP_LOG"), "DYNAMIC_MCP_LOG"), form), worker=worker
    )


def _read_config(argument: str | None, serving_log: ServingLog) -> ConfigState:
    file = find_config(argument)
    serving_log.config = identify(file)
    configs = read_all(file, os.environ)
    serving_log.configure(configs.base.log)
    return configs


def _find_or_start_daemon(
    config: Config, serving_log: ServingLog, *, only: str | None, profile: str | None
) -> Shim | None:
    """Return the shim of this window if the config has a daemon; None if the window serves alone."""
    if config.daemon is None:
        return None
    from dynamic_mcp.face import window

    file = identify(config.file)
    connection = window.find_or_start_daemon(file)
    if connection is None:
        log.warning("%s", _NO_DAEMON)
        return None
    if window.may_be_thinner():
        serving_log.close()
        window.restart()
    return window.open_window(file, connection, only=only, profile=profile)


def _take_over(config: Config, *, only: str | None, profile: str | None) -> Shim | None:
    """Return the shim of a window that was restarted by an upgrade and has no daemon any more."""
    from dynamic_mcp.face import window

    if not window.was_upgraded():
        return None
    return window.open_window(identify(config.file), None, only=only, profile=profile)


def _place_socket(config: Config, socket: Path | None) -> Path:
    """Return the path for the socket of a config's daemon. Raises DaemonError."""
    from dynamic_mcp.face import window
    from dynamic_mcp.system import private_socket

    try:
        return socket or Path(private_socket.place(os.environ, window.socket_name(str(config.file))))
    except OSError as exc:
        raise DaemonError(str(exc), hint="set `XDG_RUNTIME_DIR` to a directory that only you can use") from exc


def _parse_linger(text: str | None) -> DaemonConfig | None:
    if text is None:
        return None
    try:
        linger_s = parse_idle_time(text)
    except FlawError as exc:
        raise InvalidArguments(f"--linger {exc}", hint=exc.hint) from exc
    return DaemonConfig(None if linger_s in (None, inf) else linger_s)


def _parse_level(name: str | None, source: str) -> str | None:
    if name is None or name.lower() in log_output.LEVELS:
        return name and name.lower()
    raise ConfigError(source, "", f"`{name}` is not a level", hint="use debug, info, warning or error")


def _explain(config: Config) -> None:
    """Explain the program to a user who started it on a terminal."""
    from dynamic_mcp.system.shell import format_command

    count = pluralize(len(config.groups), "group")
    _say(_ON_A_TERMINAL.format(command=format_command(config.file), count=count))


def _say(words: str) -> None:
    print(escape(words, keep="\n"), file=sys.stderr)  # noqa: T201


def _claim_stdout() -> int:
    """Keep stdout for the protocol: a stray `print` goes to stderr."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours
