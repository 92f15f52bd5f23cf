"""Serves metrics on a separate listener: opened after the first client was answered, and moved by reloads."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ListenError
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.config import Metrics
from dynamic_mcp.features.metrics.families import Family, Values
from dynamic_mcp.features.metrics.gauges import read_gauges
from dynamic_mcp.features.metrics.observer import MetricsObserver
from dynamic_mcp.proxy.observer_service import ObserverContext, ObserverService
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.worker import WorkerIdentity

if TYPE_CHECKING:  # loaded when the listener is opened
    from dynamic_mcp.features.metrics.listener import MetricsListener

log = logging.getLogger("dynamic_mcp")

# How long readers may take to receive the rest of an answer.
_END_WITHIN_S = 0.2


def make_service(context: ObserverContext) -> MetricsService:
    """Return the metrics of a proxy."""
    return MetricsService(context)


class MetricsService(ObserverService):
    """The metrics of a proxy and their listener. The listener opens once `wait` returns."""

    def __init__(
        self,
        context: ObserverContext,
        *,
        wait: Callable[[Proxy], Awaitable[None]] = Proxy.wait_for_first_client,
    ) -> None:
        self.observer = MetricsObserver()
        self._proxy = context.proxy
        self._reloads = context.reloads
        self._worker = context.worker
        self._count_failures = context.count_failures
        self._wait = wait
        self._wanted: Metrics | None = None
        self._served: Metrics | None = None
        self._listener: MetricsListener | None = None
        self._has_changed = asyncio.Event()
        self._background = TaskSet(log)

    @property
    def url(self) -> str:
        """The URL of the metrics; empty while there is no listener."""
        return "" if self._listener is None else self._listener.url

    def apply(self, config: Config) -> MetricsObserver | None:
        """Serve metrics according to this config; an unavailable address is retried."""
        self._wanted = config.settings_of("metrics", Metrics)
        self._has_changed.set()
        if not self._background:
            self._background.create(self._follow(), name="listener of the metrics")
        return None if self._wanted is None else self.observer

    async def close(self) -> None:
        self._background.cancel_all()
        await self._background.wait()
        await self._stop()

    def read(self) -> Iterator[Family]:
        from dynamic_mcp.features.metrics.gauges import process_families

        yield from self.observer.families
        yield from read_gauges(self._proxy)
        yield from self._read_counts()
        yield from process_families()

    def _read_counts(self) -> Iterator[Family]:
        reloads, last = Values(definitions.RELOADS), Values(definitions.LAST_RELOAD)
        audit = Values(definitions.AUDIT_FAILURES)
        reloads.set(self._reloads.successes, ("success",))
        reloads.set(self._reloads.failures, ("failure",))
        last.set(self._reloads.last_success)
        audit.set(self._count_failures())
        yield from (reloads, last, audit)

    # --- the listener ----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        await self._wait(self._proxy)
        while True:
            self._has_changed.clear()
            wanted = self._wanted
            if self._listener is None or wanted != self._served:
                await self._serve(wanted)
            await self._has_changed.wait()

    async def _serve(self, wanted: Metrics | None) -> None:
        if self._listener is not None and wanted is None:
            log.info("stopped serving metrics at %s", self.url)
        await self._stop()
        if wanted is None:
            return
        make = await asyncio.to_thread(_load_listener)  # other services may be running already
        listener = make(self.read, wanted, self._worker)
        try:
            await listener.open()
        except (OSError, ListenError) as exc:
            await listener.stop(0)
            why = _explain(wanted.address, exc)
            log.warning("metrics are not served: %s; this is tried again when the config is reloaded", why)
            return
        except BaseException:
            await listener.stop(0)
            raise
        self._listener, self._served = listener, wanted
        log.info("metrics are served at %s", listener.url)

    async def _stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop(_END_WITHIN_S)


def _load_listener() -> Callable[[Callable[[], Iterator[Family]], Metrics, WorkerIdentity | None], MetricsListener]:
    from dynamic_mcp.features.metrics.listener import MetricsListener

    return MetricsListener


def _explain(address: TcpAddress, exc: OSError | ListenError) -> str:
    if isinstance(exc, ListenError):
        return exc.message
    if exc.errno == errno.EADDRINUSE:
        return f"the address `{address}` is in use"
    why = os.strerror(exc.errno).lower() if exc.errno else str(exc)
    return f"the address `{address}` cannot be used: {why}"
