"""Real servers over HTTP: the official one from npm over both transports, and the Python SDK's on uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from tests.journeys.remote_server import free_port, listening
from tests.journeys.test_real_servers import command, tools_of
from tests.program import BOUND_S, UPSTREAMS, Json, Program, serving, text_of

pytestmark = pytest.mark.full
SDK = (sys.executable, str(UPSTREAMS / "sdk_http.py"))


@pytest.mark.parametrize("type_", ["http", None])
async def test_everything_serves_over_streamable_http(tmp_path: Path, type_: str | None) -> None:
    port = free_port()
    everything = (command("mcp-server-everything"), "streamableHttp")
    async with listening(*everything, port=port, env={"PORT": str(port)}):
        await _visit(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp", "type": type_})


@pytest.mark.parametrize("type_", ["sse", None])
async def test_everything_serves_over_the_older_transport(tmp_path: Path, type_: str | None) -> None:
    port = free_port()
    async with listening(command("mcp-server-everything"), "sse", port=port, env={"PORT": str(port)}):
        await _visit(tmp_path, {"url": f"http://127.0.0.1:{port}/sse", "type": type_})


async def _visit(folder: Path, config: Json) -> None:
    async with serving(folder, {"up": config}, capabilities={"sampling": {}, "elicitation": {}}) as program:
        names = {tool["name"] for tool in await tools_of(program, "up")}
        assert {"echo", "get-sum", "get-tiny-image"} <= names
        messages = [f"nonce {n}" for n in range(20)]
        results = await asyncio.gather(*(program.call("up", "echo", {"message": message}) for message in messages))
        assert [text_of(result) for result in results] == [f"Echo: {message}" for message in messages]
        image = await program.call("up", "get-tiny-image")
        assert {part["type"] for part in image["content"]} == {"text", "image"}
        arguments = {"duration": 0.1, "steps": 2}
        await program.call("up", "trigger-long-running-operation", arguments, _meta={"progressToken": "t"})
        progress = program.heard("notifications/progress")
        assert [note["params"]["progressToken"] for note in progress] == ["t", "t"]
        program.answers["sampling/createMessage"] = (
            b'{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}'
        )
        sampled = await program.call("up", "trigger-sampling-request", {"prompt": "p", "maxTokens": 7})
        assert "sampled" in text_of(sampled)


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_the_python_sdk_serves_and_asks(tmp_path: Path, kind: str, path: str) -> None:
    port = free_port()
    async with listening(*SDK, str(port), kind, port=port):
        servers = {"up": {"url": f"http://127.0.0.1:{port}/{path}"}}
        async with serving(tmp_path, servers, capabilities={"elicitation": {}}) as program:
            assert text_of(await program.call("up", "echo", {"text": "x"})) == "x"
            program.answers["elicitation/create"] = b'{"action":"accept","content":{"name":"Ada"}}'
            assert text_of(await program.call("up", "greet", _meta={"progressToken": 7})) == "hello Ada"
            assert program.heard("notifications/progress")[0]["params"]["progressToken"] == 7


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_a_server_that_was_restarted_in_mid_session_goes_on(tmp_path: Path, kind: str, path: str) -> None:
    port = free_port()
    servers = {"up": {"url": f"http://127.0.0.1:{port}/{path}"}}
    async with contextlib.AsyncExitStack() as first, serving(tmp_path, servers) as program:
        await first.enter_async_context(listening(*SDK, str(port), kind, port=port))
        before = await _pid(program)
        await first.aclose()
        async with listening(*SDK, str(port), kind, port=port):
            assert await _pid(program) != before


async def _pid(program: Program) -> str:
    """Return the number of the server's process, once the server is there."""
    async with asyncio.timeout(BOUND_S):
        while (result := await program.call("up", "pid")).get("isError"):
            pass
    return text_of(result)
