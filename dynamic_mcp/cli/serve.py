"""`dynamic-mcp [CONFIG]`: read the config, then serve until the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Container
from pathlib import Path

from dynamic_mcp import paths
from dynamic_mcp.config.read import find, read
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.watch import Watch
from dynamic_mcp.embeddings import Meaning
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.stdio import OnSignal, serve
from dynamic_mcp.proxy import Proxy
from dynamic_mcp.shelf import Shelf
from dynamic_mcp.upstream.process import kill_all

log = logging.getLogger("dynamic_mcp")

# The config is watched once a client was greeted and servers have had this long to start; where no client says
# hello, after the other time.
_SERVERS_FIRST_S = 0.5
_HELLO_WITHIN_S = 5.0

_ON_A_TERMINAL = """\
dynamic-mcp is an MCP server: an AI tool starts it and speaks JSON with it over stdin and stdout.
Put `dynamic-mcp {file}` into that tool's MCP settings.
It serves {count} here all the same; end it with Ctrl-D."""


def run(argument: str | None) -> None:
    """Serve the config that `argument`, the environment or the usual places name. Raises ConfigError."""
    _log_to_stderr(os.environ.get("DYNAMIC_MCP_LOG", "info"))
    file = find(argument, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir())
    config = read(file, os.environ)
    _warn(config, known=())
    if sys.stdin.isatty():
        groups = f"{len(config.groups)} group{'' if len(config.groups) == 1 else 's'}"
        print(_ON_A_TERMINAL.format(file=file, count=groups), file=sys.stderr)  # noqa: T201
    stdout = _stdout_to_ourselves()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, stdout))


async def _serve(config: Config, stdout: int) -> None:
    cache = paths.cache_dir()
    proxy = Proxy(config, shelf=Shelf(cache / "catalogs"), meaning=Meaning(cache / "vectors"))
    reload = _Reload(proxy, config)
    watching = asyncio.create_task(reload.run(), name="watching the config")
    try:
        on_signal = OnSignal(reload.watch.reload, _exit_now)
        await serve(proxy, sys.stdin.fileno(), stdout, config.max_message_bytes, on_signal)
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class _Reload:
    """Puts what the config file becomes into the proxy."""

    def __init__(self, proxy: Proxy, config: Config) -> None:
        self.watch = Watch(config, os.environ, take=self._take, refuse=self._refuse)
        self._proxy = proxy
        self._warnings = config.warnings

    async def run(self) -> None:
        """Watch the file once the first client has its answer, or soon where none says hello."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_WITHIN_S):
                await self._proxy.begun.wait()
                await asyncio.sleep(_SERVERS_FIRST_S)
        try:
            await self.watch.run()
        except Exception:
            log.exception("a bug: the config is not watched any more")

    def _take(self, config: Config) -> None:
        log.info("%s has changed: %d groups", config.file, len(config.groups))
        _warn(config, known=self._warnings)
        self._warnings = config.warnings
        self._proxy.apply(config)

    def _refuse(self, error: ConfigError) -> None:
        log.error("the config stays as it was: %s", error)
        self._proxy.complain(f"the config stays as it was: {error}")


def _warn(config: Config, known: Container[str]) -> None:
    for warning in config.warnings:
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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # not made for Windows
        return None
    return new_event_loop


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(
            "DYNAMIC_MCP_LOG", "", f"`{level}` is not a level", hint="use debug, info, warning or error"
        )
    logging.basicConfig(stream=sys.stderr, format="dynamic-mcp: %(message)s", level=logging.WARNING)
    log.setLevel(number)
