"""Who observes the requests of a proxy, as its config says: the audit log, telemetry and metrics."""

from __future__ import annotations

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.proxy.observation import Observer, Observers
from dynamic_mcp.proxy.proxy import Proxy


class Observing:
    """Gives a proxy the observers of its config. What the config leaves as it is goes on over a reload."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def apply(self, config: Config) -> None:
        """Observe as this config says from now on."""
        observers = self._make(config)
        self._proxy.observers = Observers(observers) if observers else None

    def _make(self, config: Config) -> list[Observer]:
        """Return the observers, the first to begin and the last to end first: telemetry, metrics, the audit log."""
        return []

    async def close(self) -> None:
        """Write and send what is left, within a bound."""
