"""The telemetry of a serving proxy: creates the recorder, starts sending, and closes it."""

from __future__ import annotations

import asyncio
import logging
import os

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.telemetry.config import Telemetry
from dynamic_mcp.features.telemetry.recorder import Recorder
from dynamic_mcp.features.telemetry.records import TelemetrySettings
from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.proxy.observer_service import ObserverContext, ObserverService
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# The SDK's default sampler, which can be applied without the SDK.
_DEFAULT_SAMPLERS = frozenset(("", "parentbased_always_on"))


def make_service(context: ObserverContext) -> TelemetryService:
    """Return the telemetry of a proxy."""
    return TelemetryService(context.proxy)


class TelemetryService(ObserverService):
    """Records a proxy's work according to its config."""

    def __init__(self, proxy: Proxy) -> None:
        self._observer: Tracing | None = None
        self._proxy = proxy
        self._settings: Telemetry | None = None
        self._recorder: Recorder | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tasks = TaskSet(log)

    def apply(self, config: Config) -> Tracing | None:
        """Record according to this config; earlier records are still sent to their collector."""
        settings = config.settings_of("telemetry", Telemetry)
        if settings != self._settings:
            self._change(settings)
        return self._observer

    def _change(self, settings: Telemetry | None) -> None:
        self._end()
        self._settings, self._observer = settings, None
        if settings is not None:
            plain = TelemetrySettings(
                settings.endpoint, settings.traces is not False, settings.metrics is not False, __version__
            )
            sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
            recorder = self._recorder = Recorder(plain, has_sampler=sampler not in _DEFAULT_SAMPLERS)
            self._observer = Tracing(recorder, with_payloads=settings.arguments)
            self._starting = self._tasks.create(self._start(recorder), name="start of telemetry")

    async def close(self) -> None:
        """Send the rest, within a bound."""
        self._end()
        await self._tasks.wait()

    def _end(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self._recorder is not None:
            self._tasks.create(asyncio.to_thread(self._recorder.close), name="end of telemetry")
            self._recorder = None

    async def _start(self, recorder: Recorder) -> None:
        await self._proxy.wait_for_first_client()
        recorder.start()
