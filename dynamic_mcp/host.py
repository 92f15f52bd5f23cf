"""Serves one config until its client is gone or a signal comes.

It holds what a serving proxy needs besides its face: the log, the watch on the config, the entry among the running
proxies, the signals, and an end that is bounded whatever a server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Container, Coroutine
from types import TracebackType

from msgspec import Struct

from dynamic_mcp.config.resolved import Config, Log
from dynamic_mcp.config.watch import ConfigWatcher
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.lines import LineFace, Streams
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.oauth.user_logins import open_logins
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.status import read_status
from dynamic_mcp.system import paths
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.text import pluralize
from dynamic_mcp.upstream.process.child import kill_all, terminate_all

log = logging.getLogger("dynamic_mcp")

# How long requests in flight may take to finish, after the end of input and after a signal.
FINISH_WITHIN_S = 4.0
FINISH_AFTER_SIGNAL_S = 1.0
# From the end of input to the end of the last server, whatever it does, and the least that servers get of it.
EXIT_WITHIN_S = 4.4
_SERVERS_EXIT_WITHIN_S = 0.2
# The watch on the config begins this long after a client was greeted, so that servers start first; if no client
# says hello, it begins after the other time.
_SERVERS_FIRST_S = 0.5
_HELLO_WITHIN_S = 5.0


class LogOptions(Struct, frozen=True):
    """What the command line says about the log; None leaves it to the config."""

    level: str | None
    form: str | None


class ServingLog:
    """The log of a serving proxy: the command line comes first, then the config."""

    def __init__(self, options: LogOptions) -> None:
        self.config = ""  # the file that is served, once it is known
        self._options = options
        self._serving = log_output.ServerLog(options.level or Log().level, options.form or Log().form)

    def configure(self, config: Log) -> None:
        """Log as the config says, where the command line says nothing."""
        level, form = self._options.level or config.level, self._options.form or config.form
        folder = paths.log_dir() if config.file else None
        self._serving.configure(level, form, folder=folder, config=self.config)

    def record_failure(self, error: ConfigError) -> None:
        """Write to the file why serving did not start; the command line says it on stderr."""
        self.close()
        log_output.append_error(paths.log_dir(), f"did not start: {error}", config=self.config)

    def close(self) -> None:
        """Write the records that are still queued."""
        self._serving.close()


def run(config: Config, serving_log: ServingLog, streams: Streams) -> None:
    """Serve one client on two file descriptors, in an event loop of its own."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, serving_log, streams))


async def _serve(config: Config, serving_log: ServingLog, streams: Streams) -> None:
    _log_warnings(config, known=())
    log.info("serving %s: %s", config.file, pluralize(len(config.groups), "group"))
    gc.freeze()  # what exists now stays to the end, so the garbage collector need not scan it again and again
    gc.enable()
    logins = open_logins(config.file, may_open_browser=True)
    cache = paths.cache_dir()
    proxy = Proxy(
        config,
        catalog_store=CatalogStore(cache / "catalogs"),
        logins=logins,
        semantic_index=SemanticIndex(cache / "vectors"),
    )
    reloader = _Reloader(proxy, config, serving_log)
    registry = ProxyRegistry(paths.state_dir() / "running")
    publishing = registry.publish(lambda: read_status(proxy, reloader.config.file, kind="stdio"))
    try:
        async with _background(reloader.run(), publishing):
            await _serve_client(proxy, streams, config.max_message_bytes, reload=reloader.watch.reload)
    finally:
        await logins.close()
    log.info("stopped serving")


async def _serve_client(
    proxy: Proxy, streams: Streams, max_message_bytes: int, *, reload: Callable[[], None]
) -> None:
    """Serve until input ends or a signal comes; return when every child has ended."""
    face = LineFace(max_message_bytes)
    loop = asyncio.get_running_loop()
    with _SignalHandlers(loop, end=face.ended.set, reload=reload) as signals:
        await face.open(proxy, streams)
        await face.ended.wait()
        ended_at = loop.time()
        await face.session.finish(FINISH_AFTER_SIGNAL_S if signals.has_received_end else FINISH_WITHIN_S)
        face.session.close()
        terminate_all(max(_SERVERS_EXIT_WITHIN_S, EXIT_WITHIN_S - (loop.time() - ended_at)))
        await proxy.close()
        await face.sink.close()


class _SignalHandlers:
    """SIGTERM and SIGINT end serving, and the second of them ends the process at once; SIGHUP reloads the config."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, end: Callable[[], None], reload: Callable[[], None]
    ) -> None:
        self.has_received_end = False
        self._loop = loop
        self._end = end
        self._reload = reload
        self._installed: list[signal.Signals] = []

    def __enter__(self) -> _SignalHandlers:
        if sys.platform != "win32":
            self._install(signal.SIGTERM, self._receive_end)
            self._install(signal.SIGINT, self._receive_end)
            self._install(signal.SIGHUP, self._reload)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        for number in self._installed:
            self._loop.remove_signal_handler(number)

    def _install(self, number: signal.Signals, handle: Callable[[], None]) -> None:
        self._loop.add_signal_handler(number, handle)
        self._installed.append(number)

    def _receive_end(self) -> None:
        if self.has_received_end:
            _exit_now()
        self.has_received_end = True
        self._end()


class _Reloader:
    """Applies each new version of the config file to the proxy."""

    def __init__(self, proxy: Proxy, config: Config, serving_log: ServingLog) -> None:
        self.watch = ConfigWatcher(config, os.environ, on_config=self._apply, on_error=self._report)
        self.config = config
        self._proxy = proxy
        self._log = serving_log

    async def run(self) -> None:
        """Watch the file once the first client has its answer, or after a while if none says hello."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_WITHIN_S):
                await self._proxy.is_greeted.wait()
                await asyncio.sleep(_SERVERS_FIRST_S)
        try:
            await self.watch.run()
        except Exception:
            log.exception("a bug: the config is no longer watched")

    def _apply(self, config: Config) -> None:
        self._log.configure(config.log)
        log.info("%s has changed: %s", config.file, pluralize(len(config.groups), "group"))
        _log_warnings(config, known=(*self.config.distrust, *self.config.warnings))
        self.config = config
        self._proxy.apply(config)

    def _report(self, error: ConfigError) -> None:
        log.error("the config was not reloaded: %s", error)
        self._proxy.complain(f"the config was not reloaded: {error}")


@contextlib.asynccontextmanager
async def _background(*works: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run these coroutines in the background, and cancel them at the end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _log_warnings(config: Config, known: Container[str]) -> None:
    for warning in (*config.distrust, *config.warnings):
        if warning not in known:
            log.warning("%s: %s", config.file, warning)


def _exit_now() -> None:
    kill_all()
    os._exit(0)
