"""Limits that two replicas count together, and what they do without their store."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Timeouts
from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.features.limits.shared import HELD_S, PLACES, StoredNames
from dynamic_mcp.system.database_file import delete_database
from dynamic_mcp.system.shared_store import Lease, SharedStore
from tests.fakes import BOUND_S, text_of
from tests.features.limits.test_call_limits import Scene, echo
from tests.features.shared_stores import StorePair

ONE_CALL = Limit("limits[0]", rate=0.001, burst=1)


@contextlib.asynccontextmanager
async def two_replicas(stores: StorePair, *limits: Limit, answers: bool = True) -> AsyncIterator[list[Scene]]:
    """Run two proxies with these limits, each with its store."""
    scenes = [Scene(*limits, answers=answers) for _ in stores]
    for scene, store in zip(scenes, stores, strict=True):
        scene.proxy.set_shared_store(store)
    try:
        yield scenes
    finally:
        for scene in scenes:
            await scene.proxy.close()


async def test_calls_at_two_replicas_count_together(store_pair: StorePair) -> None:
    async with two_replicas(store_pair, Limit("limits[0]", rate=0.001, burst=2)) as (one, other):
        ann, bob = await one.client("ann"), await other.client("bob")
        assert await echo(ann)
        assert await echo(bob)
        for each in (ann, bob):
            refused = await each.call("up", "echo", {})
            assert refused["isError"]
            assert "`echo` was called too often; nothing was sent" in text_of(refused)


async def test_persons_and_tools_are_apart_at_all_replicas(store_pair: StorePair) -> None:
    rule = Limit("limits[0]", per=("person", "tool"), rate=0.001, burst=1)
    async with two_replicas(store_pair, rule) as (one, other):
        assert await echo(await one.client("ann"))
        ann = await other.client("ann")
        assert not await echo(ann)
        assert await echo(ann, "other")
        assert await echo(await other.client("bob"))


async def test_no_more_calls_run_at_once_than_all_replicas_have_places(store_pair: StorePair) -> None:
    async with two_replicas(store_pair, Limit("limits[0]", concurrent=1), answers=False) as (one, other):
        first = asyncio.create_task(echo(await one.client()))
        await one.upstream.hears("tools/call")
        second = asyncio.create_task(echo(await other.client()))
        await is_refused_a_place(store_pair[1])
        assert other.calls() == 0
        await one.answer_call(1)
        assert await first
        await other.answer_call(1)  # a place that is given back wakes who waits at the other replica
        assert await second


async def test_a_call_keeps_its_place_when_the_store_is_emptied(
    store_pair: StorePair, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with two_replicas(store_pair, Limit("limits[0]", concurrent=1), answers=False) as (one, other):
        first = asyncio.create_task(echo(await one.client()))
        await one.upstream.hears("tools/call")
        if isinstance(store_pair[0], LocalStore):
            if sys.platform == "win32":
                pytest.skip("Windows lets nobody remove a database that is open")
            delete_database(tmp_path / "shared" / "store.sqlite")
        else:
            request.getfixturevalue("redis").ask("FLUSHALL")
        await asyncio.sleep(2)  # each replica looks once a second at least
        second = asyncio.create_task(echo(await other.client()))
        await is_refused_a_place(store_pair[1])
        assert other.calls() == 0
        await one.answer_call(1)
        assert await first
        await other.answer_call(1)
        assert await second


async def test_a_call_that_is_cancelled_gives_its_place_back_everywhere(store_pair: StorePair) -> None:
    async with two_replicas(store_pair, Limit("limits[0]", concurrent=1), answers=False) as (one, other):
        client = await one.client()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "echo", "args": {}}}
        client.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params})
        await one.upstream.hears("tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
        after = asyncio.create_task(echo(await other.client()))
        await other.answer_call(1)
        assert await after


async def test_without_the_store_each_replica_counts_by_itself(store_pair: StorePair) -> None:
    limits = (Limit("limits[0]", rate=0.001, burst=1), Limit("limits[1]", concurrent=1))
    async with two_replicas(store_pair, *limits) as scenes:
        for store in store_pair:
            await store.close()
        for scene in scenes:
            client = await scene.client()
            assert await echo(client)
            assert "called too often" in text_of(await client.call("up", "echo", {}))


@pytest.mark.parametrize(
    "rule",
    [
        Limit("limits[0]", rate=0.001, burst=1, without_store="refuse"),
        Limit("limits[0]", concurrent=1, without_store="refuse"),
    ],
)
async def test_without_the_store_a_strict_limit_lets_no_call_pass(store_pair: StorePair, rule: Limit) -> None:
    async with two_replicas(store_pair, rule) as (one, other):
        await store_pair[0].close()
        refused = await (await one.client()).call("up", "echo", {})
        assert refused["isError"]
        assert "`limits[0]` cannot be counted: the shared store is closed; nothing was sent" in text_of(refused)
        assert one.calls() == 0
        assert await echo(await other.client()), "its own store works"


async def test_a_call_waits_for_a_place_at_another_replica_as_long_as_its_timeout(store_pair: StorePair) -> None:
    rule = Limit("limits[0]", concurrent=1)
    async with two_replicas(store_pair, rule, answers=False) as (one, other):
        running = asyncio.create_task(echo(await one.client()))
        await one.upstream.hears("tools/call")
        other.proxy.apply(
            other.config(rule, timeouts=Timeouts(connect_s=5, tools_s=0.01, resources_s=5, prompts_s=5))
        )
        late = await (await other.client()).call("up", "echo", {})
        assert "waited 0.01 s for one of 1 place of `limits[0]`; nothing was sent" in text_of(late)
        await one.answer_call(1)
        assert await running


async def test_a_proxy_that_gets_a_store_and_loses_it_counts_where_it_is_told(store_pair: StorePair) -> None:
    async with two_replicas(store_pair, ONE_CALL) as (one, other):
        client, elsewhere = await one.client(), await other.client()
        assert await echo(client)
        assert not await echo(elsewhere)
        one.proxy.set_shared_store(None)
        assert await echo(client), "alone, it has counted nothing yet"
        assert not await echo(client)


async def is_refused_a_place(store: SharedStore) -> None:
    """Wait until the only place of the rule is taken, as all replicas see it."""
    key = Limit("limits[0]", concurrent=1)
    lease = [Lease(StoredNames().find(name_of(key)), 1)]
    async with asyncio.timeout(BOUND_S):
        while await store.acquire(PLACES, lease, "a test", HELD_S) is None:
            await store.release(PLACES, lease, "a test")
            await asyncio.sleep(0.01)


def name_of(limit: Limit) -> str:
    """Return what the count of a limit is called."""
    from dynamic_mcp.features.limits.limits import LimitRules

    (found,) = LimitRules([limit], "up").concurrency_for("echo")
    return found.key
