"""The daemon of a config: one set of servers for all its windows. It ends after an idle period."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Config, DaemonConfig
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import ListenError, NotFound
from dynamic_mcp.face.limits import FINISH_WITHIN_S
from dynamic_mcp.face.listener import DaemonListener
from dynamic_mcp.face.socket import Hello, SocketFace
from dynamic_mcp.host.http_control import HttpOverrides
from dynamic_mcp.host.serving import FINISH_AFTER_SIGNAL_S, Serving, find_notifier
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.host.signals import SignalHandlers
from dynamic_mcp.proxy.profiles import unknown_profile
from dynamic_mcp.session.client_connection import ClientOrigin
from dynamic_mcp.session.command_server import CommandServer
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.server import LineSession
from dynamic_mcp.session.stream_session import StreamSession
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.text import escape, pluralize

log = logging.getLogger("dynamic_mcp")

# The time limit for reading a config with a window's profile, and its env files; windows wait a little longer for
# their welcome.
_ENTER_WITHIN_S = 4.0
# The minimum wait for the first window, which has to find the daemon after its start.
_FIRST_WINDOW_WITHIN_S = 5.0
_CHECK_EVERY_S = 10.0
# The time for calls to end after an upgrade, before the daemon hands over anyway, and the interval of the checks.
_HAND_OVER_WITHIN_S = 60.0
_HAND_OVER_POLL_S = 0.2


class DaemonOptions(Struct, frozen=True):
    """The command line's options for a daemon.

    `ready` is a descriptor to write to when the daemon listens, or -1 if the window that has started it looks for it.
    `daemon`, if set, overrides the config's. With `http` it serves HTTP, whatever the config says.
    """

    socket: Path
    ready: int | None = None
    daemon: DaemonConfig | None = None
    http: HttpOverrides | None = None

    @property
    def is_started_by_window(self) -> bool:
        """Return whether a window started it, as the next one will, rather than a user or a service manager."""
        return self.ready is not None


def run(configs: ConfigState, serving_log: ServingLog, options: DaemonOptions) -> bool:
    """Serve the windows of a config until it is idle; return False if another daemon already does.

    Raises ListenError if it was told to serve HTTP and cannot, and ConfigError if a plug-in cannot be opened.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(configs, serving_log, options))


async def _serve(configs: ConfigState, serving_log: ServingLog, options: DaemonOptions) -> bool:
    file = configs.base.file
    serving = Serving(
        configs,
        serving_log,
        kind="daemon",
        socket=str(options.socket),
        http=options.http,
        can_hand_over=options.is_started_by_window,
    )
    await serving.open()
    listener = DaemonListener(options.socket)
    daemon = Daemon(serving, listener, options.daemon, can_hand_over=options.is_started_by_window)
    if not await listener.open(daemon.accept):
        await serving.close()
        await serving.proxy.close()
        return False
    if options.http is None:
        serving.http.apply(configs.base, level=logging.WARNING)
    else:
        await _open_http(serving, listener)
    for warning in configs.base.file_warnings:
        log.warning("%s: %s", file, warning)
    log.info("daemon of %s: %s", file, pluralize(len(configs.base.groups), "group"))
    _announce_readiness(options.ready)
    if (notifier := find_notifier()) is not None:
        notifier.ready(f"serving windows{f' and HTTP at {serving.http.url}' if serving.http.url else ''}")
    async with serving.run():
        await daemon.run()
    log.info("the daemon of %s has ended", file)
    return True


async def _open_http(serving: Serving, listener: DaemonListener) -> None:
    try:
        await serving.http.open(serving.config)
    except ListenError:
        listener.close()
        await serving.close()
        raise


