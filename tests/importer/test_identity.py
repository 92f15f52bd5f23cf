from __future__ import annotations

from typing import Any

import pytest

from dynamic_mcp.importer.convert.identity import identify

Entry = dict[str, Any]  # whatever JSON a server has


def npx(*args: str, **more: Any) -> Entry:
    return {"command": "npx", "args": list(args), **more}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (npx("-y", "pkg@latest"), npx("pkg"), True),
        (npx("@a/pkg@1.2", "x"), {"command": "cmd", "args": ["/c", "C:\\n\\npx.cmd", "-y", "@a/pkg", "x"]}, True),
        (npx("pkg", "x"), npx("pkg", "y"), False),
        (npx("pkg"), npx("pkg", cwd="/there"), False),
        (npx("pkg", cwd="/a/"), npx("pkg", cwd="/a/b/.."), True),
        ({"command": "uvx", "args": ["tool==1"]}, {"command": "uv", "args": ["tool", "run", "tool"]}, True),
        (npx("tool"), {"command": "uvx", "args": ["tool"]}, False),
        ({"command": "/usr/bin/foo"}, {"command": "foo"}, True),
        ({"command": "/a/foo"}, {"command": "/b/foo"}, False),
        ({"command": "python", "args": ["~/s.py"]}, {"command": "python", "args": ["${HOME}/s.py"]}, True),
        ({"url": "https://Host:443/mcp/"}, {"url": "https://host/mcp"}, True),
        ({"url": "https://host/mcp?a=1"}, {"url": "https://host/mcp?a=2"}, False),
        ({"url": "https://host/mcp"}, npx("mcp-remote@0.1", "https://host/mcp"), True),
        ({"url": "http://[bad"}, {"url": "http://[bad"}, True),
    ],
)
def test_a_server_is_what_it_runs(one: Entry, other: Entry, *, is_same: bool) -> None:
    assert identify(one, "/home/me").is_same(identify(other, "/home/me")) is is_same
    assert identify(other, "/home/me").is_same(identify(one, "/home/me")) is is_same


def test_two_command_line_programs_are_the_same_only_if_they_use_the_same_pack() -> None:
    git = identify({"cli": {"use": "git", "commands": ["log"]}}, "/home")

    assert git.is_same(identify({"cli": {"use": "git", "commands": ["status"]}}, "/home"))
    assert not git.is_same(identify({"cli": {"use": "rg", "commands": ["*"]}}, "/home"))
    assert not git.is_same(identify({"command": "git"}, "/home"))
