"""From which address a request comes, and what proxies say of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import GONE, RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.proxy.proxy import Proxy
from tests.face.http.modern_parties import ModernHttpClient, modern
from tests.face.http.parties import HttpClient
from tests.fakes import FakeUpstream, Opener, config_of, group_config
from tests.recorder import Recorder, observe


def head_from(peer: str, forwarded_for: str = "", port: int = 0) -> RequestHead:
    headers = {b"x-forwarded-for": forwarded_for.encode("latin-1")} if forwarded_for else {}
    return RequestHead(method="POST", target=b"/mcp", headers=headers, peer=peer, port=port)


@contextlib.asynccontextmanager
async def observed(**options: Any) -> AsyncIterator[tuple[HttpFace, Recorder]]:  # Any: of HttpOptions
    opener = Opener(up=[FakeUpstream()])
    proxy = Proxy(config_of(group_config("up")), opener=opener)
    face = HttpFace(proxy, HttpOptions(**options))
    try:
        yield face, observe(proxy)
    finally:
        face.close()
        await proxy.close()


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),  # whoever is not trusted says nothing of others
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.9", "203.0.113.9"),  # what the client itself has sent comes first
        ("10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9:51000", "203.0.113.9"),
        ("10.0.0.1", "[2001:db8::1]:51000", "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "\x1b[31m\n, 10.0.0.2", "10.0.0.2"),
        ("", "203.0.113.9", "203.0.113.9"),
        (GONE, "203.0.113.9", ""),
    ],
)
def test_only_what_trusted_proxies_have_added_is_believed(peer: str, forwarded_for: str, address: str) -> None:
    assert Forwarding(("10.0.0.0/8", "unix")).address_of(head_from(peer, forwarded_for)) == address


def test_without_proxies_the_peer_is_the_client() -> None:
    forwarding = Forwarding()

    assert forwarding.address_of(head_from("10.0.0.1", "203.0.113.9")) == "10.0.0.1"
    assert forwarding.address_of(head_from("", "203.0.113.9")) == ""


def test_the_port_of_a_proxy_is_not_the_clients() -> None:
    forwarding = Forwarding(("10.0.0.1",))

    assert forwarding.port_of(head_from("10.0.0.1", "203.0.113.9", port=50000)) == 0
    assert forwarding.port_of(head_from("192.0.2.1", port=50000)) == 50000


async def test_each_request_of_a_session_has_its_own_address() -> None:
    async with observed(forwarders=("10.0.0.1",)) as (face, seen):
        client = HttpClient(face)
        client.peer = "192.0.2.1"
        await client.initialize()
        await client.request("tools/list").ends()
        client.peer = "192.0.2.2"
        await client.request("tools/list").ends()
        client.peer = "10.0.0.1"
        await client.request("tools/list", x_forwarded_for="203.0.113.9").ends()

        assert [each.address for each in seen.seen] == ["192.0.2.1", "192.0.2.2", "203.0.113.9"]
        assert len({each.client for each in seen.seen}) == 1


async def test_a_modern_client_that_moves_is_the_same_client() -> None:
    async with observed() as (face, seen):
        client = ModernHttpClient(face)
        for client.peer in ("192.0.2.1", "192.0.2.2"):
            await client.post(modern("tools/list")).ends()

        assert [each.address for each in seen.seen] == ["192.0.2.1", "192.0.2.2"]
        assert len({each.client for each in seen.seen}) == 1


async def test_the_id_of_a_session_in_records_does_not_let_anybody_in() -> None:
    async with observed() as (face, seen):
        client = HttpClient(face)
        await client.initialize()
        await client.request("tools/list").ends()

        assert seen.seen[0].client not in client.session
        client.session = seen.seen[0].client
        assert (await client.request("tools/list").ends()).status == 404
