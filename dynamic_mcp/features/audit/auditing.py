"""The audit log of a proxy, in a process that serves and in a command that asks servers itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import structs

from dynamic_mcp.config.observe import Audit
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.identity import Authentication
from dynamic_mcp.proxy.observer_service import ObserverContext, ObserverService
from dynamic_mcp.system import paths


def make_service(context: ObserverContext) -> Auditing:
    """Return the log of a proxy."""
    return Auditing(context.proxy.roles_of)


class Auditing(ObserverService):
    """Writes the log of a proxy, whose `roles_of` returns all roles of a client."""

    def __init__(self, roles_of: Callable[[Authentication], tuple[str, ...]]) -> None:
        self._roles_of = roles_of
        self._trails: dict[Audit, Trail] = {}

    def apply(self, config: Config) -> AuditObserver | None:
        """Write the log as this config says. Requests in flight go on with that of the config before."""
        settings = config.audit
        if settings is None:
            return None
        trail = self._trail(structs.replace(settings, arguments="keys"))
        return AuditObserver(trail, arguments=settings.arguments, config=str(config.file), roles_of=self._roles_of)

    @property
    def failures(self) -> int:
        """How often something could not be written."""
        return sum(trail.recorder.failures for trail in self._trails.values())

    async def close(self) -> None:
        """Write what is left."""
        for trail in self._trails.values():
            trail.recorder.close()  # here, as all that it records is recorded here
            await asyncio.to_thread(trail.close)
        self._trails.clear()

    def _trail(self, settings: Audit) -> Trail:
        found = self._trails.get(settings)
        if found is None:
            keeping = Keeping(settings.keep_s, settings.seal.key, settings.seal.syslog, settings.seal.command)
            directory = settings.path or paths.state_dir() / "audit"
            found = self._trails[settings] = Trail(directory, keeping, stops_writes=settings.stops_writes)
        return found
