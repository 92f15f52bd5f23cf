"""Serves any number of clients over HTTP until a signal arrives. Does not read stdin."""

from __future__ import annotations

import asyncio
import logging

from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.host.http_control import HttpOverrides
from dynamic_mcp.host.serving import FINISH_AFTER_SIGNAL_S, Serving, find_notifier
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.host.signals import SignalHandlers
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.worker import ALIVE_EVERY_S, WorkerIdentity

log = logging.getLogger("dynamic_mcp")


def run(
    configs: ConfigState, serving_log: ServingLog, overrides: HttpOverrides, worker: WorkerIdentity | None = None
) -> None:
    """Serve a config over HTTP, in a new event loop. Raises ListenError."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(configs, serving_log, overrides, worker))


async def _serve(
    configs: ConfigState, serving_log: ServingLog, overrides: HttpOverrides, worker: WorkerIdentity | None
) -> None:
    config = configs.base
    for warning in (*config.file_warnings, *config.warnings):
        log.warning("%s: %s", config.file, warning)
    serving = Serving(configs, serving_log, kind="http", http=overrides, worker=worker)
    ended, notifier = asyncio.Event(), find_notifier()
    loop = asyncio.get_running_loop()
    with SignalHandlers(loop, end=ended.set, reload=serving.reload) as signals:
        async with serving.run():
            await serving.http.open(config)
            if worker is not None:
                _say_alive(loop, worker)
                _watch_supervisor(loop, ended)
            if notifier is not None:
                notifier.ready(f"serving over HTTP at {serving.http.url}")
            await ended.wait()
            ended_at = loop.time()
            if notifier is not None:
                notifier.stopping()
            await serving.http.finish(FINISH_AFTER_SIGNAL_S if signals.is_urgent else None)
            await serving.end_servers(ended_at if signals.is_urgent else loop.time())
    log.info("stopped serving")


def _say_alive(loop: asyncio.AbstractEventLoop, worker: WorkerIdentity) -> None:
    """Tell the supervisor that this worker serves, now and as long as its loop runs."""
    worker.say_alive()
    loop.call_later(ALIVE_EVERY_S, _say_alive, loop, worker)


def _watch_supervisor(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """End when the supervisor has: then its end of the pipe that is our standard input is closed."""

    def end() -> None:
        loop.remove_reader(0)
        ended.set()

    loop.add_reader(0, end)
