"""The ASGI application: run by a server that announces its life, and mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from dynamic_mcp.asgi import app
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.errors import ConfigError
from tests import windows
from tests.process.http_client import HttpClient, connected, write_config
from tests.program import BOUND_S, odd, text_of

ROOT = Path(__file__).parents[1]


@contextlib.asynccontextmanager
async def served(application: Any) -> AsyncIterator[str]:  # Any: servers and frameworks type ASGI differently
    """Serve an application with uvicorn; yield its URL."""
    config = uvicorn.Config(application, port=0, lifespan="auto", log_config=None, ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    await server.on_tick(0)  # which makes the Date
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(BOUND_S):
            await server.shutdown()


@contextlib.asynccontextmanager
async def asked(application: Any, path: str = "/mcp", host: str = "127.0.0.1") -> AsyncIterator[HttpClient]:
    """Call an application in memory, in a session."""
    transport = httpx2.ASGITransport(app=application)
    async with httpx2.AsyncClient(transport=transport, timeout=BOUND_S) as http:
        client = HttpClient(f"http://{host}{path}", http)
        await client.initialize()
        yield client


def is_running(pid: int) -> bool:
    if sys.platform == "win32":
        return not windows.has_ended(pid, 0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_that_announces_its_life_starts_and_ends_the_servers(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd()}))
    async with served(application) as url, connected(f"{url}/mcp") as client:
        pid = int(text_of(await client.call("odd", "pid")))
        assert is_running(pid)
    assert not is_running(pid)


async def test_mounted_it_starts_with_its_first_request(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd()}))
    async with served(Starlette(routes=[Mount("/tools", application)])) as url:
        async with connected(f"{url}/tools/mcp") as one, connected(f"{url}/tools/mcp") as other:
            pids = {text_of(await each.call("odd", "echo", {"text": "a"})) for each in (one, other)}
        assert pids == {"a"}
    async with application.running():
        pass


async def test_mounted_it_asks_for_tokens_and_tells_of_logins_at_the_well_known_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "token-of-somebody-0123456789")
    bearer = {"kind": "bearer", "tokens": [{"token": "${TOKEN}", "subject": "ann"}]}
    http_settings = {"public_url": "https://www.example.com/tools/mcp", "auth": [bearer]}
    application = app(write_config(tmp_path, {"odd": odd()}, http=http_settings))
    metadata = "/.well-known/oauth-protected-resource"
    site = Starlette(routes=[Mount(metadata, application), Mount("/tools", application)])
    transport = httpx2.ASGITransport(app=site)
    async with application.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        refused = await http.post("/tools/mcp/odd", json={})
        assert refused.status_code == 401
        place = f"{metadata}/tools/mcp/odd"
        assert f'resource_metadata="https://www.example.com{place}"' in refused.headers["www-authenticate"]
        assert (await http.get(place)).json()["resource"] == "https://www.example.com/tools/mcp/odd"
        http.headers["authorization"] = "Bearer token-of-somebody-0123456789"
        client = HttpClient("http://127.0.0.1/tools/mcp", http)
        await client.initialize()
        assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


async def test_mounted_it_lives_in_the_life_of_the_other_application(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd()}))
    outer = Starlette(routes=[Mount("/tools", application)])
    async with application.running(), asked(outer, "/tools/mcp") as client:
        pid = int(text_of(await client.call("odd", "pid")))
    assert not is_running(pid)


# An application that has started a program of its own when the servers end; it prints whether that still runs.
WITH_A_CHILD = """\
import asyncio, subprocess, sys
from dynamic_mcp.asgi import app
from tests.test_asgi import asked

async def main():
    application = app(sys.argv[1])
    async with application.running(), asked(application) as client:
        await client.call("odd", "pid")
        child = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)
    print(child.poll())
    child.kill()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no sessions on Windows")
def test_programs_that_the_application_has_started_itself_go_on_after_the_servers(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"odd": odd()})
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_CHILD, str(config)], cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S
    )
    assert done.stdout == "None\n", done.stderr


