"""The replicas that an HTTP server is one of, as its config says while it runs."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamic_mcp.config.common_part import digest_of_replicas
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.http.cluster import OwnReplica, ReplicaSet
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.features import table
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.shared_store import open_shared_store
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.worker import WorkerIdentity

if TYPE_CHECKING:
    from dynamic_mcp.system.shared_store import SharedStore

log = logging.getLogger("dynamic_mcp")

# How long requests that were passed on by old settings may take.
_FINISH_WITHIN_S = 120.0
# How long the start may wait for the store, which may be away.
_SHARED_WITHIN_S = 1.0
# In the folder of the workers, which ends with their supervisor.
_COUNTS = "counts.db"


class ClusterControl:
    """Opens and closes this replica's way to the others."""

    def __init__(self, proxy: Proxy, worker: WorkerIdentity | None = None) -> None:
        self._proxy = proxy
        self._worker = worker
        self._background = TaskSet(log)
        self._cluster: ReplicaSet | None = None
        self._applied: Any = None  # Any: the settings of the feature, and the limit of messages
        self._store_of: Any = None  # Any: the settings of the feature
        self._before: tuple[SharedStore | None, Any] | None = None  # the store and the settings until `apply`
        self._counts: SharedStore | None = None
        if worker is not None:
            proxy.count_with(partial(self._open_counts, Path(worker.folder)))

    def _open_counts(self, folder: Path) -> SharedStore:
        """Return the store in which all workers count the calls of limits."""
        if self._counts is None:
            feature = table.feature_with_cluster()
            assert feature is not None, "workers are replicas to each other"
            self._counts = feature.load(feature.store).open_file(folder / _COUNTS)
        return self._counts

    async def open_store(self, config: Config) -> None:
        """Share with the other replicas what this config says, before the first request may come.

        What was shared before stays open until `apply`, for `revert_store`.
        """
        if config.cluster == self._store_of:
            return
        store = await open_shared_store(config)
        await self._close_old_store()
        self._before = self._proxy.shared_store, self._store_of
        self._proxy.set_shared_store(store)
        self._store_of = config.cluster
        if store is not None:
            await self._proxy.wait_for_shared(_SHARED_WITHIN_S)

    async def revert_store(self) -> None:
        """Share what was shared before, since nothing else of the config can be applied."""
        if self._before is not None:
            new = self._proxy.shared_store
            (old, self._store_of), self._before = self._before, None
            self._proxy.set_shared_store(old)
            if new is not None:
                await new.close()

    async def _close_old_store(self) -> None:
        before, self._before = self._before, None
        if before is not None and before[0] is not None:
            await before[0].close()

    async def apply(self, face: HttpFace, config: Config) -> None:
        """Be one of the replicas that this config names, from now on."""
        await self._close_old_store()
        feature = table.feature_with_cluster()
        settings = None if feature is None else self._settings(feature, config)
        wanted = (settings, config.max_message_bytes)
        if wanted == self._applied:
            return
        old, self._cluster, self._applied = self._cluster, None, wanted
        if feature is not None and settings is not None:
            self._cluster = feature.load(feature.cluster).make_service(
                settings, config.max_message_bytes, self._describe_own(face, config.file)
            )
            await self._cluster.open()
        face.cluster = self._cluster
        self._proxy.join_replicas(self._cluster)
        face.share(self._proxy.shared_store if self._cluster is not None else None)
        if old is not None:
            self._background.create(_end(old), name="end of the way to other replicas")

    def _describe_own(self, face: HttpFace, config: Path) -> OwnReplica:
        return OwnReplica(
            lambda: self._proxy.parked_calls.process,
            self._proxy.find_opened_apps,
            face.recover,
            partial(digest_of_replicas, config),
        )

    def _settings(self, feature: table.Feature, config: Config) -> object:
        """Return the settings of the feature; to a worker, the others are the replicas."""
        worker = self._worker
        if worker is None:
            return config.cluster
        if config.cluster is not None:
            log.warning("`settings.cluster` is for replicas of one process each, and is not used by workers")
        sockets = [worker.socket_of(number) for number in range(worker.count)]
        return feature.load(feature.cluster).settings_of_worker(worker.name, sockets, worker.key)

    async def close(self) -> None:
        self._background.cancel_all()
        await self._background.wait()
        if self._cluster is not None:
            await self._cluster.close()
        await self._close_old_store()
        store = self._proxy.shared_store
        if store is not None and self._proxy.logins is not None:
            await self._proxy.logins.settle()
        self._proxy.set_shared_store(None)
        for each in (store, self._counts):
            if each is not None:
                await each.close()


async def _end(old: ReplicaSet) -> None:
    """Let what is passed on by old settings finish, within a bound."""
    try:
        await old.drain(_FINISH_WITHIN_S)
    finally:
        await old.close()
