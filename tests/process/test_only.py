"""`serve --only GROUP`: the whole program in front of one group, beside that server without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import hosting
from tests.process.side_by_side import play
from tests.program import UPSTREAMS, Json, Program, full, odd, running, started, text_of

SERVERS: Json = {"git": full("--name", "git", "--many", "3"), "other": odd()}


@contextlib.asynccontextmanager
async def only(folder: Path, group: str, **root: Json) -> AsyncIterator[Program]:
    """Run the program for one group of a config."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": SERVERS, **root}))
    async with running("serve", "--only", group, str(file)) as program:
        yield program
        program.assert_answered_once()


async def test_the_client_gets_the_answers_that_the_server_itself_gives(tmp_path: Path) -> None:
    command = [sys.executable, str(UPSTREAMS / "full.py"), *SERVERS["git"]["args"][1:]]
    async with started(*command) as itself:
        expected = await play(itself)
    async with only(tmp_path, "git") as program:
        assert await play(program) == expected
    async with only(tmp_path, "git") as program:  # from the catalog on disk
        assert await play(program) == expected


async def test_a_group_that_is_not_there_ends_with_its_names(tmp_path: Path) -> None:
    async with only(tmp_path, "gti") as program:
        assert await program.ends() == 2
        said = await program.stderr()
        assert "no group is named `gti`" in said
        assert "the groups of" in said
        assert "`git`, `other`" in said


async def test_a_server_that_cannot_start_is_an_error_of_initialize(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"git": {"command": "there-is-no-such-program"}}}))
    async with running("serve", "--only", "git", str(file)) as program:
        error = (await program.initialize())["error"]
        assert "there-is-no-such-program" in error["message"]
        assert (await program.request("ping"))["result"] == {}


@pytest.mark.both_hosts
async def test_windows_of_one_group_and_of_all_share_its_server(tmp_path: Path) -> None:
    async with only(tmp_path, "git") as program, running(str(tmp_path / "dynamic-mcp.json")) as whole:
        await program.initialize()
        await whole.initialize()
        assert (await program.request("tools/list"))["result"]["tools"][0]["name"] == "rich"
        assert (await whole.request("tools/list"))["result"]["tools"][0]["name"] == "get_dynamic_tools"
        await program.request("tools/call", {"name": "echo", "arguments": {"text": "one"}})
        assert text_of(await whole.call("git", "echo", {"text": "two"})) == "two"
        if hosting.hosting.has_daemon:
            assert program.host == whole.host
            received = json.loads(text_of(await whole.call("git", "record")))
            assert any('"one"' in line for line in received)


@pytest.mark.daemon_only
async def test_a_window_of_one_group_goes_on_with_another_daemon(tmp_path: Path) -> None:
    async with only(tmp_path, "git") as program:
        await program.initialize()
        assert (await program.request("tools/call", {"name": "crash", "arguments": {}}))["result"]["isError"] is True
        os.kill(program.host, signal.SIGKILL)
        echo = {"name": "echo", "arguments": {"text": "still alone"}}
        answer = (await program.request("tools/call", echo))["result"]
        if answer.get("isError"):  # it was in flight
            answer = (await program.request("tools/call", echo))["result"]
        assert text_of(answer) == "still alone"


async def test_a_reload_that_removes_the_group_is_told(tmp_path: Path) -> None:
    async with only(tmp_path, "git") as program:
        await program.initialize()
        await program.request("tools/list")
        file = tmp_path / "dynamic-mcp.json"
        tree = json.loads(file.read_text())
        del tree["mcpServers"]["git"]
        file.write_text(json.dumps(tree))
        await program.hears("notifications/tools/list_changed")
        assert "no group is named `git`" in (await program.request("tools/list"))["error"]["message"]
