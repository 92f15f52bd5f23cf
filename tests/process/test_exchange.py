"""The whole program in front of a server that takes only tokens exchanged for it: what is served, and written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.system import paths
from dynamic_mcp.ui.argument_form import key_of
from tests import own_process
from tests.face.auth.exchange_office import show, whoami, whoami_modern
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, McpStream
from tests.own_process import DEVNULL, PIPE
from tests.program import BOUND_S, Json, running, text_of
from tests.ui.site import Document
from tests.upstreams.exchange_issuer import CLIENT, SECRET, ExchangeIssuer
from tests.upstreams.exchanged_mcp import ExchangedMcp
from tests.web import web_client

pytestmark = pytest.mark.alone_only("HTTP is served the same by a daemon")


class Site:
    """An issuer, a server behind the program, and the config of both."""

    def __init__(self, port: int, issuer: ExchangeIssuer, server: ExchangedMcp) -> None:
        self.port = port
        self.issuer = issuer
        self.server = server

    @property
    def servers(self) -> Json:
        oauth = {"grant": "token_exchange", "issuer": self.issuer.issuer, "client_id": CLIENT, "scopes": ["read"]}
        return {"far": {"url": self.server.url, "oauth": {**oauth, "client_secret": "${SECRET}"}}}

    @property
    def http(self) -> Json:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return {"public_url": url, "auth": [{"kind": "jwt", "issuer": self.issuer.issuer}]}


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv("SECRET", SECRET)
    port = free_port()
    async with (
        asyncio.timeout(BOUND_S),
        ExchangeIssuer(f"http://127.0.0.1:{port}/mcp") as issuer,
        ExchangedMcp(issuer.issuer, issuer.key_set()) as server,
    ):
        issuer.targets.add(server.url)
        yield Site(port, issuer, server)
        assert server.breaches == []


async def test_persons_are_served_as_themselves_and_no_token_is_written(site: Site, tmp_path: Path) -> None:
    settings = {"http": site.http, "audit": {"arguments": "full"}, "log": {"level": "debug"}}
    tokens = [site.issuer.token_of(name) for name in ("ann", "bob", "ann")]
    async with serving_http(tmp_path, site.servers, port=site.port, settings=settings) as program:
        async with HttpClient(program.origin) as at_ann, HttpClient(program.origin) as at_bob:
            ann, bob = (
                McpClient(http, headers={"Authorization": f"Bearer {token}"})
                for http, token in ((at_ann, tokens[0]), (at_bob, tokens[1]))
            )
            for client in (ann, bob):
                await client.initialize()
            said = [await whoami(ann), await whoami(bob), await whoami_modern(program.origin, tokens[2])]
            show(ann, tokens[1])
            assert (await ann.post(ann.message("tools/list"))).status == 404, "a session is that of its person"
        log = program.log()

    assert said == [f"{name} by {CLIENT}" for name in ("ann", "bob", "ann")]
    assert not {*tokens} & {*site.server.tokens}
    folders = (tmp_path, paths.state_dir(), paths.cache_dir(), paths.log_dir())
    written = "".join(_read(file) for folder in folders for file in sorted(folder.rglob("*")))
    assert "whoami" in written, "the audit log and the catalogs are among it"
    for token in (*tokens, *site.issuer.issued):
        for part in token.split(".")[1:]:
            assert part not in log + written


def _read(file: Path) -> str:
    return file.read_bytes().decode("latin-1") if file.is_file() else ""


async def test_the_calls_of_a_script_are_those_of_its_person(site: Site, tmp_path: Path) -> None:
    settings = {"http": site.http, "scripts": True}
    code = 'await call("far", "whoami", {"nonce": input})'
    async with (
        serving_http(tmp_path, site.servers, port=site.port, settings=settings) as program,
        HttpClient(program.origin) as http,
    ):
        client = McpClient(http)
        for name in ("ann", "bob"):
            show(client, site.issuer.token_of(name))
            client.id = ""
            await client.initialize()
            arguments = {"code": code, "input": f"script of {name}"}
            answer = await client.request("tools/call", {"name": "run_dynamic_script", "arguments": arguments})
            assert f"{name} by {CLIENT}" in answer["result"]["content"][0]["text"], answer

    assert site.server.calls == {f"script of {name}": name for name in ("ann", "bob")}


async def test_the_page_that_was_opened_with_a_token_calls_as_its_person(site: Site, tmp_path: Path) -> None:
    async with serving_http(tmp_path, site.servers, port=site.port, settings={"http": site.http}) as program:
        said = {}
        for name in ("ann", "bob"):
            options = {"trust_env": False, "follow_redirects": True, "headers": {"Origin": program.origin}}
            async with web_client(**options) as web:
                token = site.issuer.token_of(name)
                home = await web.post(f"{program.origin}/ui/login", data={"token": token})
                assert home.status_code == 200, home.text
                tools = Document((await web.get(f"{program.origin}/ui/tools?group=far")).text)
                read = await web.post(f"{program.origin}/ui/tools/far", data={"csrf": tools.form_token})
                assert "whoami" in read.text
                page = Document((await web.get(f"{program.origin}/ui/tools/far/whoami")).text)
                fields = {"csrf": page.form_token, key_of("nonce"): name}
                said[name] = (await web.post(f"{program.origin}/ui/tools/far/whoami", data=fields)).text

    assert site.server.calls == {"ann": "ann", "bob": "bob"}
    assert all(f"{name} by {CLIENT}" in text for name, text in said.items())


async def test_a_client_of_the_oldest_transport_is_served_as_its_person(site: Site, tmp_path: Path) -> None:
    shown = {"Authorization": f"Bearer {site.issuer.token_of('ann')}", "Content-Type": "application/json"}
    async with (
        serving_http(tmp_path, site.servers, port=site.port, settings={"http": site.http}) as program,
        HttpClient(program.origin) as http,
    ):
        stream = McpStream(await http.request("GET", "/sse", {**shown, "Accept": "text/event-stream"}))
        first = await stream.next_event()
        assert first is not None
        path = first.data.decode().removeprefix(program.origin)
        client = McpClient(http, path, version="2024-11-05")
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        arguments = {"group": "far", "name": "whoami", "args": {"nonce": "old"}}
        for method, params in (
            ("initialize", hello),
            ("tools/call", {"name": "call_dynamic_tool", "arguments": arguments}),
        ):
            message = client.message(method, params)
            response = await http.request("POST", path, shown, json.dumps(message).encode())
            assert response.status == 202
            answer = await stream.until(message["id"])
        stream.cut()

    assert answer["result"]["content"][0]["text"] == f"ann by {CLIENT}"


async def test_over_stdio_a_call_says_what_is_needed_and_others_work(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": site.servers}))
    async with running(str(file)) as program:
        await program.initialize()
        said = text_of(await program.call("far", "whoami", {}))

    assert f"needs a token of `{site.issuer.issuer}`" in said
    assert "local user" in said
    assert site.server.tokens == []


async def test_doctor_asks_the_issuer_where_tokens_are_exchanged(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": site.servers, "settings": {"http": site.http}}))

    async def find(what: str) -> str:
        process = await own_process.start("doctor", "-c", str(file), "--json", stdout=PIPE, stderr=DEVNULL)
        out, _ = await process.communicate()
        findings = [each for each in json.loads(out)["findings"] if each["where"] == "mcpServers.far.oauth.issuer"]
        (found,) = findings
        assert what in found["what"], found
        return str(found["level"])

    assert await find(f"exchanged at `{site.issuer.issuer}/token`") == "ok"
    site.issuer.manners.metadata["grant_types_supported"] = ["authorization_code"]
    assert await find("does not say") == "note"
    site.issuer.manners.metadata["issuer"] = "https://other.example.com"
    assert await find("another issuer") == "warning"
    assert site.issuer.exchanges == []


@pytest.mark.full
async def test_each_of_several_processes_exchanges_for_itself(site: Site, tmp_path: Path) -> None:
    settings, options = {"http": site.http}, ("--workers", "2")

    async def use(program: HttpProgram, name: str) -> None:
        async with HttpClient(program.origin) as http:
            client = McpClient(http, headers={"Authorization": f"Bearer {site.issuer.token_of(name)}"})
            await client.initialize()
            for number in range(8):  # each over a connection of its own, which any of the processes may have
                async with HttpClient(program.origin) as another:
                    client.http = another
                    assert await whoami(client, f"{name} {number}") == f"{name} by {CLIENT}"
            client.http = http
            await client.delete()

    async with serving_http(tmp_path, site.servers, *options, port=site.port, settings=settings) as program:
        await asyncio.gather(*(use(program, name) for name in ("ann", "bob", "cho", "dee")))
    assert all(nonce.split()[0] == who for nonce, who in site.server.calls.items())
    assert len(site.server.calls) == 32
