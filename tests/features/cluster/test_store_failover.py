"""A shared store behind sentinels follows the server that they choose."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.store_address import parse_address
from dynamic_mcp.system.shared_store import ABSENT, Rate, StoreFailure, StoreSpace
from tests.features.cluster.store_servers import (
    Sentinel,
    StoreServer,
    failure_of,
    open_valkey,
    store_server,
    until,
    until_works,
)

pytestmark = pytest.mark.full

PLAIN = StoreSpace("plain")


class Trio:
    """A server, its replica, and a sentinel."""

    def __init__(self, first: StoreServer, second: StoreServer, sentinel: Sentinel) -> None:
        self.first = first
        self.second = second
        self.sentinel = sentinel

    def knows_the_replica(self) -> bool:
        return str(self.second.port) in self.sentinel.ask("SENTINEL", "REPLICAS", "main")

    def has_copied(self) -> bool:
        return "master_link_status:up" in self.second.ask("INFO", "replication")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with ExitStack() as stack:
        first = stack.enter_context(store_server(tmp_path))
        replicates = ("--replicaof", "127.0.0.1", str(first.port))
        second = stack.enter_context(store_server(tmp_path, "redis-server", *replicates))
        sentinel = Sentinel(tmp_path, first)
        stack.callback(sentinel.stop)
        sentinel.start()
        yield Trio(first, second, sentinel)


async def test_the_store_is_used_again_after_its_server_was_killed(
    trio: Trio, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dynamic_mcp")
    await until(trio.knows_the_replica)
    async with open_valkey(parse_address(trio.sentinel.url, tmp_path)) as store:
        version = await store.put(PLAIN, "a", b"1", 600)
        await store.count(PLAIN, [Rate("a", 1000, 0)])
        await until(trio.has_copied)
        await until(lambda: trio.second.ask("KEYS", "*:[er]:plain:*").count("\n") == 2)
        trio.first.stop()
        await until(lambda: store.describe().failure)
        assert await failure_of(store.get(PLAIN, "a")) in (StoreFailure.DOWN, StoreFailure.SLOW)
        found = await until_works(lambda: store.get(PLAIN, "a"))
        assert found.version == version
        wait = await store.count(PLAIN, [Rate("a", 1000, 0)])
        assert wait is not None
        assert await store.compare_and_set(PLAIN, "b", b"1", 60, expected=ABSENT)
    assert str(trio.second.port) in trio.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")


async def test_a_planned_failover_is_followed_while_the_old_server_still_answers(
    trio: Trio, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await until(trio.knows_the_replica)
    await until(trio.has_copied)
    async with open_valkey(parse_address(trio.sentinel.url, tmp_path)) as store:
        await store.put(PLAIN, "a", b"1", 600)
        await until(
            lambda: "OK" in trio.sentinel.ask("SENTINEL", "FAILOVER", "main")
        )  # not before it knows of the copy
        await until(lambda: str(trio.second.port) in trio.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
        await until(lambda: "another server" in caplog.text or "read only" in caplog.text)
        await until_works(lambda: store.put(PLAIN, "b", b"2", 600))
    async with open_valkey(trio.second.address) as store:  # the old one takes writes for a while, which are lost
        found = await store.get(PLAIN, "b")
        assert found is not None
        assert found.value == b"2"


async def test_sentinels_that_know_no_server_are_said_to_be_so(trio: Trio, tmp_path: Path) -> None:
    url = trio.sentinel.url.replace("/main/", "/other/")
    async with open_valkey(parse_address(url, tmp_path)) as store:
        assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.DOWN