async def test_its_life_can_be_the_lifespan_of_the_other_application(tmp_path: Path) -> None:
    tools = app(write_config(tmp_path, {"odd": odd()}))
    outer = Starlette(routes=[Mount("/tools", tools)], lifespan=lambda _: tools.running())
    async with served(outer) as url, connected(f"{url}/tools/mcp") as client:
        pid = int(text_of(await client.call("odd", "pid")))
    assert not is_running(pid)


async def test_many_first_requests_start_it_once(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd(share="all")}))

    async def find_pid() -> str:
        async with asked(application) as client:
            return text_of(await client.call("odd", "pid"))

    async with application.running():
        assert len(set(await asyncio.gather(*(find_pid() for _ in range(5))))) == 1


async def test_it_serves_again_after_its_end(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd()}))
    for _ in range(2):
        async with application.running(), asked(application) as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


async def test_the_settings_of_the_config_count_but_its_address(tmp_path: Path) -> None:
    http = {"path": "/tools", "listen": "0.0.0.0:1", "allowed_hosts": ["mcp.example.com"]}
    application = app(str(write_config(tmp_path, {"odd": odd()}, http=http)))
    async with application.running(), asked(application, "/tools", "mcp.example.com") as client:
        assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


async def test_a_changed_config_counts_for_the_sessions_that_there_are(tmp_path: Path) -> None:
    application = app(write_config(tmp_path, {"odd": odd()}))
    async with application.running(), asked(application) as client:
        write_config(tmp_path, {"odd": odd(), "fresh": odd()}, http={"path": "/tools"})
        async with asyncio.timeout(BOUND_S):
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            while (await client.post(ping)).status_code != 404:
                pass
        client.url = client.url.replace("/mcp", "/tools")
        assert text_of(await client.call("fresh", "echo", {"text": "a"})) == "a"


async def test_a_foreign_host_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    file = write_config(tmp_path, {})
    for allowed, status in (((), 403), (("mcp.example.com",), 200)):
        application = app(file, allowed_hosts=allowed)
        async with application.running():
            transport = httpx2.ASGITransport(app=application)
            async with httpx2.AsyncClient(transport=transport) as http:
                assert (await http.get("http://mcp.example.com/ready")).status_code == status


async def test_without_a_config_it_takes_the_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNAMIC_MCP_CONFIG", str(write_config(tmp_path, {"odd": odd()})))
    application = app()
    async with application.running(), asked(application) as client:
        assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


async def test_a_wrong_config_fails_the_start_and_a_corrected_one_serves(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text("{")
    application = app(file)
    with pytest.raises(ConfigError):
        async with application.running():
            pass
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    async with application.running(), asked(application) as client:
        assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


def test_any_origin_is_refused() -> None:
    with pytest.raises(FlawError):
        app(allowed_origins=["*"])


async def test_a_mounted_application_serves_its_card_and_beside_its_path_the_catalog(tmp_path: Path) -> None:
    http = {"public_url": "https://www.example.com/tools/mcp", "auth": [{"kind": "bearer"}]}
    tools = app(write_config(tmp_path, {"odd": odd()}, http=http))
    catalog = "/.well-known/ai-catalog.json"
    routes = [Mount("/tools", app=tools), Mount("/.well-known", app=tools)]
    outer = Starlette(routes=routes, lifespan=lambda _: tools.running())
    async with served(outer) as url, httpx2.AsyncClient(timeout=BOUND_S) as client:
        found = (await client.get(f"{url}{catalog}")).json()
        (entry,) = found["entries"]
        assert entry["url"] == "https://www.example.com/tools/mcp/server-card"
        card = await client.get(f"{url}/tools/mcp/server-card")
        assert card.headers["content-type"] == "application/mcp-server-card+json"
        assert card.json()["remotes"][0]["url"] == "https://www.example.com/tools/mcp"
        head = await client.head(f"{url}/tools/mcp/server-card")
        assert (head.status_code, head.content) == (200, b"")
        assert (await client.post(f"{url}/tools/mcp", json={})).status_code == 401
