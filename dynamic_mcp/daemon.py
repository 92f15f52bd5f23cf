"""The daemon of a config: one set of servers for all its windows, until nobody has needed it for a while."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from functools import partial
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.resolved import Daemon as DaemonConfig
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.face.listener import Listener
from dynamic_mcp.face.socket import Hello, SocketFace
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.host import (
    _SERVERS_EXIT_WITHIN_S,
    EXIT_WITHIN_S,
    FINISH_WITHIN_S,
    ServingLog,
    _background,
    _log_warnings,
    _Reloader,
    _SignalHandlers,
)
from dynamic_mcp.oauth.user_logins import open_logins
from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.status import read_status
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.system import paths
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.upstream.process.child import terminate_all

log = logging.getLogger("dynamic_mcp")


class DaemonOptions(Struct, frozen=True):
    """What the command line says of a daemon.

    `ready` is a descriptor that is told when the daemon listens. `daemon`, if given, comes before that of the config.
    """

    socket: Path
    ready: int | None = None
    daemon: DaemonConfig | None = None


def run(config: Config, serving_log: ServingLog, options: DaemonOptions) -> bool:
    """Serve the windows of a config until nobody needs it; return False if another daemon does so already."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, serving_log, options))


async def _serve(config: Config, serving_log: ServingLog, options: DaemonOptions) -> bool:
    listener = Listener(options.socket)
    logins = open_logins(config.file, may_open_browser=True)
    cache = paths.cache_dir()
    proxy = Proxy(
        config,
        catalog_store=CatalogStore(cache / "catalogs"),
        logins=logins,
        semantic_index=SemanticIndex(cache / "vectors"),
    )
    reloader = _Reloader(proxy, config, serving_log)
    daemon = Daemon(proxy, listener, reloader, options.daemon)
    if not await listener.open(daemon.accept):
        await logins.close()
        return False
    _log_warnings(config, known=())
    log.info("daemon of %s: %s", config.file, pluralize(len(config.groups), "group"))
    gc.freeze()  # what exists now stays to the end, so the garbage collector need not scan it again and again
    gc.enable()
    _announce_readiness(options.ready)
    registry = ProxyRegistry(paths.state_dir() / "running")
    publishing = registry.publish(
        lambda: read_status(proxy, reloader.config.file, kind="daemon", socket=str(options.socket))
    )
    try:
        async with _background(reloader.run(), publishing):
            await daemon.run()
    finally:
        await logins.close()
    log.info("the daemon of %s has ended", config.file)
    return True


class Daemon:
    """Greets windows, and ends when it is asked to or when nobody has needed it for a while."""

    def __init__(
        self, proxy: Proxy, listener: Listener, reloader: _Reloader, options: DaemonConfig | None = None
    ) -> None:
        self._proxy = proxy
        self._listener = listener
        self._reloader = reloader
        self._options = options
        self._faces: set[SocketFace] = set()
        self._windows: set[SocketFace] = set()
        self._ended = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def accept(self) -> SocketFace:
        """Return what serves a new connection."""
        face = SocketFace(self, self._reloader.config.max_message_bytes)
        self._faces.add(face)
        return face

    async def run(self) -> None:
        """Serve until the end; return when every child has ended."""
        with _SignalHandlers(self._loop, end=self._ended.set, reload=self._reloader.watch.reload) as signals:
            self._begin_to_linger()
            await self._ended.wait()
            self._listener.close()
            ended_at = self._loop.time()
            within_s = 1.0 if signals.has_received_end else FINISH_WITHIN_S
            await asyncio.gather(*(face.stop(within_s) for face in self._windows))
            terminate_all(max(_SERVERS_EXIT_WITHIN_S, EXIT_WITHIN_S - (self._loop.time() - ended_at)))
            await self._proxy.close()
            for face in self._faces:
                face.abort()

    # --- Reception -------------------------------------------------------------------------------------

    async def admit(self, face: SocketFace, hello: Hello) -> Session | None:
        """Return the session of a window; None if it is refused or wants none."""
        if hello.purpose == "stop":
            log.info("the daemon was asked to stop")
            self._ended.set()
            return None
        if self._ended.is_set():
            await face.stop(0)
            return None
        if hello.config != str(self._reloader.config.file.absolute()):
            face.end(f"the daemon at `{self._listener.path}` serves another config")
            return None
        self._windows.add(face)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        return face.open_session(partial(Session, server=self._proxy), hello.continuation)

    def dismiss(self, face: SocketFace) -> None:
        """Let go of a window that has gone."""
        self._faces.discard(face)
        self._windows.discard(face)
        self._begin_to_linger()

    def _begin_to_linger(self) -> None:
        """End after a while, unless a window comes."""
        if self._windows or self._linger is not None or self._ended.is_set():
            return
        options = self._options or self._reloader.config.daemon
        linger_s = 0.0 if options is None or not self._listener.is_open else options.linger_s
        if linger_s is not None:
            self._linger = self._loop.call_later(linger_s, self._ended.set)


def _announce_readiness(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, b"1")
            os.close(descriptor)
