"""Remote servers that use their login to reach into this machine, to run something, or to get another one's token."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.attacks.upstream_scene import attacked
from tests.program import BOUND_S, Json, Program, browser_command, text_of
from tests.upstreams.auth_server import Answer, AuthServer, Manners

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
# Notes what it is to open, which is nothing.
BROWSER = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10))"


def endpoint(url: str) -> Manners:
    return Manners(metadata={"authorization_endpoint": url})


def answering(path: str, body: Json, status: int = 200, **headers: str) -> Manners:
    answer = Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return Manners(overrides={path: lambda request: answer})


ATTACKS = {
    "script": endpoint("javascript:fetch('https://evil.example')"),
    "shell": endpoint("https://a.test/$(touch canary);`touch canary`"),
    "user": endpoint("https://accounts.example.com@evil.example/authorize"),
    "metadata": Manners(prm={"authorization_servers": ["http://169.254.169.254/latest"]}),
    "issuer": Manners(metadata={"issuer": "https://accounts.example.com"}),
    "page": answering(METADATA, b"<html><script>alert(1)</script>" * 1000, Content_Type="text/html"),
    "deep": answering(METADATA, b"[" * 200_000),
    "huge": answering(METADATA, b'{"issuer":"' + b"x" * 20_000_000 + b'"}'),
    "challenge": answering("/mcp", None, 401, WWW_Authenticate='Bearer resource_metadata="file:///etc/passwd"'),
}


async def test_no_login_runs_opens_or_fetches_what_a_server_may_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    monkeypatch.setenv("BROWSER", browser_command(script, tmp_path / "opened"))
    async with contextlib.AsyncExitStack() as stack:
        trap = await stack.enter_async_context(AuthServer())
        moved = answering(METADATA, None, 307, Location=f"{trap.url}{METADATA}")
        servers = {
            name: await stack.enter_async_context(AuthServer(manners))
            for name, manners in {**ATTACKS, "moved": moved}.items()
        }
        config = {name: {"url": server.mcp_url} for name, server in servers.items()}
        async with attacked(tmp_path, config) as program:
            await asyncio.gather(*(_has_failed(program, name) for name in servers))
        assert not (tmp_path / "opened").exists()
        assert not (tmp_path / "canary").exists()
        assert trap.requests == []
        assert [each for server in servers.values() for each in server.requests_to("/token")] == []


async def _has_failed(program: Program, group: str) -> None:
    """Wait until a login has begun and failed; they come one after the other."""
    text = ""
    async with asyncio.timeout(BOUND_S):
        while "a login has failed" not in text:
            await asyncio.sleep(0.1)
            result = await program.call(group, "echo")
            assert result["isError"]
            text = text_of(result)
    assert len(text) < 2000
