"""Serves one client over stdio until it disconnects or a signal arrives. The shutdown is bounded."""

from __future__ import annotations

import asyncio
import logging

from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.face.limits import FINISH_WITHIN_S
from dynamic_mcp.face.lines import LineFace, Streams
from dynamic_mcp.host.serving import FINISH_AFTER_SIGNAL_S, ConfigSource, Serving
from dynamic_mcp.host.serving_log import ServingLog
from dynamic_mcp.host.signals import SignalHandlers
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.text import pluralize

log = logging.getLogger("dynamic_mcp")


def run(configs: ConfigState, serving_log: ServingLog, streams: Streams, origin: ConfigSource | None = None) -> None:
    """Serve one client on two file descriptors, in a new event loop.

    The config is a file unless it has another `origin`.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(configs, serving_log, streams, origin))


async def _serve(
    configs: ConfigState, serving_log: ServingLog, streams: Streams, origin: ConfigSource | None
) -> None:
    config = configs.base
    name = config.file if origin is None else origin.label
    for warning in (*config.file_warnings, *config.warnings):
        log.warning("%s: %s", name, warning)
    log.info("serving %s: %s", name, pluralize(len(config.groups), "group"))
    serving = Serving(configs, serving_log, origin=origin)
    async with serving.run():
        await _serve_client(serving, streams, config.max_message_bytes)
    log.info("stopped serving")


async def _serve_client(serving: Serving, streams: Streams, max_message_bytes: int) -> None:
    """Serve until the input ends or a signal arrives; return when every child has ended."""
    face = LineFace(max_message_bytes)
    loop = asyncio.get_running_loop()
    with SignalHandlers(loop, end=face.ended.set, reload=serving.reload) as signals:
        await face.open(serving.proxy, streams)
        if (http := serving.find_http(serving.config)) is not None:
            http.apply(serving.config, level=logging.WARNING)
        await face.ended.wait()
        ended_at = loop.time()
        within_s = FINISH_AFTER_SIGNAL_S if signals.has_received_end else FINISH_WITHIN_S
        http = serving.find_http(serving.config)
        await asyncio.gather(face.session.finish(within_s), *([] if http is None else [http.finish(within_s)]))
        face.session.close()
        await serving.end_servers(ended_at)
        await face.sink.close()
