"""Checks which replicas answer, and what they need of their store."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, Level, warning
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.service import ClusterService

_WHERE = "settings.cluster.peers"


async def probe(config: Config) -> list[Finding]:
    """Ask all replicas for their names, and try all that is needed of the store."""
    settings = config.settings_of("cluster", Cluster)
    if settings is None:
        return []
    return [
        *await _probe_peers(settings, config.max_message_bytes),
        *await _probe_store(settings, config.file.parent),
    ]


async def _probe_store(settings: Cluster, folder: Path) -> list[Finding]:
    if settings.store is None:
        return []
    from dynamic_mcp.features.cluster.store_probe import probe_store

    return await probe_store(settings, folder)


async def _probe_peers(settings: Cluster, max_body_bytes: int) -> list[Finding]:
    """Return the names of those that answer, and how many do not."""
    service = ClusterService(settings, max_body_bytes)
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
