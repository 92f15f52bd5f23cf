"""A backup of a service that writes meanwhile: what was restored elsewhere is served as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import own_process, windows
from tests.headless_browser import HeadlessBrowser
from tests.journeys.remote_server import free_port
from tests.login_program import BEHIND_PROXY, serving_logins
from tests.process.http_client import HttpClient
from tests.program import BOUND_S, text_of
from tests.sdk_client import SdkClient
from tests.web import web_client

pytestmark = pytest.mark.alone_only("HTTP is served the same by a daemon")

AUTH = [{"kind": "bearer"}, *BEHIND_PROXY]
SETTINGS = {"audit": {"arguments": "full"}}
PASSPHRASE = {"DYNAMIC_MCP_BACKUP_PASSPHRASE": "correct horse battery staple"}
# An audit line for each, and no more than the machine takes.
CALLS_APART_S = 0.01


async def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run a command for the config of a folder; return its exit code, stdout and stderr."""
    process = await own_process.start(*words, "-c", str(folder / "dynamic-mcp.json"), stdin=own_process.DEVNULL)
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def calling(url: str, token: str) -> AsyncIterator[HttpClient]:
    """Connect a client with a token, and call a tool again and again until the end."""

    async def call_on() -> None:
        while True:
            assert "hi" in await echo(client)
            await asyncio.sleep(CALLS_APART_S)

    headers = {"authorization": f"Bearer {token}"}
    async with web_client(headers=headers, trust_env=False, timeout=BOUND_S) as http:
        client = HttpClient(url, http)
        await client.initialize()
        calls = asyncio.create_task(call_on())
        try:
            yield client
            assert not calls.done()
        finally:
            calls.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await calls


async def echo(client: HttpClient) -> str:
    call = {"group": "a", "name": "echo", "args": {"text": "hi"}}
    answer = await client.request("tools/call", {"name": "call_dynamic_tool", "arguments": call})
    return text_of(answer["result"])


async def test_a_backup_of_a_busy_service_is_served_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in (PASSPHRASE | windows.state_variables(tmp_path / "first")).items():
        monkeypatch.setenv(name, value)
    port = free_port()
    async with serving_logins(tmp_path, AUTH, port, **SETTINGS) as program:
        code, out, _ = await run(tmp_path, "token", "create", "--as", "ci")
        assert code == 0
        token = out.strip()
        sdk = SdkClient(program.url, HeadlessBrowser("ann"))
        async with sdk.connected() as client:
            await client.list_tools()
        async with calling(program.url, token):
            for number in range(3):
                async with sdk.connected(is_expired=True) as client:
                    await client.list_tools()
                made, copied = await asyncio.gather(
                    run(tmp_path, "token", "create", "--as", f"other{number}"),
                    run(tmp_path, "backup", str(tmp_path / "backup"), "--overwrite"),
                )
                assert (made[0], copied[0]) == (0, 0), copied[2]
        code, _, err = await run(tmp_path, "restore", str(tmp_path / "backup"), "--overwrite")
        assert code == 1
        assert f"process {program.process.pid} (http" in err
    assert len(sdk.logins) == 1

    for name, value in windows.state_variables(tmp_path / "second").items():
        monkeypatch.setenv(name, value)
    code, _, err = await run(tmp_path, "restore", str(tmp_path / "backup"))
    assert code == 0, err
    verified = await run(tmp_path, "audit", "verify", "--json")
    assert verified[0] == 0, verified[1]
    lines_before = json.loads(verified[1])["lines"]
    async with serving_logins(tmp_path, AUTH, port, **SETTINGS) as program:
        async with calling(program.url, token) as by_token:
            assert "hi" in await echo(by_token)
        async with sdk.connected(is_expired=True) as client:
            await client.list_tools()
        assert len(sdk.logins) == 1, "its client is still logged in"
        listed = json.loads((await run(tmp_path, "token", "list"))[1])
        assert {"ci", "other0", "other1"} <= {each["subject"] for each in listed}
    verified = await run(tmp_path, "audit", "verify", "--json")
    assert verified[0] == 0, verified[1]
    assert json.loads(verified[1])["lines"] > lines_before
