"""Which addresses only this machine can reach, and by which names clients may call them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.errors import ListenError, UnsafeAddress
from dynamic_mcp.face.http.listen_address import ListenAddress, refuse_unsafe, resolve_address

BOUND_S = 10.0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "localhost"])
async def test_a_loopback_address_is_safe(host: str) -> None:
    async with asyncio.timeout(BOUND_S):
        place = await resolve_address(TcpAddress(host, 80))

    refuse_unsafe(place)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "169.254.0.1", "fe80::1", "::ffff:10.0.0.1"])  # noqa: S104
async def test_an_address_that_others_can_reach_is_not(host: str) -> None:
    async with asyncio.timeout(BOUND_S):
        place = await resolve_address(TcpAddress(host, 80))

    with pytest.raises(UnsafeAddress) as caught:
        refuse_unsafe(place)
    assert "`--insecure`" in caught.value.hint


def test_a_name_is_judged_by_all_that_it_resolves_to() -> None:
    with pytest.raises(UnsafeAddress):
        refuse_unsafe(ListenAddress(TcpAddress("half.example.com", 80), ("127.0.0.1", "10.0.0.1")))
    refuse_unsafe(ListenAddress(TcpAddress("inner.example.com", 80), ("127.0.0.1", "::1")))


async def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ListenError, match=r"could not resolve `no\.such\.name\.invalid`"):
        async with asyncio.timeout(BOUND_S):
            await resolve_address(TcpAddress("no.such.name.invalid", 80))


def test_clients_may_use_the_name_and_what_it_resolves_to() -> None:
    place = ListenAddress(TcpAddress("MCP.example.com", 80), ("10.0.0.1", "2001:db8::1"))

    assert place.list_hosts() == ("mcp.example.com", "10.0.0.1", "[2001:db8::1]")
    assert not place.is_any


def test_every_loopback_name_leads_to_a_loopback_address() -> None:
    hosts = ListenAddress(TcpAddress("127.0.0.1", 80), ("127.0.0.1",)).list_hosts()

    assert set(hosts) == {"127.0.0.1", "localhost", "[::1]"}


def test_an_address_for_all_has_the_name_of_the_machine_too() -> None:
    place = ListenAddress(TcpAddress("0.0.0.0", 80), ("0.0.0.0",))  # noqa: S104

    assert place.is_any
    assert {"localhost", socket.gethostname().lower()} <= set(place.list_hosts())
