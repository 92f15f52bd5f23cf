"""Servers and programs that want to outlive the proxy, read its memory, or lead it out of its directories."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.attacks.upstream_scene import Evil, attacked
from tests.process.test_end import is_running, pids_of
from tests.program import BOUND_S, Json, Program, odd, started, text_of
from tests.upstream.cli.programs import git, require

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

# Ignores SIGTERM, and so does its child in a session of its own, which has no mark of ours and holds the output open.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={})
with open(sys.argv[-1], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
time.sleep(1000)
"""
# Runs the program without the capabilities of root, who may read everything.
UNPRIVILEGED = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "dynamic_mcp", *sys.argv[1:]])
"""


def command_line(folder: Path, script: str, **cli: Json) -> Json:
    """Return the config of a command line program that is a Python script; its tool is `it_run`, with a `file`."""
    (folder / "it.py").write_text(script)
    command = {
        "name": "run",
        "description": "Runs.",
        "effect": "read",
        "positionals": [{"name": "file", "type": "string"}],
    }
    pack = {
        "name": "it",
        "program": "python3",
        "description": "It.",
        "fixed": [str(folder / "it.py")],
        "commands": [command],
    }
    (folder / "it.pack.json").write_text(json.dumps(pack))
    return {"cli": {"use": str(folder / "it.pack.json"), "commands": ["*"], **cli}}


async def cancelled(program: Program, pids: Path) -> list[int]:
    """Cancel a call of the program once it runs, and return its processes."""
    arguments = {"group": "it", "name": "it_run", "args": {"file": str(pids)}}
    params = {"name": "call_dynamic_tool", "arguments": arguments}
    program.send({"jsonrpc": "2.0", "id": "stubborn", "method": "tools/call", "params": params})
    async with asyncio.timeout(BOUND_S):
        while not pids.exists() or len(pids.read_text().split()) < 2:  # noqa: ASYNC110, ASYNC240 - a file tells nobody
            await asyncio.sleep(0.02)
    program.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "stubborn"}})
    return [int(pid) for pid in pids.read_text().split()]  # noqa: ASYNC240


async def have_ended(*pids: int) -> None:
    """Wait until these processes have ended."""
    async with asyncio.timeout(BOUND_S):
        while any(map(is_running, pids)):  # noqa: ASYNC110 - they are children of others
            await asyncio.sleep(0.02)


async def test_nothing_that_a_server_or_a_program_starts_outlives_it(tmp_path: Path) -> None:
    modes = {"hidden": "", "daemon": "", "unmarked": "daemon yes", "grandchild": "", "family": ""}
    servers = {name: odd(*(mode or name).split()) for name, mode in modes.items()}
    servers["it"] = command_line(tmp_path, STUBBORN)
    async with attacked(tmp_path, servers) as program:
        killed = await pids_of(program, "hidden")
        left = await cancelled(program, tmp_path / "pids")
        await program.call("hidden", "fault", {"kind": "close_stdout"})
        assert await pids_of(program, "hidden") != killed
        await have_ended(*left, *killed)

        pids = [pid for mode in modes for pid in await pids_of(program, mode)]
        assert len(pids) == 2 * len(modes)
        assert all(map(is_running, pids))
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.parametrize("traceable", ["", "1"], ids=["as always", "where a person debugs it"])
async def test_a_server_cannot_read_the_environment_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traceable: str
) -> None:
    monkeypatch.setenv("TOKEN_OF_ANOTHER", "only-the-program-has-this")
    monkeypatch.setenv("DYNAMIC_MCP_TRACEABLE", traceable)
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"evil": Evil(tmp_path).config()}}))
    async with started(sys.executable, "-c", UNPRIVILEGED, str(file)) as program:
        await program.initialize()
        read = text_of(await program.call("evil", "read_file", {"path": f"/proc/{program.host}/environ"}))
        assert ("only-the-program-has-this" in read) is bool(traceable)


@pytest.fixture
def ways_out(tmp_path: Path) -> dict[str, Path]:
    """Directories in `inside` that lead git to the repository `outside`."""
    require("git")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("alpha")
    git(outside, "init", "--quiet")
    git(outside, "add", ".")
    git(outside, "commit", "--quiet", "-m", "alpha secret")
    ways = {name: tmp_path / "inside" / name for name in ("file", "link", "common")}
    for folder in ways.values():
        folder.mkdir(parents=True)
    (ways["file"] / ".git").write_text(f"gitdir: {outside}/.git\n")
    (ways["link"] / ".git").symlink_to(outside / ".git")
    git(ways["common"], "init", "--quiet")
    (ways["common"] / ".git" / "commondir").write_text(f"{outside}/.git\n")
    return ways


async def test_no_repository_leads_out_of_the_roots_and_no_value_is_a_flag(
    tmp_path: Path, ways_out: dict[str, Path]
) -> None:
    cli = {"use": "git", "commands": ["*"], "cwd": {"roots": [str(tmp_path / "inside")]}}
    canary = tmp_path / "canary"
    async with attacked(tmp_path, {"git": {"cli": cli}}) as program:
        for folder in (*ways_out.values(), tmp_path / "outside"):
            for tool in ("git_log", "git_status"):
                result = await program.call("git", tool, {"cwd": str(folder)})
                assert result["isError"], (folder, tool)
                assert "alpha secret" not in json.dumps(result)
        for flag in (f"--output={canary}", "--no-index", f"-O{canary}", "--ext-diff", "--upload-pack=touch x"):
            for argument in ("revisions", "revision", "paths", "cwd"):
                result = await program.call("git", "git_diff", {argument: [flag] if argument != "cwd" else flag})
                assert result["isError"], (flag, argument)
        assert not canary.exists()
