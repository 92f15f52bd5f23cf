"""A program that serves over HTTP: how it begins, what ends it, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests import signals
from tests.journeys.remote_server import free_port
from tests.own_process import OWN
from tests.process.http_client import connected, serving_http, write_config
from tests.program import BOUND_S, odd, started, text_of
from tests.web import web_client

pytestmark = pytest.mark.alone_only("it starts no windows")


async def test_two_clients_have_a_session_each_and_nothing_is_read_from_stdin(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()})
    async with serving_http(file, str(port)) as program:
        await program.says(f"serving {file} over HTTP at http://127.0.0.1:{port}/mcp")
        url = f"http://127.0.0.1:{port}/mcp"
        async with connected(url) as one, connected(url) as other:
            assert text_of(await one.call("odd", "echo", {"text": "a"})) == "a"
            assert text_of(await other.call("odd", "echo", {"text": "b"})) == "b"
        program.ask_to_end()
        assert await program.ends() == 0
    assert program.lines == []


async def test_a_client_gets_the_directory_and_the_environment_of_the_program(tmp_path: Path) -> None:
    port = free_port()
    async with serving_http(write_config(tmp_path, {"odd": odd(cwd=None)}), str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            facts = json.loads(text_of(await client.call("odd", "process")))
    assert facts["cwd"] == str(Path.cwd())


@pytest.mark.parametrize("end", [signals.ask_to_end, signals.interrupt])
async def test_a_call_in_flight_gets_its_time_after_a_signal(tmp_path: Path, end: Callable[[int], None]) -> None:
    port = free_port()
    async with serving_http(write_config(tmp_path, {"odd": odd()}), str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.call("odd", "sleep", {"seconds": 1}))
            await client.has_received("odd", "seconds")

            end(program.process.pid)

            assert text_of(await call) == "slept 1 s"
            assert await program.ends() == 0


async def test_a_call_that_does_not_end_is_answered_with_an_error_in_the_end(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"shutdown_timeout": "200ms"})
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.request("tools/call", hold("odd")))
            await client.has_received("odd", "hold")

            program.ask_to_end()

            answer = await call
            assert answer["result"]["isError"]
            assert text_of(answer["result"]).startswith("dynamic-mcp ended while this request was in flight")
            assert await program.ends() == 0


async def test_a_call_can_still_be_cancelled_after_a_signal(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"shutdown_timeout": "10min"})
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            message = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": hold("odd")}
            call = asyncio.create_task(client.post(message))
            await client.has_received("odd", "hold")
            program.ask_to_end()
            await is_ending(port)

            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
            noted = await client.post(cancelled)

            assert (noted.status_code, (await call).status_code) == (202, 202)
            assert await program.ends() == 0


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"shutdown_timeout": "10min"})
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.request("tools/call", hold("odd")))
            await client.has_received("odd", "hold")
            program.ask_to_end()
            await is_ending(port)

            program.ask_to_end()

            with pytest.raises(httpx2.TransportError):
                await call
            assert await program.ends() == 0


async def test_an_address_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    file = write_config(tmp_path, {})
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, started(*OWN, "serve", str(file), "--http", str(port)) as program:
        assert await program.ends() == 1
    words = (await program.stderr()).splitlines()
    assert words[-2] == f"error: the address `127.0.0.1:{port}` is in use"
    assert words[-1].startswith("hint: choose another with `--http [HOST:]PORT`")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1"])  # noqa: S104
async def test_an_address_that_others_can_reach_is_refused(tmp_path: Path, host: str) -> None:
    file = write_config(tmp_path, {}, http={"listen": f"{host}:8808"})
    async with started(*OWN, "serve", str(file), "--http") as program:
        assert await program.ends() == 2
    words = await program.stderr()
    assert f"`{host}:8808` is reachable from other machines" in words
    assert "`--insecure`" in words


async def test_insecure_says_that_such_an_address_is_wanted(tmp_path: Path) -> None:
    port = free_port()
    async with serving_http(write_config(tmp_path, {"odd": odd()}), f"0.0.0.0:{port}", "--insecure") as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"


@pytest.mark.posix_only("a Unix socket")
async def test_a_unix_socket_is_private_and_gone_in_the_end(tmp_path: Path) -> None:
    path = Path(os.environ["XDG_RUNTIME_DIR"], "http.sock")
    async with serving_http(write_config(tmp_path, {"odd": odd()}), f"unix:{path}") as program:
        await program.says(f"over HTTP at unix:{path}")
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
        async with connected("http://localhost/mcp", uds=str(path)) as client:
            assert text_of(await client.call("odd", "echo", {"text": "a"})) == "a"
    assert not os.access(path, os.F_OK)


async def test_a_host_that_was_not_named_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    port = free_port()
    file = write_config(tmp_path, {})
    foreign = {"host": "mcp.example.com"}
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with web_client(trust_env=False) as http:
            assert (await http.get(f"http://127.0.0.1:{port}/ready", headers=foreign)).status_code == 403
    async with serving_http(file, str(port), "--allowed-host", "mcp.example.com") as program:
        await program.says("over HTTP at")
        async with web_client(trust_env=False) as http:
            assert (await http.get(f"http://127.0.0.1:{port}/ready", headers=foreign)).status_code == 200


def hold(group: str) -> dict[str, object]:
    """Return the parameters of a call that does not end."""
    return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": "hold", "args": {}}}


async def is_ending(port: int) -> None:
    """Wait until the program says that it takes no new sessions."""
    async with asyncio.timeout(BOUND_S), web_client() as asking:
        while (await asking.get(f"http://127.0.0.1:{port}/ready")).status_code != 503:
            pass


async def refuses(port: int) -> None:
    """Wait until nobody listens at this port."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return
            writer.close()
            await asyncio.sleep(0.01)
