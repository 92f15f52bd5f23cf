"""Profiles in the whole program: over stdio, in windows of one daemon, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from dynamic_mcp.system import file_reader
from tests import hosting
from tests.journeys.remote_server import free_port
from tests.process.http_client import connected, serving_http
from tests.process.test_modern_windows import ModernWindow
from tests.program import Json, Program, odd, running, text_of
from tests.web import web_client

PROFILES: Json = {
    "review": {"servers": ["a"], "tools": {"include": ["echo"]}, "instructions": "You review."},
    "write": {"servers": ["b"], "direct": True, "tools": {"include": ["b__*"]}},
}


def save(folder: Path, profiles: Json = None, **settings: Json) -> Path:
    """Write a config with two servers and with profiles, by a rename."""
    file, new = folder / "dynamic-mcp.json", folder / "new.json"
    if hosting.hosting.has_daemon:
        settings = {"daemon": hosting.ENDS_WITH_LAST_WINDOW, **settings}
    servers = {"a": odd(), "b": odd()}
    tree = {"mcpServers": servers, "profiles": PROFILES if profiles is None else profiles, "settings": settings}
    new.write_text(json.dumps(tree))
    file_reader.replace(new, file)
    return file


async def groups_of(program: Program) -> list[str]:
    """Return the groups that a client's own tools name."""
    return _groups((await program.request("tools/list"))["result"]["tools"])


def _groups(tools: Json) -> list[str]:
    schema = next(each for each in tools if each["name"] == "call_dynamic_tool")["inputSchema"]
    named: list[str] = schema["properties"]["group"].get("enum", [])
    return named


async def assert_review(program: Program) -> None:
    """Check that a client sees what the profile `review` selects."""
    said = (await program.initialize())["result"]["instructions"]
    assert said.startswith("You review.\n\n")
    assert await groups_of(program) == ["a"]
    assert text_of(await program.call("a", "echo", {"text": "one"})) == "one"
    for group, tool in (("a", "pid"), ("b", "echo")):
        refused = await program.call(group, tool, {"text": "two"})
        assert refused["isError"] is True
        assert f"is named `{tool if group == 'a' else group}`" in text_of(refused)


