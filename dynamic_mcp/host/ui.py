"""Serves the page alone, by a proxy of its own, until a signal arrives: for `dynamic-mcp ui` where nothing runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.host.serving import Serving
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.host.signals import SignalHandlers
from dynamic_mcp.system.event_loop import loop_factory

log = logging.getLogger("dynamic_mcp")


def run(configs: ConfigState, serving_log: ServingLog, show: Callable[[str], Awaitable[None]]) -> None:
    """Serve the page in a new event loop; `show` gets the URL that its path is below. Raises DynamicMcpError."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(configs, serving_log, show))


async def _serve(configs: ConfigState, serving_log: ServingLog, show: Callable[[str], Awaitable[None]]) -> None:
    serving = Serving(configs, serving_log, kind="ui")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    with SignalHandlers(loop, end=ended.set, reload=serving.reload):
        async with serving.run():
            await show(await serving.open_ui())
            await ended.wait()
            await serving.end_servers(loop.time())
