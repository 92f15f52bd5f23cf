"""A browser opens the link of a login at any replica, and the one that has sent the link answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.login_links import find_sender, mark_of
from tests.face.auth.office import BEARER, FORWARDED, Office, browser, echo, far, link_in, person
from tests.features.cluster.replicas import KEY
from tests.journeys.remote_server import free_port
from tests.program import BOUND_S
from tests.upstreams.auth_server import AuthServer


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        server.manners.is_personal = True
        yield server


@pytest.fixture
async def pair(server: AuthServer, tmp_path: Path) -> AsyncIterator[list[Office]]:
    """Two replicas, `a`, to which all browsers come, and `b`."""
    ports = {"a": free_port(), "b": free_port()}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(BOUND_S):
        offices = []
        for name, port in ports.items():
            cluster = Cluster(peers=tuple(urls.values()), keys=(KEY,), name=name)
            folder = tmp_path / name
            folder.mkdir()
            place = Office(folder, far(server), port, cluster=cluster, public_url=urls["a"])
            stack.push_async_callback(place.close)
            await place.serve(BEARER, FORWARDED)
            offices.append(place)
        yield offices


async def test_a_browser_that_comes_to_another_replica_logs_in_at_the_one_that_has_sent_the_link(
    pair: list[Office], server: AuthServer
) -> None:
    async with person(pair[1].url, "ann") as ann, person(pair[0].url, "bob") as bob:
        for client in (ann, bob):
            async with browser() as own:
                page = await own.log_in(link_in(await echo(client)))
                assert (page.status_code, "You can close this window" in page.text) == (200, True)
        assert [await echo(client) for client in (ann, bob)] == ["grant 0", "grant 1"]


async def test_whom_a_reverse_proxy_names_is_known_at_the_replica_that_has_sent_the_link(pair: list[Office]) -> None:
    async with person(pair[1].url, "ann", is_forwarded=True) as ann:
        link = link_in(await echo(ann))
        async with browser("bob") as other, browser("ann") as own:
            assert (await other.open(link)).status_code == 403
            assert (await own.open(link)).status_code == 200
        assert await echo(ann) == "grant 0"


async def test_a_link_of_a_replica_that_is_gone_is_no_longer_valid(pair: list[Office]) -> None:
    async with browser() as own:
        page = await own.open(f"{pair[0].url}/upstream-login/{mark_of('c')}{'x' * 43}")
    assert (page.status_code, "no longer valid" in page.text) == (404, True)


@pytest.mark.parametrize(
    ("target", "sender"),
    [
        (b"/upstream-login/d1.a.xyz", "a"),
        (b"/below/upstream-login/d1.a-b.xyz?x=y", "a-b"),
        (b"/upstream-login/callback?code=1&state=d1.a.xyz&iss=x", "a"),
        (b"/upstream-login/callback?state=d2.a.xyz", "a"),
        (b"/upstream-login/xyz", ""),
        (b"/upstream-login/d1.a.xyz/more", ""),
        (b"/upstream-login/callback?code=1", ""),
        (b"/mcp?x=/upstream-login/d1.a.xyz", ""),
        (b"/authorize?state=d1.a.xyz", ""),
    ],
)
def test_a_page_names_the_replica_of_its_link(target: bytes, sender: str) -> None:
    assert find_sender(target) == sender
