"""The whole program behind nginx and Caddy, with the configs that the documents show."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests import own_process
from tests.documents import ROOT
from tests.http_program import HttpProgram, serving_http
from tests.journeys.diary import DIARY, Person, write_diary
from tests.program import BOUND_S, Json, full, odd
from tests.reverse_proxies import (
    NEEDED,
    Site,
    caddy,
    caddy_bearer,
    caddy_path,
    nginx,
    nginx_bearer,
    nginx_path,
    skip_without,
)
from tests.shown_commands import Machine
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="the examples are for Unix"),
    # what the newest revision of the protocol no longer has is what these servers and this proxy speak
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
]
SERVERS: Json = {"a": full("--name", "a"), "b": full("--name", "b"), "odd": odd()}
ACCEPT = {"accept": "application/json, text/event-stream"}
_MODERN = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
_PING: Json = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
WHOLE_SITES = {"nginx": nginx, "caddy": caddy}
TOKEN_SITES = {"nginx": nginx_bearer, "caddy": caddy_bearer}
PATHS = {"nginx": nginx_path, "caddy": caddy_path}


@pytest.fixture(params=["nginx", "caddy"])
def program(request: pytest.FixtureRequest) -> str:
    """The name of a reverse proxy that is installed."""
    name: str = request.param
    skip_without(*NEEDED[name])
    return name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for a Unix socket in it."""
    path = Path(tempfile.mkdtemp(prefix="proxied-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def site(program: str, folder: Path) -> AsyncIterator[Site]:
    """A reverse proxy with a site for the program alone, which asks for a password."""
    async with (
        serving_http(folder, SERVERS, "--allowed-host", "mcp.example.com") as own,
        WHOLE_SITES[program](folder, own.origin.removeprefix("http://")) as site,
    ):
        yield site


@pytest.fixture
async def path(program: str, folder: Path) -> AsyncIterator[Site]:
    """A reverse proxy with a path for the program, which listens on a Unix socket."""
    options = ("--root-path", "/tools", "--allowed-host", "www.example.com")
    socket = folder / "http.sock"
    async with (
        serving_http(folder, SERVERS, *options, socket=socket),
        PATHS[program](folder, str(socket)) as site,
    ):
        yield site


@pytest.fixture
async def users(program: str, folder: Path) -> AsyncIterator[tuple[HttpProgram, Site]]:
    """A program that believes the reverse proxy about who somebody is, and its site, which asks for a password."""
    auth = {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}
    settings = {"http": {"public_url": "https://mcp.example.com/mcp", "auth": [auth]}}
    async with (
        serving_http(folder, SERVERS, settings=settings) as own,
        WHOLE_SITES[program](folder, own.origin.removeprefix("http://")) as site,
    ):
        yield own, site


def client_of(site: Site) -> httpx2.AsyncClient:
    """Return a client of this site, which knows the password."""
    return httpx2.AsyncClient(headers=dict(site.headers), verify=site.tls or True, timeout=BOUND_S)


async def test_a_client_makes_the_whole_journey_through_a_site(site: Site) -> None:
    assert await _make_journey(site) == DIARY


async def test_a_client_makes_the_whole_journey_through_a_path_to_a_unix_socket(path: Site) -> None:
    assert await _make_journey(path) == DIARY


async def _make_journey(site: Site) -> Json:
    person = Person()
    async with (
        asyncio.timeout(BOUND_S),
        client_of(site) as http,
        person.client(streamable_http_client(site.url, http_client=http)) as client,
    ):
        return await write_diary(client, person)


async def test_an_old_client_finds_where_to_post_below_a_path(path: Site) -> None:
    person = Person()
    transport = sse_client(f"{path.origin}{path.path}/sse", headers=dict(path.headers))
    async with asyncio.timeout(BOUND_S), person.client(transport) as client:
        assert await write_diary(client, person) == DIARY


async def test_only_the_health_check_needs_no_password(site: Site) -> None:
    async with asyncio.timeout(BOUND_S), client_of(site) as http:
        del http.headers["authorization"]
        for place, status in (("/health", 200), ("/ready", 401), ("/mcp", 401), ("/sse", 401), ("/health/x", 401)):
            assert (await http.get(f"{site.origin}{place}")).status_code == status, place


async def test_whoever_gives_the_password_is_the_user_whatever_the_client_says(
    users: tuple[HttpProgram, Site],
) -> None:
    own, site = users
    lies = {"x-forwarded-user": "eve", "x-forwarded-groups": "admin"}
    async with asyncio.timeout(BOUND_S), client_of(site) as http:
        session = await _begin_session(http, site.url, **lies)
        assert (await http.post(site.url, json=_PING, headers={**ACCEPT, **session, **lies})).status_code == 200
        assert (await http.post(site.url, json=_modern_list(), headers={**_MODERN, **lies})).status_code == 200
    # the address of the reverse proxy is believed, so here it can be seen whose session it is
    async with asyncio.timeout(BOUND_S), web_client(trust_env=False) as local:
        for user, status in (("eve", 404), ("alice", 200)):
            headers = {**ACCEPT, **session, "x-forwarded-user": user}
            assert (await local.post(own.url, json=_PING, headers=headers)).status_code == status


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of this machine")
async def test_who_goes_past_the_reverse_proxy_is_nobody(users: tuple[HttpProgram, Site]) -> None:
    own, _ = users
    elsewhere = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
    lies = {"x-forwarded-user": "alice", "x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1"}
    async with asyncio.timeout(BOUND_S), httpx2.AsyncClient(transport=elsewhere, headers=lies) as http:
        for headers, message in ((ACCEPT, _PING), (_MODERN, _modern_list())):
            answer = await http.post(own.url, json=message, headers=headers)
            assert answer.status_code == 401
            assert "/.well-known/oauth-protected-resource/mcp" in answer.headers["www-authenticate"]


async def test_a_token_that_a_command_has_made_passes_through_a_site_and_nothing_else_does(
    program: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    settings = {"http": {"public_url": "https://mcp.example.com/mcp", "auth": [{"kind": "bearer"}]}}
    async with (
        asyncio.timeout(BOUND_S),
        serving_http(folder, SERVERS, settings=settings) as own,
        TOKEN_SITES[program](folder, own.origin.removeprefix("http://")) as site,
        client_of(site) as http,
    ):
        create = ("token", "create", "-c", str(folder / "dynamic-mcp.json"), "--as", "alice")
        made = await asyncio.to_thread(own_process.run, *create)
        token = {"authorization": f"Bearer {made.stdout.decode().strip()}"}
        for headers, status in (({}, 401), ({"x-forwarded-user": "alice"}, 401), (token, 200)):
            answer = await http.post(site.url, json=_modern_list(), headers={**_MODERN, **headers})
            assert answer.status_code == status, answer.text
        for place in ("/health", "/.well-known/oauth-protected-resource/mcp"):
            assert (await http.get(f"{site.origin}{place}")).status_code == 200, place


async def test_the_guide_for_a_team_does_what_it_shows_with_its_clients_behind_a_reverse_proxy(
    program: str, folder: Path
) -> None:
    machine = Machine(folder)
    async with TOKEN_SITES[program](folder, machine.address) as machine.site:
        await asyncio.to_thread(machine.run_page, ROOT / "docs" / "guides" / "team.md")
        assert machine.calls_by_url == 1


async def test_a_stream_that_breaks_on_the_way_goes_on_where_it_broke(site: Site) -> None:
    async with asyncio.timeout(BOUND_S), client_of(site) as http:
        session = await _begin_session(http, site.url)
        waiting = _tool_call(2, "a", "wait", token="t", key="k")
        async with http.stream("POST", site.url, json=waiting, headers={**ACCEPT, **session}) as broken:
            id = await anext(_read_progress_ids(broken))
        for number, name in ((3, "step"), (4, "release")):
            args = {"key": "k", "step": 1} if name == "step" else {"key": "k"}
            await http.post(site.url, json=_tool_call(number, "a", name, **args), headers={**ACCEPT, **session})
        headers = {"accept": "text/event-stream", "last-event-id": id, **session}
        resumed = await http.get(site.url, headers=headers)
        messages = [json.loads(line[6:]) for line in resumed.text.splitlines() if line.startswith("data: {")]
        assert messages[-1]["result"]["content"][0]["text"] == "waited"
        reported = [each["params"]["progress"] for each in messages if each.get("method") == "notifications/progress"]
        assert reported == [1]


async def test_a_large_request_and_its_large_answer_pass_whole(site: Site) -> None:
    async with asyncio.timeout(BOUND_S), client_of(site) as http:
        alone = f"{site.url}/odd"
        session = await _begin_session(http, alone)
        text = "large" * (1 << 20)
        echo = {"name": "echo", "arguments": {"text": text}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": echo}
        answer = await http.post(alone, json=body, headers={**ACCEPT, **session})
        assert answer.json()["result"]["content"][0]["text"] == text


async def _begin_session(http: httpx2.AsyncClient, url: str, **headers: str) -> dict[str, str]:
    """Return the headers of a session that has begun."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    answer = await http.post(url, json=body, headers={**ACCEPT, **headers})
    session = {"mcp-session-id": answer.headers["mcp-session-id"]}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await http.post(url, json=note, headers={**ACCEPT, **session})).status_code == 202
    return session


def _modern_list() -> Json:
    meta = {
        "io.modelcontextprotocol/protocolVersion": _MODERN["mcp-protocol-version"],
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}


def _tool_call(id: int, group: str, name: str, *, token: str = "", **args: Json) -> Json:
    params: Json = {"name": "call_dynamic_tool", "arguments": {"group": group, "name": name, "args": args}}
    if token:
        params["_meta"] = {"progressToken": token}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


async def _read_progress_ids(answer: httpx2.Response) -> AsyncIterator[str]:
    """Yield the id of each event that is a progress notification."""
    id = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            id = line.removeprefix("id: ")
        elif "notifications/progress" in line:
            yield id
