"""The replicas that an HTTP server is one of, as its config says while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.features import table
from dynamic_mcp.proxy.proxy import Proxy

if TYPE_CHECKING:
    from dynamic_mcp.face.http.cluster import ReplicaSet


class ClusterControl:
    """Opens and closes this replica's way to the others."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster: ReplicaSet | None = None
        self._applied: Any = None  # Any: the settings of the feature, and the limit of messages

    async def apply(self, face: HttpFace, config: Config) -> None:
        """Be one of the replicas that this config names, from now on."""
        feature = table.feature_with_cluster()
        settings = None if feature is None else config.cluster
        wanted = (settings, config.max_message_bytes)
        if wanted == self._applied:
            return
        old, self._cluster, self._applied = self._cluster, None, wanted
        if feature is not None and settings is not None:
            self._cluster = feature.load(feature.cluster).make_service(
                settings, config.max_message_bytes, lambda: self._proxy.parked_calls.process
            )
            await self._cluster.open()
        face.cluster = self._cluster
        if old is not None:
            await old.close()

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
