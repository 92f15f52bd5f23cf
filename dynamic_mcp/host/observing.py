"""The observers of a proxy's requests: the features of the table that its config wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynamic_mcp.config.read import ConfigState, ReloadCounts
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.table import FEATURES, Feature
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers

if TYPE_CHECKING:
    from dynamic_mcp.proxy.observer_service import ObserverService
    from dynamic_mcp.system.worker import WorkerIdentity


class Observing:
    """Gives a proxy the observers of its config. Observers with unchanged settings survive a reload.

    For the proxy of a command, these are only the features that observe commands.
    """

    def __init__(
        self,
        proxy: Proxy,
        reloads: ReloadCounts | None = None,
        *,
        is_command: bool = False,
        worker: WorkerIdentity | None = None,
    ) -> None:
        self._worker = worker
        self._reloads = reloads or ReloadCounts()
        self._proxy = proxy
        self._features = [each for each in FEATURES if each.observer and (each.observes_commands or not is_command)]
        self._services: dict[str, ObserverService] = {}

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics; empty while there are none."""
        return next((service.url for service in self._services.values() if service.url), "")

    def apply(self, config: Config) -> None:
        """Observe as this config says from now on."""
        applied = [service.apply(config) for service in self._services_for(config)]
        observers = [observer for observer in applied if observer is not None]
        self._proxy.observers = Observers(observers) if observers else None

    def reload(self, old: ConfigState, new: ConfigState) -> None:
        """Observe as another version says, and report the change also to the observers that it removes."""
        observed_before, is_same = self._proxy.observers is not None, old.base.audit == new.base.audit
        if observed_before and not is_same:
            self._record_change(old, new)
        self.apply(new.base)
        if not observed_before or is_same or new.base.audit is not None:
            self._record_change(old, new)

    def _record_change(self, old: ConfigState, new: ConfigState) -> None:
        if self._proxy.observers is not None:
            from dynamic_mcp.host.config_events import events_of_change

            for event in events_of_change(old, new):
                self._proxy.note(event)

    def _services_for(self, config: Config) -> Iterator[ObserverService]:
        """Yield the services that any config has wanted so far, in the order of the table."""
        for feature in self._features:
            if feature.name not in self._services and feature.is_wanted(config):
                self._services[feature.name] = self._make_service(feature)
            if feature.name in self._services:
                yield self._services[feature.name]

    def _make_service(self, feature: Feature) -> ObserverService:
        from dynamic_mcp.proxy.observer_service import ObserverContext  # imported with the first observer

        context = ObserverContext(self._proxy, self._reloads, self._count_failures, self._worker)
        service: ObserverService = feature.load(feature.observer).make_service(context)
        return service

    def _count_failures(self) -> int:
        return sum(service.failures for service in self._services.values())

    async def close(self) -> None:
        """Flush the observers, within a bound."""
        for feature in self._features:
            if feature.name in self._services:
                await self._services[feature.name].close()
