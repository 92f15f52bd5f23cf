"""Connections are bounded before anybody says who they are: in all, and from one address, also behind a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.addresses import UnixAddress
from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.admission import ConnectionLimiter
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.server import HttpServer
from tests.face.http.ways_in import Client, FakeHandler, OurServer, our_server, post
from tests.program import BOUND_S

HOLD = post("/hold", b"x")


@pytest.fixture
async def server() -> AsyncIterator[OurServer]:
    async with our_server() as opened:
        yield opened


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test can reach."""
    monkeypatch.setattr(limits, "CONNECTIONS_OF_ADDRESS", 3)


async def _is_served(client: Client) -> bool:
    reply = await client.ask(post("/echo", b"x"))
    assert reply.status == 200 or int(reply.headers["retry-after"]) > 0
    return reply.status == 200


def _from(address: str) -> bytes:
    return HOLD.replace(b"Host: test", b"Host: test\r\nX-Forwarded-For: %b" % address.encode())


async def test_an_address_has_a_bounded_number_of_connections(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        clients = [await server.connect() for _ in range(4)]
        assert [await _is_served(each) for each in clients[:3]] == [True, True, True]
        refused = await clients[3].reply()
        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert await clients[3].rest() == b""

        await clients[0].close()
        while "2 connections" not in repr(server.server):  # noqa: ASYNC110 - nothing tells when it is gone
            await asyncio.sleep(0)
        assert await _is_served(await server.connect())


async def test_a_server_has_a_bounded_number_of_connections(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        server.server.set_bounds(connections=2, forwarders=())
        clients = [await server.connect() for _ in range(3)]
        assert await _is_served(clients[0])
        assert (await clients[2].reply()).status == 503


async def test_behind_a_trusted_proxy_the_addresses_that_it_names_are_bounded(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        server.server.set_bounds(connections=100, forwarders=["127.0.0.1"])
        clients = [await server.connect() for _ in range(6)]
        for client in clients[:3]:
            client.send(_from("192.0.2.1"))
        held = [await server.handler.next_call() for _ in range(3)]

        refused = await clients[3].ask(_from("192.0.2.1"))
        clients[4].send(_from("192.0.2.2"))
        await server.handler.next_call()
        held[0].exchange.respond(Response(200))
        await clients[0].reply()
        clients[5].send(_from("192.0.2.1"))
        await server.handler.next_call()

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)


async def test_what_a_proxy_says_that_is_not_trusted_counts_for_nothing(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        clients = [await server.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            client.send(_from(f"192.0.2.{number}"))
            await server.handler.next_call()
        assert (await (await server.connect()).reply()).status == 503


@pytest.mark.posix_only("a Unix socket")
async def test_peers_of_a_unix_socket_are_bounded_in_all_only(tmp_path: Path) -> None:
    server, path = HttpServer(FakeHandler()), str(tmp_path / "s")
    await server.open(UnixAddress(path))
    async with asyncio.timeout(BOUND_S):
        clients = [Client(*await asyncio.open_unix_connection(path)) for _ in range(5)]
        assert all([await _is_served(each) for each in clients])
        server.set_bounds(connections=5, forwarders=())
        clients.append(Client(*await asyncio.open_unix_connection(path)))
        assert (await clients[-1].reply()).status == 503
        for each in clients:
            await each.close()
    await server.abort()


def test_nothing_is_remembered_of_those_who_have_gone() -> None:
    admission = ConnectionLimiter(lambda: 0.0)
    sites = [admission.admit(f"2001:db8:{number:x}::1") for number in range(100)]
    for site in sites:
        assert site
        admission.leave(site)
    site = admission.begin_request(RequestHead("GET", b"/", {}, peer="192.0.2.1"))
    assert site
    admission.end_request(site)

    assert repr(admission) == "<ConnectionLimiter 0 connections, 0 addresses>"


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    admission = ConnectionLimiter(lambda: 0.0)
    assert [admission.admit(f"2001:db8::{number}") is not None for number in range(4)] == [True, True, True, False]
