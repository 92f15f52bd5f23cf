"""`dynamic-mcp [CONFIG]`: read the config, then serve until the client is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from dynamic_mcp import paths
from dynamic_mcp.config.read import find, read
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.face.stdio import serve
from dynamic_mcp.proxy import Proxy

log = logging.getLogger("dynamic_mcp")

_ON_A_TERMINAL = """\
dynamic-mcp is an MCP server: an AI tool starts it and speaks JSON with it over stdin and stdout.
Put `dynamic-mcp {file}` into that tool's MCP settings.
It serves {count} here all the same; end it with Ctrl-D."""


def run(argument: str | None) -> None:
    """Serve the config that `argument`, the environment or the usual places name. Raises ConfigError."""
    _log_to_stderr(os.environ.get("DYNAMIC_MCP_LOG", "info"))
    file = find(argument, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir())
    config = read(file, os.environ)
    for warning in config.warnings:
        log.warning("%s: %s", file, warning)
    if sys.stdin.isatty():
        groups = f"{len(config.groups)} group{'' if len(config.groups) == 1 else 's'}"
        print(_ON_A_TERMINAL.format(file=file, count=groups), file=sys.stderr)  # noqa: T201
    stdout = _stdout_to_ourselves()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, stdout))


async def _serve(config: Config, stdout: int) -> None:
    await serve(Proxy(config), sys.stdin.fileno(), stdout, config.max_message_bytes)


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
