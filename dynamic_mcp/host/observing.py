"""Who observes the requests of a proxy, as its config says: the audit log, telemetry and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from dynamic_mcp.config.observe import Audit
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.host.reload_counts import ReloadCounts
from dynamic_mcp.proxy.observation import Observer, Observers
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths

if TYPE_CHECKING:  # loaded where they are configured
    from dynamic_mcp.host.metrics_service import MetricsService
    from dynamic_mcp.host.telemetry import TelemetryService
    from dynamic_mcp.observe.audit.trail import Trail


class Observing:
    """Gives a proxy the observers of its config. What the config leaves as it is goes on over a reload."""

    def __init__(self, proxy: Proxy) -> None:
        self.reloads = ReloadCounts()
        self._proxy = proxy
        self._trails: dict[Audit, Trail] = {}
        self._metrics: MetricsService | None = None
        self._telemetry: TelemetryService | None = None

    @property
    def metrics_url(self) -> str:
        """Where metrics are read; empty while they are not."""
        return "" if self._metrics is None else self._metrics.url

    def apply(self, config: Config) -> None:
        """Observe as this config says from now on."""
        observers = self._make(config)
        self._proxy.observers = Observers(observers) if observers else None

    def _make(self, config: Config) -> list[Observer]:
        """Return the observers, the first to begin and the last to end first: telemetry, metrics, the audit log."""
        observers = [*self._trace(config), *self._measure(config)]
        if config.audit is not None:
            observers.append(self._audit(config, config.audit))
        return observers

    def _trace(self, config: Config) -> Iterator[Observer]:
        if config.telemetry is not None and self._telemetry is None:
            from dynamic_mcp.host.telemetry import TelemetryService

            self._telemetry = TelemetryService(self._proxy)
        if self._telemetry is not None:
            self._telemetry.apply(config.telemetry)
            if self._telemetry.observer is not None:
                yield self._telemetry.observer

    def _measure(self, config: Config) -> Iterator[Observer]:
        if config.metrics is not None and self._metrics is None:
            from dynamic_mcp.host.metrics_service import MetricsService

            self._metrics = MetricsService(self._proxy, self.reloads, self._count_audit_failures)
        if self._metrics is not None:
            self._metrics.apply(config.metrics)
            if config.metrics is not None:
                yield self._metrics.observer

    def _audit(self, config: Config, settings: Audit) -> Observer:
        from dynamic_mcp.proxy.audit.observer import AuditObserver

        trail = self._trail(structs.replace(settings, arguments="keys"))
        return AuditObserver(
            trail, arguments=settings.arguments, config=str(config.file), roles_of=self._proxy.roles_of
        )

    def _trail(self, settings: Audit) -> Trail:
        """Return what writes the log of these settings; requests in flight go on with that of the settings before."""
        found = self._trails.get(settings)
        if found is None:
            from dynamic_mcp.observe.audit.keeper import Keeping
            from dynamic_mcp.observe.audit.trail import Trail

            keeping = Keeping(settings.keep_s, settings.seal_key, settings.seal_syslog, settings.seal_command)
            directory = settings.path or paths.state_dir() / "audit"
            found = self._trails[settings] = Trail(directory, keeping, stops_writes=settings.stops_writes)
        return found

    def _count_audit_failures(self) -> int:
        return sum(trail.recorder.failures for trail in self._trails.values())

    async def close(self) -> None:
        """Write and send what is left, within a bound."""
        if self._telemetry is not None:
            await self._telemetry.close()
        if self._metrics is not None:
            await self._metrics.close()
        for trail in self._trails.values():
            trail.recorder.close()  # here, as all that it records is recorded here
            await asyncio.to_thread(trail.close)
        self._trails.clear()