@pytest.mark.parametrize("words", [("--profile", "review"), ("--profile=review",), ("serve", "--profile", "review")])
async def test_a_client_over_stdio_has_the_profile_of_its_command_line(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    async with running(*words, str(save(tmp_path))) as program:
        await assert_review(program)
        program.assert_answered_once()


async def test_the_config_may_come_first_and_the_variable_is_enough(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running(file, "--profile", "review", env={"DYNAMIC_MCP_PROFILE": "write"}) as program:
        await assert_review(program)
    async with running(file, env={"DYNAMIC_MCP_PROFILE": "review"}) as program:
        await assert_review(program)
    async with running(file, env={"DYNAMIC_MCP_PROFILE": ""}) as program:
        await program.initialize()
        assert await groups_of(program) == ["a", "b"]


async def test_an_unknown_profile_ends_with_the_names_also_where_a_daemon_runs(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running(file) as first:
        await first.initialize()
        for words, name in ((("--profile", "reveiw"), "reveiw"), (("--profile", ""), "")):
            async with running(file, *words) as program:
                assert await program.ends() == 2
                said = await program.stderr()
                assert f"error: no profile is named `{name}`" in said
                assert "`review`, `write`" in said
                assert "did you mean `review`?" in said or not name
        assert await groups_of(first) == ["a", "b"]


async def test_a_name_of_any_bytes_is_shown_without_what_a_terminal_would_act_on(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running(file) as first:
        await first.initialize()
        async with running(file, "--profile", "\udcff\x1b[31m") as program:
            assert await program.ends() == 2
            said = await program.stderr()
            assert "no profile is named" in said
            assert "\x1b" not in said


async def test_one_group_alone_must_be_in_the_profile(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running("serve", "--only", "a", "--profile", "review", file) as program:
        await program.initialize()
        assert [each["name"] for each in (await program.request("tools/list"))["result"]["tools"]] == ["echo"]
    async with running("serve", "--only", "b", "--profile", "review", file) as program:
        assert await program.ends() == 2
        assert "no group is named `b`" in await program.stderr()


@pytest.mark.both_hosts
async def test_clients_of_different_profiles_share_the_servers_of_a_daemon(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with (
        running(file) as whole,
        running(file, "--profile", "review") as review,
        running(file, env={"DYNAMIC_MCP_PROFILE": "write"}) as write,
    ):
        await assert_review(review)
        await whole.initialize()
        await write.initialize()
        assert await groups_of(whole) == ["a", "b"]
        listed = [each["name"] for each in (await write.request("tools/list"))["result"]["tools"]]
        assert "b__echo" in listed
        assert all(name.startswith("b__") for name in listed)
        pid = text_of((await write.request("tools/call", {"name": "b__pid", "arguments": {}}))["result"])
        if hosting.hosting.has_daemon:
            assert whole.host == review.host == write.host
            assert text_of(await whole.call("b", "pid")) == pid


async def test_modern_clients_have_the_profile_of_their_command_line(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running(file, "--profile", "review") as review, running(file) as whole:
        one, other = ModernWindow(review, "one"), ModernWindow(whole, "other")
        assert _groups((await one.request("tools/list"))["result"]["tools"]) == ["a"]
        assert _groups((await other.request("tools/list"))["result"]["tools"]) == ["a", "b"]
        assert (await one.request("server/discover"))["result"]["instructions"].startswith("You review.")


async def test_a_reload_is_told_to_the_clients_whose_lists_it_changes(tmp_path: Path) -> None:
    changed = "notifications/tools/list_changed"
    file = str(save(tmp_path))
    async with running(file, "--profile", "review") as review, running(file, "--profile", "write") as write:
        await assert_review(review)
        await write.initialize()
        before = (await write.request("tools/list"))["result"]["tools"]

        save(tmp_path, {"write": PROFILES["write"]})
        await review.hears(changed)
        assert await groups_of(review) == []
        gone = await review.call("a", "echo", {"text": "one"})
        assert "the profile `review` is no longer in the config" in text_of(gone)
        assert (await write.request("tools/list"))["result"]["tools"] == before
        assert write.heard(changed) == []

        save(tmp_path)
        await review.hears(changed, 2)
        assert text_of(await review.call("a", "echo", {"text": "back"})) == "back"


@pytest.mark.daemon_only
async def test_a_window_finds_a_profile_that_was_just_added_to_the_file(tmp_path: Path) -> None:
    file = str(save(tmp_path))
    async with running(file) as first:
        await first.initialize()
        save(tmp_path, {**PROFILES, "new": {"servers": ["b"]}})
        async with running(file, "--profile", "new") as program:
            await program.initialize()
            assert await groups_of(program) == ["b"]


@pytest.mark.daemon_only
@pytest.mark.parametrize("stays", [True, False])
async def test_a_window_goes_on_with_another_daemon_in_its_profile_or_without_servers(
    tmp_path: Path, stays: bool
) -> None:
    async with running(str(save(tmp_path)), "--profile", "review") as program:
        await assert_review(program)
        os.kill(program.host, signal.SIGSTOP)
        if not stays:
            save(tmp_path, {"write": PROFILES["write"]})
        os.kill(program.host, signal.SIGKILL)
        assert await groups_of(program) == (["a"] if stays else [])


@pytest.mark.alone_only("it starts no windows")
async def test_http_has_a_path_for_each_profile_and_a_profile_for_the_others(tmp_path: Path) -> None:
    port = free_port()
    async with serving_http(save(tmp_path), str(port), "--profile", "review") as program:
        await program.says("over HTTP at")
        origin = f"http://127.0.0.1:{port}"
        for path, first in (("/mcp", "get_dynamic_tools"), ("/mcp/a", "echo"), ("/mcp/profile/write", "b__")):
            async with connected(f"{origin}{path}") as client:
                listed = (await client.request("tools/list"))["result"]["tools"]
                assert any(each["name"].startswith(first) for each in listed)
                if path == "/mcp":
                    assert _groups(listed) == ["a"]
        async with web_client() as http:
            unknown = await http.post(f"{origin}/nothing/here", json={})
            for path in ("/mcp/b", "/mcp/profile/none", "/mcp/profile/a%2Fb", "/mcp/profile//write", "/mcp/profile/"):
                answer = await http.post(f"{origin}{path}", json={})
                assert (answer.status_code, answer.content) == (404, unknown.content)


@pytest.mark.alone_only("it starts no windows")
async def test_http_does_not_begin_with_a_profile_that_there_is_not(tmp_path: Path) -> None:
    async with serving_http(save(tmp_path), str(free_port()), "--profile", "writ") as program:
        assert await program.ends() == 2
        assert "did you mean `write`?" in await program.stderr()


@pytest.mark.alone_only("it starts no windows")
async def test_http_says_when_its_own_profile_has_gone(tmp_path: Path) -> None:
    port = free_port()
    async with serving_http(save(tmp_path), str(port), "--profile", "review") as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            assert _groups((await client.request("tools/list"))["result"]["tools"]) == ["a"]
            save(tmp_path, {"write": PROFILES["write"]})
            await program.says("the profile `review` is no longer in")
            assert _groups((await client.request("tools/list"))["result"]["tools"]) == []
        async with web_client() as http, asyncio.timeout(5):
            assert (await http.post(f"http://127.0.0.1:{port}/mcp", json={})).status_code == 404
