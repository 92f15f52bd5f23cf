"""A replica opens what its config says is shared, says how that is, and serves on without it."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.errors import ListenError
from dynamic_mcp.features.metrics.families import Values
from dynamic_mcp.features.metrics.gauges import read_gauges
from dynamic_mcp.system.shared_store import StoreFailure, StoreSpace
from tests.fakes import text_of
from tests.features.cluster.replicas import Replica, replicas
from tests.features.cluster.store_servers import failure_of, store_server, until, until_works
from tests.http_client import HttpClient
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient

PLAIN = StoreSpace("plain")


@pytest.fixture
async def pair() -> AsyncIterator[list[Replica]]:
    async with replicas() as running:
        yield running


async def ready_of(replica: Replica) -> Any:  # Any: JSON
    async with HttpClient(replica.url) as http:
        response = await http.request("GET", "/ready")
        assert response.status == 200
        return json.loads(await response.read())


def store_in(folder: Path) -> str:
    return (folder / "shared" / "store.sqlite").as_uri().replace("file:", "sqlite:")


async def test_replicas_share_what_their_config_names(pair: list[Replica], tmp_path: Path) -> None:
    assert "shared_store" not in await ready_of(pair[0])
    for each in pair:
        await each.apply(store=store_in(tmp_path))
    one, other = (each.proxy.shared_store for each in pair)
    assert one is not None
    assert other is not None
    await one.put(PLAIN, "a", b"1", 60)
    assert await other.get(PLAIN, "a")
    said = (await ready_of(pair[0]))["shared_store"]
    assert (said["state"], said["where"]) == ("ok", one.describe().where)


async def test_a_config_without_a_store_closes_it(pair: list[Replica], tmp_path: Path) -> None:
    replica = pair[0]
    await replica.apply(store=store_in(tmp_path))
    store = replica.proxy.shared_store
    assert store is not None
    await replica.apply()
    assert replica.proxy.shared_store is None
    assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.CLOSED


async def test_an_unchanged_store_stays_open(pair: list[Replica], tmp_path: Path) -> None:
    replica = pair[0]
    await replica.apply(store=store_in(tmp_path))
    store = replica.proxy.shared_store
    await replica.apply(store=store_in(tmp_path))
    assert replica.proxy.shared_store is store


async def test_a_config_that_cannot_be_served_leaves_the_store_open(pair: list[Replica], tmp_path: Path) -> None:
    replica = pair[0]
    await replica.apply(store=store_in(tmp_path))
    store = replica.proxy.shared_store
    assert store is not None
    await store.put(PLAIN, "a", b"1", 60)
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(ListenError):
            await replica.apply(listen=TcpAddress(*other.getsockname()), store=store_in(tmp_path / "other"))
        assert replica.proxy.shared_store is store
        assert await store.get(PLAIN, "a")
    await replica.apply(listen=TcpAddress("127.0.0.1", free_port()), store=store_in(tmp_path / "other"))
    assert replica.proxy.shared_store is not store
    assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.CLOSED


async def test_a_replica_that_ends_closes_its_store(tmp_path: Path) -> None:
    async with replicas() as running:
        await running[0].apply(store=store_in(tmp_path))
        store = running[0].proxy.shared_store
    assert store is not None
    assert await failure_of(store.get(PLAIN, "a")) is StoreFailure.CLOSED


async def test_calls_go_on_while_the_store_is_down_and_ready_names_it(pair: list[Replica]) -> None:
    replica = pair[0]
    await replica.apply(store=f"valkey://127.0.0.1:{free_port()}/0")
    async with HttpClient(replica.url) as http:
        client = McpClient(http)
        await client.initialize()
        answer = await client.call("up", "echo", {"text": "hello"})
        assert text_of(answer["result"]) == "hello"
    ready = await ready_of(replica)
    assert (ready["status"], ready["shared_store"]["state"]) == ("ready", "cannot be reached")
    gauges = {each.definition.name: each for each in read_gauges(replica.proxy)}
    is_up = gauges["dynamic_mcp_shared_store_up"]
    assert isinstance(is_up, Values)
    assert is_up.series == {(): 0}


@pytest.mark.full
async def test_a_store_that_comes_back_is_used_again(pair: list[Replica], tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        await pair[0].apply(store=server.url)
        store = pair[0].proxy.shared_store
        assert store is not None
        await until_works(lambda: store.put(PLAIN, "a", b"1", 60))
        server.stop()
        await until(lambda: store.describe().failure)
        assert (await ready_of(pair[0]))["shared_store"]["state"] == "cannot be reached"
        server.start()
        await until(lambda: not store.describe().failure)
        assert (await ready_of(pair[0]))["shared_store"]["state"] == "ok"
