"""The whole program with authentication: who gets in with which token, and where tokens do not go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest

from tests import own_process
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, Refused
from tests.own_process import DEVNULL
from tests.process.http_client import serving_http as serving_words
from tests.process.http_client import write_config
from tests.program import BOUND_S, Json, odd, text_of
from tests.upstreams.odd_http import OddHttp
from tests.web import web_client

pytestmark = pytest.mark.alone_only("HTTP is served the same by a daemon")

TOKEN, OTHER = "front-token-of-ann-0123456789", "front-token-of-bob-0123456789"
BEARER: Json = {
    "kind": "bearer",
    "tokens": [{"token": "${ANN}", "subject": "ann"}, {"token": "${BOB}", "subject": "bob"}],
}
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(autouse=True)
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN", TOKEN)
    monkeypatch.setenv("BOB", OTHER)


@contextlib.asynccontextmanager
async def guarded(folder: Path, servers: Json, *options: str, **http: Json) -> AsyncIterator[HttpProgram]:
    """Run the program with two tokens in its config."""
    settings = {"http": {"auth": [BEARER], **http}}
    async with asyncio.timeout(BOUND_S), serving_http(folder, servers, *options, settings=settings) as program:
        yield program
        assert "Traceback" not in program.log()


def with_token(http: HttpClient, token: str = TOKEN, path: str = "/mcp") -> McpClient:
    """Return a client with a token."""
    return McpClient(http, path, headers={"Authorization": f"Bearer {token}"})


async def status_of(client: McpClient) -> int:
    """Return the status with which a client may begin a session."""
    try:
        await client.initialize()
    except Refused as refused:
        return refused.status
    return 200


async def call_modern(origin: str, headers: Mapping[str, str], name: str, group: str) -> httpx2.Response:
    """Call a tool as a client of 2026-07-28 does."""
    arguments = {"group": group, "name": name, "args": {}}
    params = {"_meta": META, "name": "call_dynamic_tool", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    own = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "call_dynamic_tool",
    }
    async with web_client(timeout=BOUND_S, trust_env=False) as http:
        return await http.post(f"{origin}/mcp", json=body, headers={**own, **headers})


async def test_the_token_of_a_client_reaches_no_upstream_no_log_and_no_error(tmp_path: Path) -> None:
    upstream = OddHttp()
    async with (
        upstream,
        guarded(
            tmp_path,
            # what the program itself inherits is not what a client has shown: the servers may not get that either
            {"odd": odd(env={"KEPT": "1"}), "remote": {"url": upstream.url}},
            "--log-level",
            "debug",
        ) as program,
    ):
        shown = {"authorization": f"Bearer {TOKEN}", "cookie": "session=front-cookie"}
        told: list[str] = []
        async with HttpClient(program.origin) as http:
            client = McpClient(http, f"/mcp?access_token={TOKEN}", headers=shown)
            await client.initialize()
            for group, tool in (("odd", "env"), ("odd", "process"), ("remote", "echo"), ("odd", "record")):
                told.append(json.dumps(await client.call(group, tool)))
            for token in (TOKEN + "x", "dmcp_" + TOKEN, OTHER[:-1], TOKEN + " " + OTHER):
                with pytest.raises(Refused) as refused:
                    await with_token(http, token).initialize()
                told += [refused.value.body.decode(), json.dumps(dict(refused.value.headers))]
        for group, tool in (("odd", "env"), ("odd", "record"), ("remote", "echo")):
            answer = await call_modern(program.origin, shown, tool, group)
            assert answer.status_code == 200
            told.append(answer.text)
        assert any(each.message.get("method") == "tools/call" for each in upstream.requests)
        told += [f"{each.path} {each.headers} {each.body!r}" for each in upstream.requests]
        told.append(program.log())
    assert "KEPT" in "".join(told), "the environment of the server was among it"
    assert not [each for each in told if TOKEN in each or "front-cookie" in each or OTHER[:-1] in each]


async def test_each_token_is_somebody_and_the_session_of_one_is_none_of_the_other(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"odd": odd()}) as program, HttpClient(program.origin) as http:
        ann, bob = with_token(http), with_token(http, OTHER)
        await ann.initialize()
        await bob.initialize()
        bob.id = ann.id
        with pytest.raises(Refused) as refused:
            await bob.call("odd", "echo", {"text": "a"})
        assert refused.value.status == 404
        assert text_of((await ann.call("odd", "echo", {"text": "a"}))["result"]) == "a"
        assert await status_of(McpClient(http)) == 401


async def test_a_token_of_the_command_counts_at_once_until_it_is_revoked(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"odd": odd()}) as program, HttpClient(program.origin) as http:
        created = json.loads(await _run("token", "create", "--as", "ci", "--json", config=tmp_path))
        client = with_token(http, created["token"])
        await client.initialize()
        stream = await client.listen()
        assert text_of((await client.call("odd", "echo", {"text": "a"}))["result"]) == "a"

        await _run("token", "revoke", created["id"], config=tmp_path)

        assert await status_of(with_token(http, created["token"])) == 401
        while await stream.next() is not None:  # it ends within a second
            pass


async def test_an_address_that_others_reach_is_served_where_clients_authenticate(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": f"0.0.0.0:{port}", "auth": [BEARER]})
    async with asyncio.timeout(BOUND_S), serving_words(file) as program:
        await program.says("over HTTP at")
        async with HttpClient(f"http://127.0.0.1:{port}") as http:
            assert await status_of(McpClient(http)) == 401
            assert await status_of(with_token(http)) == 200


async def test_a_reload_asks_everybody_who_they_are_before_it_moves(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": first})
    async with asyncio.timeout(BOUND_S), serving_words(file) as program:
        await program.says(f"127.0.0.1:{first}")
        async with HttpClient(f"http://127.0.0.1:{first}") as http, HttpClient(f"http://127.0.0.1:{second}") as moved:
            anybody = McpClient(http)
            await anybody.initialize()
            stream = await anybody.listen()
            write_config(tmp_path, {"odd": odd()}, http={"listen": f"0.0.0.0:{second}", "auth": [BEARER]})
            await program.says(f"over HTTP at http://0.0.0.0:{second}")
            while await stream.next() is not None:
                pass
            assert await status_of(McpClient(moved)) == 401
            assert await status_of(with_token(moved)) == 200


async def test_doctor_finds_what_tells_clients_where_to_log_in(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    file = write_config(tmp_path, {}, http={"listen": port, "public_url": url, "auth": [BEARER]})
    async with asyncio.timeout(BOUND_S), serving_words(file) as program:
        await program.says(url)
        found = json.loads(await _run("doctor", "--json", config=tmp_path))["findings"]
    (about_url,) = [each for each in found if each["where"] == "settings.http.public_url"]
    assert about_url["level"] == "ok"


async def test_an_address_that_cannot_be_had_leaves_authentication_as_it_was(tmp_path: Path) -> None:
    port = free_port()
    forwarded = [{"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": port, "auth": [BEARER]})
    async with asyncio.timeout(BOUND_S), contextlib.AsyncExitStack() as stack, serving_words(file) as program:
        await program.says(f"127.0.0.1:{port}")
        async with HttpClient(f"http://127.0.0.1:{port}") as http:
            assert await status_of(with_token(http)) == 200  # the config is watched from now on
        for more in ({"auth": forwarded}, {}):
            taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            await stack.enter_async_context(taken)
            number = taken.sockets[0].getsockname()[1]
            write_config(tmp_path, {"odd": odd()}, http={"listen": number, **more})
            await program.says(f"HTTP is not served as configured: the address `127.0.0.1:{number}` is in use")
            async with HttpClient(f"http://127.0.0.1:{port}") as http:
                assert await status_of(McpClient(http, headers={"X-Forwarded-User": "eve"})) == 401
                assert await status_of(with_token(http)) == 200


@pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux tells it")
async def test_a_stranger_with_a_huge_body_costs_nothing(tmp_path: Path) -> None:
    options = ("--log-level", "debug")
    async with guarded(tmp_path, {"odd": odd()}, *options) as program, HttpClient(program.origin) as http:
        known = with_token(http)
        await known.initialize()
        await program.has_loaded()
        before = program.peak_mib()
        for _ in range(3):
            answer = await McpClient(http).post(b" " * 50_000_000)
            assert answer.status == 401
            answer.abort()
        assert program.peak_mib() - before < 20
        assert text_of((await known.call("odd", "echo", {"text": "a"}))["result"]) == "a"


async def _run(*words: str, config: Path) -> str:
    """Run a command about a config, and return what it prints."""
    process = await own_process.start(*words, "-c", str(config / "dynamic-mcp.json"), stdin=DEVNULL)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
