"""Two replicas behind nginx, Caddy and HAProxy, with the configs that the documents show."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.features.cluster.modern_requests import send, uri_in
from tests.features.cluster.replicas import KEY
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.modern_client import call_of
from tests.program import Json, full, text_of
from tests.reverse_proxies import NEEDED, Site, caddy_replicas, haproxy_replicas, nginx_replicas, skip_without
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="the examples are for Unix"),
]
_BALANCERS = {"nginx": nginx_replicas, "caddy": caddy_replicas, "haproxy": haproxy_replicas}


@pytest.fixture(params=list(_BALANCERS))
def balancer(request: pytest.FixtureRequest) -> str:
    """The name of a balancer that is installed."""
    name: str = request.param
    skip_without(*NEEDED[name])
    return name


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="balanced-"))
    yield path
    shutil.rmtree(path)


class Balanced:
    """Replicas `a` and `b`, each with a stack that ends it, and the site in front of them."""

    def __init__(self) -> None:
        self.programs: dict[str, HttpProgram] = {}
        self.stacks: dict[str, contextlib.AsyncExitStack] = {}
        self.site: Site

    def client(self, http: HttpClient) -> McpClient:
        """Return a client of the site."""
        return McpClient(http, headers={name.title(): value for name, value in self.site.headers.items()})

    async def count_forwarded(self) -> int:
        """Return how many requests the replicas have passed on to each other."""
        async with web_client() as http:
            ready = [(await http.get(f"{each.origin}/ready")).json() for each in self.programs.values()]
        return sum(each["cluster"]["forwarded"] for each in ready)


@pytest.fixture
async def balanced(balancer: str, folder: Path) -> AsyncIterator[Balanced]:
    """Two replicas behind a balancer."""
    made = Balanced()
    ports = {"a": free_port(), "b": free_port()}
    peers = [f"http://127.0.0.1:{port}" for port in ports.values()]
    async with contextlib.AsyncExitStack() as stack:
        for name, port in ports.items():
            place = folder / name
            place.mkdir()
            made.stacks[name] = await stack.enter_async_context(contextlib.AsyncExitStack())
            settings: Json = {"cluster": {"name": name, "peers": peers, "keys": [KEY]}}
            options = ("--allowed-host", "mcp.example.com")
            serving = serving_http(place, {"up": full()}, *options, port=port, settings=settings)
            made.programs[name] = await made.stacks[name].enter_async_context(serving)
        addresses = [f"127.0.0.1:{port}" for port in ports.values()]
        made.site = await stack.enter_async_context(_BALANCERS[balancer](folder, *addresses))
        yield made


async def test_sessions_are_pinned_by_the_name_in_their_ids(balanced: Balanced) -> None:
    owners = set()
    async with HttpClient(balanced.site.origin, tls=balanced.site.tls) as http:
        for _ in range(6):
            client = balanced.client(http)
            await client.initialize()
            owners.add(client.id.split(".")[1])
            for text in ("one", "two"):
                assert text_of((await client.call("up", "echo", {"text": text}))["result"]) == text
    assert owners == {"a", "b"}, "new sessions go to both"
    assert await balanced.count_forwarded() == 0


async def test_kept_results_of_clients_without_sessions_are_pinned_by_the_name_in_their_uris(
    balanced: Balanced,
) -> None:
    site = {name.title(): value for name, value in balanced.site.headers.items()}
    long, owners = "x" * 200_000, set()
    async with HttpClient(balanced.site.origin, tls=balanced.site.tls) as http:
        for _ in range(6):
            answer = await send(http, "tools/call", call_of("up", "echo", {"text": long}), site=site)
            uri = uri_in(answer)
            owners.add(uri.split(".")[1])
            read = await send(http, "resources/read", {"uri": uri}, site=site)
            assert read["result"]["contents"][0]["text"] == long
    assert owners == {"a", "b"}
    assert await balanced.count_forwarded() == 0


async def test_a_client_of_a_replica_that_is_gone_begins_anew_at_the_other(balanced: Balanced, balancer: str) -> None:
    async with HttpClient(balanced.site.origin, tls=balanced.site.tls) as http:
        client = balanced.client(http)
        await client.initialize()
        assert text_of((await client.call("up", "echo", {"text": "x"}))["result"]) == "x"
        await balanced.stacks[client.id.split(".")[1]].aclose()
        statuses = [await _status_of_call(client) for _ in range(3)]
        assert statuses.count(404) == (2 if balancer == "caddy" else 3), statuses  # Caddy finds out by a request
        assert statuses[-1] == 404
        anew = balanced.client(http)
        await anew.initialize()
        assert text_of((await anew.call("up", "echo", {"text": "z"}))["result"]) == "z"


async def test_the_paths_of_the_replicas_are_not_for_clients(balanced: Balanced) -> None:
    async with HttpClient(balanced.site.origin, tls=balanced.site.tls) as http:
        headers = {name.title(): value for name, value in balanced.site.headers.items()}
        response = await http.request("GET", "/cluster/replica", headers)
        await response.read()
        assert response.status == 404


async def _status_of_call(client: McpClient) -> int:
    with pytest.raises(Refused) as refused:
        await client.call("up", "echo", {"text": "y"})
    return refused.value.status
