"""Who observes the requests of a proxy, as its config says: the audit log, telemetry and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamic_mcp.config.observe import Audit
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.proxy.observation import Observer, Observers
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.reload_counts import ReloadCounts

if TYPE_CHECKING:  # loaded where they are configured
    from dynamic_mcp.host.auditing import Auditing
    from dynamic_mcp.host.metrics_service import MetricsService
    from dynamic_mcp.host.telemetry import TelemetryService


class Observing:
    """Gives a proxy the observers of its config. What the config leaves as it is goes on over a reload."""

    def __init__(self, proxy: Proxy) -> None:
        self.reloads = ReloadCounts()
        self._proxy = proxy
        self._auditing: Auditing | None = None
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
        if self._auditing is None:
            from dynamic_mcp.host.auditing import Auditing

            self._auditing = Auditing(self._proxy.roles_of)
        return self._auditing.observe(config, settings)

    def _count_audit_failures(self) -> int:
        return 0 if self._auditing is None else self._auditing.count_failures()

    async def close(self) -> None:
        """Write and send what is left, within a bound."""
        if self._telemetry is not None:
            await self._telemetry.close()
        if self._metrics is not None:
            await self._metrics.close()
        if self._auditing is not None:
            await self._auditing.close()
