"""A long result that is kept at one replica is read at any other, by whom it is for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dynamic_mcp.proxy.shared_results import MOST_BYTES, RESULTS
from tests.fakes import Json
from tests.features.cluster.modern_requests import send, uri_in
from tests.features.cluster.replicas import BEARER, KEY, Replica, as_user, replicas
from tests.features.cluster.store_servers import StoreServer, store_server, until_true
from tests.http_client import HttpClient
from tests.mcp_client import McpClient
from tests.modern_client import call_of

LONG = "".join(f"line {number}, ä\n" for number in range(200))
_ID = re.compile(r"d1\.[a-z]\.[A-Za-z0-9_-]{22}\.[0-9a-f]{32}")


class Service(NamedTuple):
    """Two replicas that cut results after 100 bytes, and what sends requests to each."""

    replicas: list[Replica]
    at: list[HttpClient]

    async def keep(self, number: int, text: str = LONG, *, path: str = "/mcp") -> str:
        """Call a tool at one of the replicas; return the URI of its result."""
        answer = await send(self.at[number], "tools/call", call_of("up", "echo", {"text": text}), path=path)
        return uri_in(answer)

    async def read(self, number: int, uri: str, *, user: str = "ann", path: str = "/mcp") -> dict[str, Json]:
        return await send(self.at[number], "resources/read", {"uri": uri}, user=user, path=path)


def text_in(answer: dict[str, Json]) -> str:
    text = answer["result"]["contents"][0]["text"]
    assert isinstance(text, str)
    return text


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with (
        replicas(auth=(BEARER,), limit=100) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        yield Service(pair, [first, second])


async def share(service: Service, folder: Path) -> None:
    """Have the replicas share a store in a file."""
    for each in service.replicas:
        await each.apply(store=(folder / "shared" / "store.sqlite").as_uri().replace("file:", "sqlite:"))


async def is_stored(replica: Replica, uri: str) -> bool:
    store = replica.proxy.shared_store
    assert store is not None
    return await store.get(RESULTS, uri.rpartition(".")[2]) is not None


async def test_the_uri_names_the_replica_that_keeps_it(service: Service) -> None:
    uris = [await service.keep(number) for number in (0, 1)]
    ids = [uri.removeprefix("dynamic-mcp://results/") for uri in uris]
    assert [id.split(".")[:2] for id in ids] == [["d1", "a"], ["d1", "b"]]
    assert all(_ID.fullmatch(id) for id in ids)


@pytest.mark.parametrize("number", [0, 1])
async def test_it_is_read_at_any_replica_whole_and_in_ranges(service: Service, number: int) -> None:
    uri = await service.keep(0)
    assert text_in(await service.read(number, uri)) == LONG
    assert text_in(await service.read(number, f"{uri}?start=5&end=17")) == LONG[5:17]
    assert service.replicas[1 - number].opener.opened.count("up") <= 1


async def test_what_is_read_elsewhere_is_the_same_bytes(service: Service) -> None:
    uri = await service.keep(0)
    here, there = [await service.read(number, uri) for number in (0, 1)]
    assert here == there


@pytest.mark.parametrize("number", [0, 1])
async def test_nobody_else_reads_it(service: Service, number: int) -> None:
    uri = await service.keep(0)
    for presented in (uri, uri.replace("d1.a.", "d1.b."), f"dynamic-mcp://results/{uri.rpartition('.')[2]}"):
        answer = await service.read(number, presented, user="bob")
        assert "no kept result" in answer["error"]["message"]
    changed = uri[:-1] + ("0" if uri[-1] != "0" else "1")
    assert "no kept result" in (await service.read(number, changed))["error"]["message"]


async def test_without_a_store_it_ends_with_its_replica(service: Service) -> None:
    uri = await service.keep(0)
    await service.replicas[0].service.finish(0)
    assert "no kept result" in (await service.read(1, uri))["error"]["message"]


async def test_with_a_store_it_outlives_its_replica(service: Service, tmp_path: Path) -> None:
    await share(service, tmp_path)
    uri = await service.keep(0)
    await until_true(lambda: is_stored(service.replicas[1], uri))
    await service.replicas[0].service.finish(0)
    assert text_in(await service.read(1, uri)) == LONG
    assert text_in(await service.read(1, f"{uri}?start=5&end=17")) == LONG[5:17]
    assert "no kept result" in (await service.read(1, uri, user="bob"))["error"]["message"]


async def test_a_session_of_the_same_user_reads_what_a_replica_that_ended_has_kept(
    service: Service, tmp_path: Path
) -> None:
    await share(service, tmp_path)
    client = McpClient(service.at[0], headers=as_user("ann"))
    await client.initialize()
    uri = uri_in(await client.call("up", "echo", {"text": LONG}))
    await until_true(lambda: is_stored(service.replicas[1], uri))
    await service.replicas[0].service.finish(0)
    again = McpClient(service.at[1], headers=as_user("ann"))
    await again.initialize()
    assert text_in(await again.request("resources/read", {"uri": uri})) == LONG


async def test_what_is_too_long_for_the_store_stays_at_its_replica(service: Service, tmp_path: Path) -> None:
    await share(service, tmp_path)
    long = "x" * (MOST_BYTES + 1)
    uri = await service.keep(0, long)
    later = await service.keep(0)
    await until_true(lambda: is_stored(service.replicas[1], later))
    assert not await is_stored(service.replicas[1], uri)
    assert text_in(await service.read(1, uri)) == long


async def test_it_is_found_after_its_key_was_replaced(service: Service) -> None:
    uri = await service.keep(0)
    for each in service.replicas:
        await each.apply(keys=(KEY[::-1], KEY))
    assert text_in(await service.read(1, uri)) == LONG


@pytest.mark.full
async def test_a_store_that_is_away_keeps_no_result_from_its_client(service: Service, tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        for each in service.replicas:
            await each.apply(store=server.url)
        server.freeze()
        try:
            uri = await service.keep(0)
            assert text_in(await service.read(1, uri)) == LONG
        finally:
            server.thaw()


@pytest.mark.full
async def test_a_copy_in_a_server_is_sealed_and_expires(service: Service, tmp_path: Path) -> None:
    with store_server(tmp_path) as server:
        for each in service.replicas:
            await each.apply(store=server.url)
        uri = await service.keep(0)
        await until_true(lambda: is_stored(service.replicas[1], uri))
        (key,) = keys_of(server)
        assert uri.rpartition(".")[2] not in key
        assert "line 1" not in server.ask("GET", key)
        assert 0 < int(server.ask("TTL", key)) <= 3600
        await service.replicas[0].service.finish(0)
        assert text_in(await service.read(1, uri)) == LONG
        server.ask("FLUSHALL")
        assert "no kept result" in (await service.read(1, uri))["error"]["message"]


def keys_of(server: StoreServer) -> list[str]:
    return server.ask("KEYS", "dynamic-mcp:1:e:results:*").split()
