"""Results that are cached for all are those of all replicas that share a store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.cache.shared import CACHED
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.shared_store import SharedStore, StoreSpace
from tests.fakes import Client, Json, Opener, config_of, group_config
from tests.features.cache.test_result_cache import ALL, MARK, OWN, Counting
from tests.features.cluster.store_servers import StoreServer, until_true
from tests.features.shared_stores import StorePair
from tests.policy.rules import person


class Replica:
    """A proxy with a server of its own, which counts its calls."""

    def __init__(self, proxy: Proxy, server: Counting) -> None:
        self.proxy = proxy
        self.server = server

    async def client(self, name: str = "ann") -> Client:
        client = Client(self.proxy, authentication=person(name))
        await client.initialize()
        return client

    async def get(self, name: str = "ann", **args: Json) -> dict[str, Json]:
        """Call the tool that reads, as a user; return the result."""
        client = await self.client(name)
        result = await client.call("up", "get_x", args)
        client.session.close()
        return result


@contextlib.asynccontextmanager
async def replica(store: SharedStore, *rules: Cache, share: Share = Share.ALL) -> AsyncIterator[Replica]:
    server = Counting()
    group = group_config("up", rules={"cache": rules}, share=share)
    proxy = Proxy(config_of(group), opener=Opener(up=[server]))
    proxy.set_shared_store(store)
    try:
        yield Replica(proxy, server)
    finally:
        await proxy.close()


@contextlib.asynccontextmanager
async def two(pair: StorePair, *rules: Cache, share: Share = Share.ALL) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replica(pair[0], *rules, share=share) as a, replica(pair[1], *rules, share=share) as b:
        yield a, b


async def test_what_one_replica_has_cached_answers_at_another(
    store_pair: StorePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = written_to(store_pair[0], monkeypatch)
    async with two(store_pair, ALL) as (a, b):
        first = await a.get()
        await written.wait()
        second = await b.get("bob")
        assert b.server.count == 0
        assert second["content"] == first["content"]
        assert second["_meta"][MARK]["age_s"] >= 0


def written_to(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set once a result was written to a store."""
    written, put = asyncio.Event(), store.put

    async def put_and_say(space: StoreSpace, name: str, value: bytes, ttl_s: float) -> bytes:
        version = await put(space, name, value, ttl_s)
        if space is CACHED:
            written.set()
        return version

    monkeypatch.setattr(store, "put", put_and_say)
    return written


async def test_results_for_one_person_are_not_shared(store_pair: StorePair) -> None:
    async with two(store_pair, OWN) as (a, b):
        await a.get()
        await b.get()
        assert (a.server.count, b.server.count) == (1, 1)


async def test_results_of_a_session_are_not_shared(store_pair: StorePair) -> None:
    async with two(store_pair, ALL, share=Share.SESSION) as (a, b):
        await a.get()
        await b.get()
        assert (a.server.count, b.server.count) == (1, 1)


@pytest.mark.parametrize("has_read", [True, False])
async def test_a_write_at_one_replica_is_one_for_all(
    store_pair: StorePair, monkeypatch: pytest.MonkeyPatch, *, has_read: bool
) -> None:
    written = written_to(store_pair[0], monkeypatch)
    async with two(store_pair, ALL) as (a, b):
        await a.get()
        await written.wait()
        if has_read:
            await b.get("bob")
        await (await b.client()).call("up", "delete_x")
        asked = b.server.count
        newer = await b.get("bob")
        assert b.server.count == asked + 1, "it does not get what was cached before its own write"

        async def is_newer() -> bool:
            return bool((await a.get())["content"] == newer["content"])

        await until_true(is_newer)
        assert a.server.count == 1, "it was cached at the other one"


async def test_without_the_store_each_replica_asks_for_itself(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store.sqlite")
    await store.close()
    async with two((store, store), ALL) as (a, b):
        await a.get()
        await a.get()
        await b.get()
        assert (a.server.count, b.server.count) == (1, 1)


@pytest.mark.full
async def test_a_shared_result_is_sealed_and_expires(
    store_pair: StorePair, redis: StoreServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "redis" not in request.node.name:
        pytest.skip("a file is not sealed")
    written = written_to(store_pair[0], monkeypatch)
    async with two(store_pair, ALL) as (a, _):
        await a.get()
        await written.wait()
        (name,) = redis.ask("KEYS", f"dynamic-mcp:1:e:{CACHED.name}:*").split()
        assert "content" not in redis.ask("GET", name)
        assert 0 < int(redis.ask("TTL", name)) <= 60
