"""Checks which replicas answer."""

from __future__ import annotations

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.service import ClusterService

_WHERE = "settings.cluster.peers"


async def probe(config: Config) -> list[Finding]:
    """Ask all replicas for their names, and return those that answer, and how many do not."""
    settings = config.settings_of("cluster", Cluster)
    if settings is None:
        return []
    service = ClusterService(settings, config.max_message_bytes)
    try:
        await service.look()
        status = service.describe()
    finally:
        await service.close()
    found = []
    if status.unreachable:
        what = f"addresses that do not answer as a replica: {status.unreachable}"
        found.append(warning(_WHERE, what, "do they run, with the same `keys`?"))
    elif not status.replicas:
        found.append(warning(_WHERE, "no address of a replica was found", "does the name behind `dns+` exist here?"))
    if status.replicas:
        found.append(Finding(Level.OK, _WHERE, f"replicas: {', '.join(status.replicas)}"))
    return found
