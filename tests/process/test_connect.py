"""`connect URL`: the whole program in front of one remote server, without any config."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests import own_process
from tests.own_process import DEVNULL
from tests.process.side_by_side import play
from tests.program import UPSTREAMS, Json, Program, browser_command, running, text_of
from tests.proxy.bare import Bare
from tests.upstreams.auth_server import AuthServer
from tests.upstreams.full import Options
from tests.upstreams.full_http import FullHttp
from tests.upstreams.odd_http import OddHttp

pytestmark = pytest.mark.alone_only("no daemon serves what is in no config")

BROWSER = browser_command(UPSTREAMS / "browser.py")
NOBODY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "here"}
SECRET = "a-secret-that-nobody-may-see"


@contextlib.asynccontextmanager
async def connected(*args: str, env: Mapping[str, str] = NOBODY) -> AsyncIterator[Program]:
    """Run `dynamic-mcp connect` with these arguments."""
    async with running("connect", *args, env=env, is_alone=True) as program:
        yield program
        program.assert_answered_once()


async def run(*args: str, env: Mapping[str, str] = NOBODY) -> tuple[int, str, str]:
    """Run a command of the program and return its exit code, its data and its words."""
    process = await own_process.start(*args, stdin=DEVNULL, env={**os.environ, **env})
    async with asyncio.timeout(60):
        out, words = await process.communicate()
    return process.returncode or 0, out.decode(), words.decode()


@pytest.mark.parametrize("older", [False, True])
async def test_the_client_gets_the_answers_that_the_server_itself_gives(older: bool) -> None:
    expected = await play(Bare(many=3))
    async with FullHttp(Options(many=3), older=older).listening() as url:
        for _ in range(2):  # the second time from the catalog on disk
            async with connected(url, *(("--type", "sse") if older else ())) as program:
                assert await play(program) == expected


async def test_progress_questions_and_log_messages_come_through() -> None:
    async with FullHttp(Options(), older=False).listening() as url, connected(url) as program:
        await program.initialize(capabilities={"sampling": {}})
        program.answers["sampling/createMessage"] = b'{"role":"assistant","content":{"type":"text","text":"hi"}}'
        answer = await program.request("tools/call", {"name": "sample", "arguments": {}})
        assert '"text":"hi"' in text_of(answer["result"])
        await program.request("tools/call", {"name": "log", "arguments": {"level": "error", "logger": "x"}})
        assert (await program.hears("notifications/message"))["params"]["logger"] == "x"
        params = {"name": "progress", "arguments": {"steps": 1}, "_meta": {"progressToken": "t"}}
        await program.request("tools/call", params)
        assert (await program.hears("notifications/progress"))["params"]["progressToken"] == "t"


async def test_headers_are_sent_with_their_variables_filled_in_and_are_shown_nowhere() -> None:
    async with OddHttp() as server:
        header = ("--header", "X-Api-Key: ${TOKEN_OF_TEST}", "--header", "X-Team: blue")
        async with connected(server.url, *header, "-v", env={**NOBODY, "TOKEN_OF_TEST": SECRET}) as program:
            await program.initialize()
            await program.request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
            await program.request("tools/call", {"name": "fault", "arguments": {"kind": "500"}})
        assert {request.headers["x-api-key"] for request in server.requests} == {SECRET}
        assert {request.headers["x-team"] for request in server.requests} == {"blue"}
        assert SECRET not in await program.stderr()
        assert all(SECRET.encode() not in line for line in program.lines)


async def test_status_shows_the_url_without_its_secrets() -> None:
    async with FullHttp(Options(), older=False).listening() as url:
        with_password = url.replace("http://", f"http://me:{SECRET}@")
        async with connected(with_password) as program:
            await program.initialize()
            shown: list[Json] = []
            async with asyncio.timeout(30):
                while not any(each["sessions"] for each in shown):
                    code, out, _ = await run("status", "--json")
                    assert code == 0
                    shown = json.loads(out)
            assert SECRET not in json.dumps(shown)
            assert shown[0]["config"].startswith("http://")
            assert shown[0]["groups"][0]["name"] == "127.0.0.1"
            assert shown[0]["clients"] == ["test"]


async def test_a_server_that_refuses_connections_is_an_error_of_initialize() -> None:
    async with OddHttp() as server:
        url = server.url
    async with connected(url) as program:
        assert "refuses connections" in (await program.initialize())["error"]["message"]
        assert (await program.request("ping"))["result"] == {}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["htp://x"], "did you mean `http://x`"),
        (["localhost:8000/mcp"], "did you mean `http://localhost:8000/mcp`"),
        (["mcp.example.com/mcp"], "did you mean `https://mcp.example.com/mcp`"),
        (["ftp://example.com"], "is not a URL"),
        (["http://x", "http://y"], "more than one URL"),
        ([], "missing argument"),
        (["http://x", "--header", f"Author ization: Bearer {SECRET}"], "the name of a header"),
        (["http://x", "--header", "Authorization:", "Bearer", SECRET], "single quotes"),
        (["http://x", "--header", "Authorization"], "has no value"),
        (["http://x", "--header", "Authorization: ${NOT_SET}"], "`${NOT_SET}` is not set"),
        (["http://${NOT_SET}/"], "`${NOT_SET}` is not set"),
        (["http://x", "--client-id", "c", "--client-secret-env", "NOT_SET"], "`${NOT_SET}` is not set"),
        (["http://x", "--header", "X: ${BROKEN}"], "line break"),
        (["${BROKEN}"], "is not a URL once its variables are substituted"),
        (["http://x", "--timeout", "soon"], "--timeout is not a duration"),
        (["http://x", "--type", "stdio"], "stdio"),
    ],
)
async def test_nonsense_is_refused_with_a_hint_and_without_secrets(args: list[str], said: str) -> None:
    code, out, words = await run("connect", *args, env={"BROKEN": f"a\nb{SECRET}"})
    assert code == 2
    assert out == ""
    assert said in words
    assert "hint: " in words
    assert SECRET not in words
    assert "mcpServers" not in words


async def test_no_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "dynamic-mcp.json").write_text("{ this is no config")
    async with (
        FullHttp(Options(), older=False).listening() as url,
        running("connect", url, cwd=tmp_path, is_alone=True) as program,
    ):
        assert "result" in await program.initialize()


# --- logins --------------------------------------------------------------------------------------------------


async def test_initialize_waits_for_the_login_in_the_browser_that_opens() -> None:
    async with AuthServer() as server:
        async with connected(server.mcp_url, env={"BROWSER": BROWSER}) as program:
            assert "result" in await program.initialize()
            await _echoes(program)
        assert len(server.requests_to("/authorize")) == 1
        async with connected(server.mcp_url, env={"BROWSER": BROWSER}) as program:
            await program.initialize()
            await _echoes(program)
        assert len(server.requests_to("/authorize")) == 1


async def test_without_a_browser_the_command_that_logs_in_is_told_and_works() -> None:
    async with AuthServer() as server:
        async with connected(server.mcp_url) as program:
            error = (await program.initialize())["error"]
            assert f"dynamic-mcp auth login {server.mcp_url}" in error["message"]
            code, _, words = await run("auth", "login", server.mcp_url, env={"BROWSER": BROWSER})
            assert code == 0, words
            assert "result" in await program.initialize()
            await _echoes(program)
        code, out, _ = await run("auth", "status", server.mcp_url)
        assert (code, json.loads(out)[0]["state"]) == (0, "logged in")
        assert (await run("auth", "logout", server.mcp_url))[0] == 0
        assert (await run("auth", "status", server.mcp_url))[0] == 4


async def test_options_of_a_client_go_with_a_url_only() -> None:
    code, _, words = await run("auth", "login", "group", "--client-id", "c")
    assert code == 2
    assert "go with a URL" in words


async def _echoes(program: Program) -> None:
    answer = await program.request("tools/call", {"name": "echo", "arguments": {"n": 1}})
    assert json.loads(text_of(answer["result"])) == {"n": 1}
