"""Catalogs of replicas that share a store: one that starts shows tools before it has connected."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.groups.catalog_store import CatalogStore, key
from dynamic_mcp.groups.shared_catalogs import CATALOGS
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.shared_store import SharedStore
from tests.fakes import BOUND_S, Client, FakeUpstream, Json, Opener, config_of, group_config, tool
from tests.features.cluster.store_servers import until_true
from tests.features.pins.pinned import tools_of
from tests.features.shared_stores import StorePair, redis, store_pair

__all__ = ["redis", "store_pair"]


@contextlib.asynccontextmanager
async def replica(folder: Path, name: str, store: SharedStore, *tools: Json) -> AsyncIterator[tuple[Client, Opener]]:
    """Run a proxy with a cache of its own; hand out a client of it, and what opens its links."""
    opener = Opener(up=[FakeUpstream({"tools/list": {"tools": list(tools)}})])
    proxy = Proxy(config_of(group_config("up")), opener=opener, catalog_store=CatalogStore(folder / name))
    try:
        proxy.set_shared_store(store)
        await proxy.wait_for_shared(BOUND_S)
        client = Client(proxy)
        await client.initialize()
        yield client, opener
    finally:
        await proxy.close()


async def has_catalog(store: SharedStore, folder: Path) -> bool:
    catalogs = CatalogStore(folder)
    config = group_config("up")
    return catalogs.has(config) and await store.get(CATALOGS, key(config)) is not None


async def test_a_replica_that_starts_shows_what_another_has_learnt(store_pair: StorePair, tmp_path: Path) -> None:
    async with replica(tmp_path, "a", store_pair[0], tool("one")) as (client, _):
        assert await tools_of(client) == ["one"]
        await until_true(lambda: has_catalog(store_pair[1], tmp_path / "a"))
    async with replica(tmp_path, "b", store_pair[1], tool("one")) as (client, opener):
        assert await tools_of(client) == ["one"]
        assert opener.opened == []


async def test_what_a_replica_knows_itself_stays(store_pair: StorePair, tmp_path: Path) -> None:
    alone = LocalStore(tmp_path / "alone.sqlite")
    for name, store, listed in (("a", store_pair[0], "old"), ("b", alone, "new")):
        async with replica(tmp_path, name, store, tool(listed)) as (client, _):
            assert await tools_of(client) == [listed]
            await until_true(partial(has_catalog, store, tmp_path / name))
    await alone.close()
    async with replica(tmp_path, "b", store_pair[1], tool("new")) as (client, _):
        assert await tools_of(client) == ["new"]


@pytest.mark.parametrize("value", [b"no catalog", b"x" * 100])
async def test_what_cannot_be_read_is_left_out(store_pair: StorePair, tmp_path: Path, value: bytes) -> None:
    await store_pair[0].put(CATALOGS, key(group_config("up")), value, 60)
    async with replica(tmp_path, "a", store_pair[1], tool("one")) as (client, _):
        assert await tools_of(client) == ["one"]


async def test_a_store_that_is_away_keeps_no_replica_from_starting(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store.sqlite")
    await store.close()
    async with replica(tmp_path, "a", store, tool("one")) as (client, opener):
        assert await tools_of(client) == ["one"]
        assert opener.opened == ["up"]
