"""What `doctor` says of the public URL: whether clients find there where to log in, and what is in their way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.cli.commands import CliRunner
from tests.journeys.remote_server import free_port
from tests.upstreams.odd_http import head_of

BOUND_S = 30.0
PATH = "/.well-known/oauth-protected-resource/mcp"


@contextlib.asynccontextmanager
async def answering(status: int, body: object, **headers: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Run a reverse proxy that answers everything like this; the paths that were asked are kept."""
    asked: list[str] = []
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1])
        writer.write(head_of(status, content_length=str(len(data)), connection="close", **headers) + data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def finding(cli: CliRunner, public_url: str) -> dict[str, str]:
    """Return what `doctor` has found out about the public URL."""
    auth = [{"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    cli.configure({}, settings={"http": {"public_url": public_url, "auth": auth}})
    done = await asyncio.to_thread(cli.run, "doctor", "--json")
    (found,) = [each for each in done.json["findings"] if each["where"] == "settings.http.public_url"]
    assert done.code == 0
    return dict(found)


async def test_the_metadata_is_looked_for_as_clients_do(cli: CliRunner) -> None:
    async with asyncio.timeout(BOUND_S), answering(404, b"") as (origin, asked):
        await finding(cli, f"{origin}/mcp")
        await finding(cli, f"{origin}/mcp/")
    assert asked == [PATH, PATH]


async def test_a_public_url_that_cannot_be_reached_is_a_warning(cli: CliRunner) -> None:
    async with asyncio.timeout(BOUND_S):
        assert "refuses connections" in (await finding(cli, f"http://127.0.0.1:{free_port()}/mcp"))["what"]


@pytest.mark.parametrize(
    ("status", "body", "what", "hint"),
    [
        pytest.param(200, {"resource": "https://other/mcp"}, "about `https://other/mcp`", "this config", id="other"),
        pytest.param(404, b"<h1>404</h1>", "not by dynamic-mcp", "with its path as it is", id="not passed"),
        pytest.param(200, b"<h1>hello</h1>", "not by dynamic-mcp", "with its path as it is", id="a page"),
        pytest.param(200, [1], "not by dynamic-mcp", "with its path as it is", id="a list"),
        pytest.param(401, b"", "readable by everybody", "without a password", id="a password"),
        pytest.param(302, b"", "readable by everybody", "without a password", id="a login page"),
        pytest.param(
            403,
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "unknown host `x`"}},
            "unknown host `x`",
            "pass `Host` on",
            id="a wrong host",
        ),
        pytest.param(
            404,
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "not found"}},
            "not found",
            "another version of the config",
            id="an older config",
        ),
    ],
)
async def test_what_is_in_the_way_is_said_with_what_to_do(
    cli: CliRunner, status: int, body: object, what: str, hint: str
) -> None:
    async with asyncio.timeout(BOUND_S), answering(status, body, location="/login") as (origin, _):
        found = await finding(cli, f"{origin}/mcp")

    assert found["level"] == "warning"
    assert what in found["what"]
    assert hint in found["hint"]