class Daemon:
    """Accepts windows, and ends on request or after an idle period."""

    def __init__(
        self,
        serving: Serving,
        listener: DaemonListener,
        options: DaemonConfig | None = None,
        *,
        can_hand_over: bool = False,
    ) -> None:
        self._serving = serving
        self._workspaces = serving.workspaces
        self._listener = listener
        self._options = options
        self._faces: set[SocketFace] = set()
        self._windows: dict[SocketFace, Workspace | None] = {}
        self._is_wanted = self._config.daemon is not None
        self._has_had_windows = False
        self._ended = asyncio.Event()
        self._check_now = asyncio.Event()
        self._can_hand_over = can_hand_over
        self._hands_over = False
        self._linger: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def accept(self) -> SocketFace:
        """Return the face for a new connection."""
        face = SocketFace(self, self._config.max_message_bytes)
        self._faces.add(face)
        return face

    async def run(self) -> None:
        """Serve until the end; return when every child has ended."""
        serving = self._serving
        serving.served.listeners.append(self._reload_config)
        serving.http.listeners.append(self._begin_to_linger)
        with SignalHandlers(self._loop, end=self._ended.set, reload=self._reload) as signals:
            self._begin_to_linger()
            checking = asyncio.create_task(self._check(), name="check of the socket and of the installation")
            await self._ended.wait()
            checking.cancel()
            self._listener.close()
            ended_at = self._loop.time()
            is_signalled = signals.has_received_end
            within_s = FINISH_AFTER_SIGNAL_S if is_signalled else FINISH_WITHIN_S
            http_within_s = None if is_signalled and not signals.is_urgent else within_s
            if self._hands_over:
                await self._free_port(within_s)
            stopping = (face.drain(within_s, hands_over=self._hands_over) for face in self._windows)
            await asyncio.gather(*stopping, serving.http.finish(http_within_s))
            await serving.end_servers(max(ended_at, self._loop.time() - within_s))
            for face in self._faces:
                face.abort()

    def _reload(self) -> None:
        self._serving.reload()
        self._check_now.set()

    async def _check(self) -> None:
        """Listen again if the socket was removed, for example by a cleanup of temporary files; detect upgrades."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_EVERY_S):
                    await self._check_now.wait()
            self._check_now.clear()
            try:
                await self._listener.restore(self.accept)
            except OSError as exc:
                log.warning("new clients cannot reach this daemon: `%s`: %s", self._listener.path, exc.strerror)
            installation = self._serving.installation
            if (
                self._can_hand_over
                and installation.has_changed()
                and await asyncio.to_thread(installation.is_complete)
            ):
                await self._hand_over()

    async def _hand_over(self) -> None:
        """End, so that the windows start a daemon of the new version; wait for a moment without calls if possible."""
        log.info("dynamic-mcp was upgraded: a new daemon takes over the clients of this one")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HAND_OVER_WITHIN_S):
                while any(group.in_flight for group in self._serving.proxy.groups):  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(_HAND_OVER_POLL_S)
        self._hands_over = True
        self._ended.set()
        await asyncio.Event().wait()  # until this task is cancelled

    async def _free_port(self, within_s: float) -> None:
        """Stop serving HTTP, so that the next daemon can; start that daemon unless a window does."""
        http = self._serving.http
        serves_http_alone = http.is_active and not self._windows
        await http.finish(within_s)
        if serves_http_alone:
            start = partial(self._serving.installation.run, "daemon", "start", "--config", str(self._config.file))
            if not await asyncio.to_thread(start):
                log.error("cannot start a daemon of the new version: HTTP is not served until a client starts one")

    # --- Reception -------------------------------------------------------------------------------------

    async def admit(self, face: SocketFace, hello: Hello) -> LineSession | None:
        """Return the session of a window; None if it is refused or does not want one."""
        if hello.purpose == "stop":
            log.info("the daemon was asked to stop")
            self._ended.set()
            return None
        if config_key(hello.config) != config_key(self._config.file) or hello.purpose not in ("session", "command"):
            face.end(f"the daemon at `{self._listener.path}` cannot serve this")
            return None
        if self._config.daemon is None and hello.purpose == "session":
            face.refuse()
            return None
        self._windows[face] = None
        self._has_had_windows = True
        self._cancel_linger()
        try:
            async with asyncio.timeout(_ENTER_WITHIN_S):
                if (unknown := await self._check_profile(hello)) is not None:
                    face.end(escape(str(unknown), keep="\n"), unknown.exit_code)
                    return None
                workspace = await self._workspaces.enter(hello.directory, hello.environment)
        except TimeoutError:
            log.warning("could not read the files within %g s; this client runs its own servers", _ENTER_WITHIN_S)
            face.abort()
            return None
        self._windows[face] = workspace
        if self._ended.is_set():
            await face.drain(0)
            return None
        is_command = hello.purpose == "command"
        proxy = self._serving.proxy
        origin = ClientOrigin(transport="socket", only=hello.only, workspace=workspace, profile=hello.profile)
        connection = face.connection(origin, hello.continuation, is_command=is_command)
        if is_command:
            return Session(connection, CommandServer(proxy, self._serving.open_ui))
        return StreamSession(connection, proxy)

    async def _check_profile(self, hello: Hello) -> NotFound | None:
        """Return the error that the config has no such profile, nor has its file.

        A session continued from another daemon goes on, and receives a notice that its profile was removed. A command
        has read the config itself.
        """
        if hello.profile is None or hello.continuation.generation or hello.purpose == "command":
            return None
        if hello.profile not in self._config.profiles:
            await self._serving.reloader.watch.catch_up()
        config = self._config
        return (
            None if hello.profile in config.profiles else unknown_profile(hello.profile, config.profiles, config.file)
        )

    def dismiss(self, face: SocketFace) -> None:
        """Called when a window disconnects. Releases it, and its workspace's resources."""
        self._faces.discard(face)
        workspace = self._windows.pop(face, None)
        if workspace is not None:
            is_command = face.session is not None and face.session.is_command
            self._workspaces.leave(workspace, is_command=is_command)
        self._begin_to_linger()

    # --- the end ---------------------------------------------------------------------------------------

    @property
    def _config(self) -> Config:
        return self._serving.config

    def _reload_config(self, old: ConfigState, new: ConfigState) -> None:
        """Record whether the config asks for a daemon; connected windows stay until they end."""
        config = new.base
        if self._is_wanted and config.daemon is None:
            log.info("%s no longer enables the daemon; new clients run their own servers", config.file)
        self._is_wanted = config.daemon is not None
        self._begin_to_linger()

    def _cancel_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _begin_to_linger(self) -> None:
        """End after the idle period, unless a window connects."""
        self._cancel_linger()
        if self._windows or self._ended.is_set() or self._serving.http.is_active:
            return
        options = self._options or self._config.daemon
        linger_s = 0.0 if options is None else options.linger_s
        if linger_s is not None:
            if not self._has_had_windows:
                linger_s = max(linger_s, _FIRST_WINDOW_WITHIN_S)
            self._linger = self._loop.call_later(linger_s, self._end_unless_watched)

    def _end_unless_watched(self) -> None:
        """End, or wait once more if somebody looks at the page."""
        self._linger = None
        if self._serving.is_watched:
            self._linger = self._loop.call_later(_CHECK_EVERY_S, self._end_unless_watched)
        else:
            self._ended.set()


def _announce_readiness(descriptor: int | None) -> None:
    if descriptor is not None and descriptor >= 0:
        with contextlib.suppress(OSError):
            os.write(descriptor, b"1")
        os.close(descriptor)
