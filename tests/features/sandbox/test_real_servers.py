"""Servers of others work confined: those that people start by `npx` and `uvx`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("only Linux confines programs", allow_module_level=True)

from dynamic_mcp.features.sandbox import bubblewrap


def runs(command: str) -> bool:
    """Return whether a command is there, and is not the shim of one that is not installed."""
    file = shutil.which(command)
    return file is not None and subprocess.run([file, "--version"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(bubblewrap.explain_missing()), reason=bubblewrap.explain_missing() or "-"),
]
needs_npx = pytest.mark.skipif(shutil.which("npx") is None, reason="there is no `npx`")
needs_uvx = pytest.mark.skipif(not runs("uvx"), reason="there is no `uvx` that runs")
BOUND_S = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder with files, in which nothing else is."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    return folder


def call(tmp_path: Path, server: dict[str, Any], tool: str, **arguments: str) -> str:
    """Call a tool of a server with the command `call`, and return its answer."""
    config = tmp_path / "config.json"
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    entry = {"cwd": str(work), "timeout": {"connect": "240s"}, **server}
    config.write_text(json.dumps({"mcpServers": {"real": entry}}))
    words = ["call", "-c", str(config), "real", tool, json.dumps(arguments)]
    done = subprocess.run(
        [sys.executable, "-m", "dynamic_mcp", *words], capture_output=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@needs_npx
def test_the_file_server_reads_and_writes_in_the_folders_of_its_arguments(tmp_path: Path, folder: Path) -> None:
    args = ["-y", "@modelcontextprotocol/server-filesystem", str(folder)]
    server = {"command": "npx", "args": args, "sandbox": "write"}
    assert "a.txt" in call(tmp_path, server, "list_directory", path=str(folder))
    call(tmp_path, server, "write_file", path=str(folder / "b.txt"), content="written")
    assert (folder / "b.txt").read_text() == "written"


@needs_npx
def test_the_server_with_everything_works(tmp_path: Path) -> None:
    server = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"], "sandbox": "write"}
    assert "hi" in call(tmp_path, server, "echo", message="hi")


@needs_uvx
def test_the_git_server_commits(tmp_path: Path, folder: Path) -> None:
    for words in (["init", "-q"], ["config", "user.name", "a"], ["config", "user.email", "a@example.com"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=BOUND_S)
    subprocess.run(["git", "add", "a.txt"], cwd=folder, check=True, timeout=BOUND_S)
    args = ["mcp-server-git", "--repository", str(folder)]
    server = {"command": "uvx", "args": args, "sandbox": "write"}
    assert "committed" in call(tmp_path, server, "git_commit", repo_path=str(folder), message="first")


@needs_uvx
def test_a_server_that_reads_only_itself_starts_once_it_is_installed(tmp_path: Path) -> None:
    server = {"command": "uvx", "args": ["mcp-server-time"], "sandbox": "write"}
    call(tmp_path, server, "get_current_time", timezone="Europe/Berlin")
    strict = {**server, "args": ["--offline", "mcp-server-time"], "sandbox": "strict"}
    assert "Europe/Berlin" in call(tmp_path, strict, "get_current_time", timezone="Europe/Berlin")
