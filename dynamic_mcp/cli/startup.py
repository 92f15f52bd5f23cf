"""A serving proxy: its config and the watch on it, its log, its place among the running ones, and its client."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Container, Coroutine

from msgspec import Struct

from dynamic_mcp.cli.client import loop_factory
from dynamic_mcp.cli.credentials import logins
from dynamic_mcp.cli.invocation import config_file
from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Config, Log
from dynamic_mcp.config.watch import Watch
from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.lines import OnSignal
from dynamic_mcp.face.lines import serve as serve_stdio
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.instances import Entry, GroupEntry, InstanceRegistry
from dynamic_mcp.proxy.router import Proxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.own_command import command
from dynamic_mcp.system.text import counted
from dynamic_mcp.upstream.process.child import kill_all

log = logging.getLogger("dynamic_mcp")

# The config is watched once a client was greeted and servers have had this long to start; where no client says
# hello, after the other time.
_SERVERS_FIRST_S = 0.5
_HELLO_WITHIN_S = 5.0

_ON_A_TERMINAL = """\
dynamic-mcp is an MCP server: your AI tool starts it and talks to it over stdin and stdout.
`dynamic-mcp install TOOL` adds it to a tool's settings; by hand, add the command `{command}` there.
Serving {count} on this terminal until Ctrl-D. `dynamic-mcp --help` lists the other commands."""


class LogOptions(Struct, frozen=True):
    """What the command line says about the log; None leaves it to the environment and the config."""

    level: str | None
    form: str | None


def serve(argument: str | None, options: LogOptions) -> None:
    """Serve the config that `argument`, the environment or the usual places name. Raises ConfigError."""
    level = _level(options.level, "--log-level") or _level(os.environ.get("DYNAMIC_MCP_LOG"), "DYNAMIC_MCP_LOG")
    logs = _Logs(LogOptions(level, options.form))
    try:
        file = config_file(argument)
        logs.config = str(file.absolute())
        config = read(file, os.environ)
        logs.take(config.log)
        _warn(config, known=())
        if sys.stdin.isatty():
            words = _ON_A_TERMINAL.format(command=command(file), count=counted(len(config.groups), "group"))
            print(log_output.escaped(words, keep="\n"), file=sys.stderr)  # noqa: T201
        stdout = _stdout_to_ourselves()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, stdout, logs))
    except ConfigError as exc:
        logs.tell_the_file(exc)
        raise
    finally:
        logs.close()


async def _serve(config: Config, stdout: int, logs: _Logs) -> None:
    log.info("serving %s: %s", config.file, counted(len(config.groups), "group"))
    gc.freeze()  # what is there now stays to the end, and need not be looked through for garbage again and again
    gc.enable()
    known = logins(config.file, may_open_browser=True)
    cache = paths.cache_dir()
    proxy = Proxy(
        config,
        catalog_store=CatalogStore(cache / "catalogs"),
        logins=known,
        semantic_index=SemanticIndex(cache / "vectors"),
    )
    reload = _Reload(proxy, config, logs)
    registry = InstanceRegistry(paths.state_dir() / "running")
    try:
        async with _beside(reload.run(), registry.keep(lambda: _entry(proxy, reload.config))):
            on_signal = OnSignal(reload.watch.reload, _exit_now)
            await serve_stdio(proxy, sys.stdin.fileno(), stdout, config.max_message_bytes, on_signal)
    finally:
        await known.close()
    log.info("stopped serving")


class _Logs:
    """The log of this proxy, as the command line, the environment and the config have it, in this order."""

    def __init__(self, options: LogOptions) -> None:
        self.config = ""  # the file that is served, once it is known
        self._options = options
        self._serving = log_output.Serving(options.level or Log().level, options.form or Log().form)

    def take(self, config: Log) -> None:
        """Log as the config says, where nothing else does."""
        level, form = self._options.level or config.level, self._options.form or config.form
        folder = paths.log_dir() if config.file else None
        self._serving.configure(level, form, folder=folder, config=self.config)

    def tell_the_file(self, error: ConfigError) -> None:
        """Write down why there is no proxy; stderr hears of it from the command line."""
        self.close()
        log_output.note(paths.log_dir(), f"did not start: {error}", config=self.config)

    def close(self) -> None:
        """Write what waits."""
        self._serving.close()


class _Reload:
    """Puts what the config file becomes into the proxy."""

    def __init__(self, proxy: Proxy, config: Config, logs: _Logs) -> None:
        self.watch = Watch(config, os.environ, take=self._take, refuse=self._refuse)
        self.config = config
        self._proxy = proxy
        self._logs = logs

    async def run(self) -> None:
        """Watch the file once the first client has its answer, or soon where none says hello."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_WITHIN_S):
                await self._proxy.begun.wait()
                await asyncio.sleep(_SERVERS_FIRST_S)
        try:
            await self.watch.run()
        except Exception:
            log.exception("a bug: the config is no longer watched")

    def _take(self, config: Config) -> None:
        self._logs.take(config.log)
        log.info("%s has changed: %s", config.file, counted(len(config.groups), "group"))
        _warn(config, known=(*self.config.distrust, *self.config.warnings))
        self.config = config
        self._proxy.apply(config)

    def _refuse(self, error: ConfigError) -> None:
        log.error("the config was not reloaded: %s", error)
        self._proxy.complain(f"the config was not reloaded: {error}")


@contextlib.asynccontextmanager
async def _beside(*works: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Do these as long as something else is done."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _entry(proxy: Proxy, config: Config) -> Entry:
    """Return what `dynamic-mcp status` shows of this proxy."""
    return Entry(
        config=str(config.file.absolute()),
        clients=[session.client for session in proxy.sessions],
        groups=[
            GroupEntry(
                name=group.name,
                state=group.state.value,
                reason=group.reason,
                tools=None if group.known is None else len(group.known.tools),
                in_flight=group.in_flight,
                calls=group.use.calls,
                failures=group.use.failures,
            )
            for group in proxy.groups
        ],
    )


def _warn(config: Config, known: Container[str]) -> None:
    for warning in (*config.distrust, *config.warnings):
        if warning not in known:
            log.warning("%s: %s", config.file, warning)


def _exit_now() -> None:
    kill_all()
    os._exit(0)


def _stdout_to_ourselves() -> int:
    """Take stdout away from everything else, so that a stray `print` cannot break the protocol."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours


def _level(name: str | None, where: str) -> str | None:
    if name is None or name.lower() in log_output.LEVELS:
        return name and name.lower()
    raise ConfigError(where, "", f"`{name}` is not a level", hint="use debug, info, warning or error")
