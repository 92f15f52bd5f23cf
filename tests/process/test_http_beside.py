"""HTTP beside stdio, and by a daemon: who has which servers, and what ends when."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from dynamic_mcp.observe.proxies import ProxyRegistry
from dynamic_mcp.system import paths
from tests.hosting import daemons, find_daemon, wait_for_daemons
from tests.journeys.remote_server import free_port
from tests.process.http_client import connected, serving_http, write_config
from tests.process.test_http import hold, refuses
from tests.process.windows import logs, run_command
from tests.program import BOUND_S, odd, running, text_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="daemons and signals as POSIX has them")


@pytest.mark.alone_only("test_the_daemon_of_a_config_serves_its_windows_and_http is about the daemon")
async def test_one_process_serves_stdio_and_http_until_its_client_is_gone(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd(share="all")}, http={"listen": port})
    async with running(str(file)) as program:
        await program.initialize()
        await program.says(f"over HTTP at http://127.0.0.1:{port}/mcp")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_of(await client.call("odd", "pid")) == text_of(await program.call("odd", "pid"))
            program.end_input()
            assert await program.ends() == 0
    await refuses(port)


@pytest.mark.alone_only("windows of a daemon have one address")
async def test_stdio_goes_on_where_the_address_is_in_use(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": port})
    async with running(str(file)) as first:
        await first.says("over HTTP at")
        async with running(str(file)) as second:
            await second.initialize()
            await second.says(f"HTTP is not served as configured: the address `127.0.0.1:{port}` is in use")
            assert text_of(await second.call("odd", "echo", {"text": "a"})) == "a"
            assert second.heard("notifications/message") == []


@pytest.mark.daemon_only
async def test_the_daemon_of_a_config_serves_its_windows_and_http(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd(share="all")}, http={"listen": port}, daemon={"linger": "1h"})
    async with running(str(file)) as window:
        await window.initialize()
        await window.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_of(await client.call("odd", "pid")) == text_of(await window.call("odd", "pid"))
            await shows(f"http://127.0.0.1:{port}/mcp", "daemon", {"socket", "http"})
    assert await run_command("daemon", "stop", "-c", str(file)) == 0
    await refuses(port)


@pytest.mark.daemon_only
async def test_a_daemon_that_serves_http_does_not_end_with_its_last_window(tmp_path: Path) -> None:
    port = free_port()
    # not the `linger` with which tests wait for the end of the daemon
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": port}, daemon={"linger": "0.001s"})
    async with running(str(file)) as window:
        await window.initialize()
        await window.says("over HTTP at")
        daemon = window.host

    async with connected(f"http://127.0.0.1:{port}/mcp") as client:
        assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"
    assert daemons() == [daemon]
    write_config(tmp_path, {"odd": odd()}, daemon={"linger": "0.001s"})
    await wait_for_daemons()


@pytest.mark.daemon_only
async def test_a_daemon_whose_address_is_in_use_ends_like_one_without_http(tmp_path: Path) -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    taken = listener.sockets[0].getsockname()[1]
    async with listener:
        async with running(str(write_config(tmp_path, {"odd": odd()}, http={"listen": taken}))) as window:
            await window.initialize()
            await window.says(f"the address `127.0.0.1:{taken}` is in use")
        await wait_for_daemons()


@pytest.mark.daemon_only
async def test_a_client_over_http_has_its_servers_though_windows_have_workspaces(tmp_path: Path) -> None:
    """A reload that adds `settings.http` to a daemon gives it servers for clients without a workspace."""
    port = free_port()
    daemon = {"linger": "1h"}
    write = {"odd": odd()}
    file = write_config(tmp_path, write, daemon=daemon)
    async with running(str(file)) as window:
        await window.initialize()
        write_config(tmp_path, write, daemon=daemon, http={"listen": port})
        await window.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"
    assert await run_command("daemon", "stop", "-c", str(file)) == 0


@pytest.mark.daemon_only
async def test_serve_http_is_the_daemon_of_its_config(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd(share="all")}, daemon={"linger": "1h"})
    async with serving_http(file, str(port)) as server:
        await server.says("over HTTP at")
        async with running(str(file)) as window, connected(f"http://127.0.0.1:{port}/mcp") as client:
            await window.initialize()
            assert text_of(await client.call("odd", "pid")) == text_of(await window.call("odd", "pid"))
        assert daemons() == [], "no other daemon was started"
        assert server.process.returncode is None, "it stays without windows"
        server.ask_to_end()
        assert await server.ends() == 0


@pytest.mark.daemon_only
async def test_serve_http_beside_a_daemon_says_how_to_share_its_servers(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd(share="all")}, daemon={"linger": "1h"})
    async with running(str(file)) as window:
        await window.initialize()
        before = find_daemon()
        async with serving_http(file, str(port)) as server:
            await server.says("`dynamic-mcp daemon stop`")
            await server.says("over HTTP at")
            async with connected(f"http://127.0.0.1:{port}/mcp") as client:
                assert text_of(await client.call("odd", "pid")) != text_of(await window.call("odd", "pid"))
        assert daemons() == [before]
    assert await run_command("daemon", "stop", "-c", str(file)) == 0


@pytest.mark.daemon_only
async def test_a_daemon_gives_calls_over_http_the_configured_time_after_a_signal(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"listen": port}, daemon={"linger": "1h"})
    async with running(str(file)) as window:
        await window.initialize()
        await window.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.call("odd", "sleep", {"seconds": 2}))
            await client.has_received("odd", "seconds")
            os.kill(find_daemon(), signal.SIGTERM)
            assert text_of(await call) == "slept 2 s"
    await wait_for_daemons()


@pytest.mark.full
@pytest.mark.daemon_only
async def test_a_daemon_that_is_stopped_does_not_wait_for_hung_calls_over_http(tmp_path: Path) -> None:
    port = free_port()
    http = {"listen": port, "shutdown_timeout": "10min"}
    file = write_config(tmp_path, {"odd": odd()}, http=http, daemon={"linger": "1h"})
    async with running(str(file)) as window:
        await window.initialize()
        await window.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.request("tools/call", hold("odd")))
            await client.has_received("odd", "hold")
            assert await run_command("daemon", "stop", "-c", str(file)) == 0
            answer = await call
            assert "error" in answer or answer["result"]["isError"]
    await logs("the daemon was asked to stop")


async def shows(url: str, kind: str, transports: set[str]) -> None:
    """Wait until the one running proxy is shown like this."""
    registry = ProxyRegistry(paths.state_dir() / "running")
    async with asyncio.timeout(BOUND_S):
        while True:
            (proxy,) = registry.list_proxies()
            found = {session.transport for session in proxy.status.sessions}
            if (proxy.status.url, proxy.status.kind, found) == (url, kind, transports):
                return
            await asyncio.sleep(0.1)
