"""`direct: "auto"` in the whole program: over stdio, in windows of one daemon, in both eras, and over HTTP."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests import hosting
from tests.journeys.remote_server import free_port
from tests.process.http_client import connected, serving_http, write_config
from tests.process.test_modern_windows import ModernWindow
from tests.program import Json, odd, running

SEARCHES, OTHER = "codex-mcp-client", "opencode"
CHANGED = "notifications/tools/list_changed"
TWO = ["get_dynamic_tools", "call_dynamic_tool"]


def _save(folder: Path, direct: Json = "auto") -> Path:
    settings = {"daemon": hosting.ENDS_WITH_LAST_WINDOW} if hosting.hosting.has_daemon else {}
    return write_config(folder, {"a": odd()}, defaults={"direct": direct}, **settings)


def _names(answer: Json) -> list[str]:
    return [each["name"] for each in answer["result"]["tools"]]


@pytest.mark.both_hosts
async def test_windows_of_one_config_are_listed_what_suits_their_ai_tools(tmp_path: Path) -> None:
    file = str(_save(tmp_path))
    async with running(file) as first, running(file) as second, running(file) as third:
        await first.initialize(name=SEARCHES)
        await second.initialize(name=OTHER)
        modern = ModernWindow(third, SEARCHES)

        listed = _names(await first.request("tools/list"))

        assert "a__echo" in listed
        assert not {*TWO} & {*listed}
        assert _names(await second.request("tools/list")) == TWO
        assert _names(await modern.request("tools/list")) == listed
        called = await first.request("tools/call", {"name": "a__echo", "arguments": {"text": "one"}})
        assert called["result"]["content"][0]["text"] == "one"


async def test_a_reload_takes_the_tools_out_of_the_list_again(tmp_path: Path) -> None:
    file = _save(tmp_path)
    async with running(str(file)) as program:
        await program.initialize(name=SEARCHES)
        assert "a__echo" in _names(await program.request("tools/list"))

        _save(tmp_path, direct=False)

        for times in itertools.count(1):  # what the servers have is announced, too
            await program.hears(CHANGED, times=times)
            if _names(await program.request("tools/list")) == TWO:
                break


@pytest.mark.alone_only("it starts no windows")
async def test_sessions_over_http_are_listed_what_suits_them(tmp_path: Path) -> None:
    port = free_port()
    async with serving_http(_save(tmp_path), str(port)) as program:
        await program.says("over HTTP at")
        url = f"http://127.0.0.1:{port}/mcp"
        async with connected(url, name=SEARCHES) as first, connected(url, name=OTHER) as second:
            assert "a__echo" in _names(await first.request("tools/list"))
            assert _names(await second.request("tools/list")) == TWO
