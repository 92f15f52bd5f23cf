"""Whatever stands in a tool's files: the importer neither crashes nor runs it, and writes its own output alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dynamic_mcp.config.read import read
from tests.examples import examples
from tests.importer.world import World

TRAP = "touch sprung"
TEXTS = st.sampled_from(
    [
        *("", "npx", "-y", "x", "/bin/sh", "-c", TRAP, f"$({TRAP})", f"`{TRAP}`", f"!{TRAP}", f"${{cmd: {TRAP}}}"),
        *("${HOME}", "${env:A}", "${input:i}", "${A:-b}", "$${", "{file:/etc/hostname}", "ghp_0123456789abcdef0123"),
        *(
            "https://u:p@h/x?key=k",
            "http://[",
            "sse",
            "http",
            "stdio",
            "\0",
            "\ud800",
            "é" * 300,
            "a/../../b",
            "true",
        ),
    ]
) | st.text(max_size=8)
FIELDS = """
command args env url headers cwd type disabled enabled timeout tools oauth description envFile inputs id cmd serverUrl
httpUrl headersHelper auth transport disabledTools alwaysAllow trust envs bearer_token
"""
NAMES = st.sampled_from(FIELDS.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SERVERS = st.dictionaries(TEXTS, st.dictionaries(NAMES, VALUES, max_size=6) | VALUES, max_size=4)
ROOTS = ["mcpServers", "mcp", "servers", "context_servers", "mcp_servers", "extensions", "amp.mcpServers"]
FILES = [
    *(".cursor/mcp.json", ".claude.json", ".gemini/settings.json", ".config/opencode/opencode.json"),
    *(
        ".config/zed/settings.json",
        ".config/goose/config.yaml",
        ".config/amp/settings.json",
        ".kiro/settings/mcp.json",
    ),
    *(".config/Code/User/mcp.json", ".codex/config.toml", ".pi/agent/mcp.json", ".config/crush/crush.json"),
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = World(tmp_path, monkeypatch, capsys)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"something was run: {args}")

    for module, name in ((subprocess, "Popen"), (os, "system"), (os, "execve"), (os, "posix_spawn")):
        monkeypatch.setattr(module, name, refuse, raising=name != "posix_spawn")
    return made


def everything(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder but our own, which Windows has there too."""
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file()}
    return {str(name): file.read_bytes() for name, file in files.items() if "dynamic-mcp" not in name.parts}


SETTINGS = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@SETTINGS
@given(
    documents=st.dictionaries(
        st.sampled_from(FILES), st.dictionaries(st.sampled_from(ROOTS), SERVERS, max_size=2) | VALUES, max_size=3
    ),
    secrets=st.sampled_from(["keep", "env"]),
)
def test_no_settings_crash_run_or_write_anything_else(world: World, documents: dict[str, Any], secrets: str) -> None:
    for file in FILES:
        (world.home / file).unlink(missing_ok=True)
    for file, document in documents.items():
        world.write(file, json.dumps(document))
    _import(world, "--secrets", secrets)


@SETTINGS
@given(documents=st.dictionaries(st.sampled_from(FILES), st.binary(max_size=40) | st.text(max_size=40), min_size=1))
def test_no_bytes_crash_run_or_write_anything_else(world: World, documents: dict[str, bytes | str]) -> None:
    for file in FILES:
        (world.home / file).unlink(missing_ok=True)
    for file, content in documents.items():
        world.write(file, content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    _import(world)


def _import(world: World, *options: str) -> None:
    for file in world.project.iterdir():
        file.unlink()
    before = everything(world.home)
    ran = world.run("import", "--all", "--scope", "all", "--yes", *options)
    assert ran.code in (0, 1, 3, 4), ran.err
    assert "Traceback" not in ran.err
    assert everything(world.home) == before
    written = everything(world.project)
    assert written.keys() <= {"dynamic-mcp.json", "dynamic-mcp.env"}
    if "dynamic-mcp.json" in written:
        read(world.output, {})
        again = world.run("import", "--all", "--scope", "all", "--yes", *options)
        assert again.code == ran.code
        assert everything(world.project) == written, "a repeated import changes nothing"


@pytest.mark.skipif(sys.platform == "win32", reason="other limits")
def test_a_large_file_takes_its_time_and_no_more(world: World) -> None:
    many = {f"server-{n}": {"command": f"program-{n}", "args": ["x" * 2000]} for n in range(2000)}
    world.cursor(**many)
    assert world.run("import", "cursor").code == 0
    assert len(world.servers()) == 2000
