"""The interface by which a feature observes a proxy's requests, over all versions of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dynamic_mcp.config.read import ReloadCounts
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.proxy.proxy import Proxy
    from dynamic_mcp.proxy.request import Observer
    from dynamic_mcp.system.worker import WorkerIdentity


class ObserverContext(Struct, frozen=True):
    """Other things that a service may observe. `count_failures` counts what services could not record.

    `worker` is this process where several serve one config.
    """

    proxy: Proxy
    reloads: ReloadCounts
    count_failures: Callable[[], int]
    worker: WorkerIdentity | None = None


class ObserverService:
    """Is made by `make_service` of a module when a config first wants it, and lives as long as the proxy."""

    @property
    def url(self) -> str:
        """The address of its page; empty if it has none."""
        return ""

    @property
    def failures(self) -> int:
        """The number of records that failed."""
        return 0

    def apply(self, config: Config) -> Observer | None:
        """Observe as this config says from now on; return the observer of requests, None if the config wants none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Write and send what is left, within a bound."""
