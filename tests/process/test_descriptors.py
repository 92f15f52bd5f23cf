"""Whatever of stdin, stdout and stderr is closed: the program runs, and no stream gets what is meant for another."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from tests import hosting, own_process
from tests.program import full

COMMAND = pytest.mark.alone_only("a command serves nobody")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="shells of Windows cannot close a descriptor")

CLOSED = [closed for count in (1, 2, 3) for closed in combinations((0, 1, 2), count)]
Run = Callable[..., subprocess.CompletedProcess[str]]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
GREETING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}) + "\n"


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> str:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"full": full()}}))
    hosting.hosting.prepare(file)
    return str(file)


def _run(closed: tuple[int, ...], *args: str) -> subprocess.CompletedProcess[str]:
    done = own_process.run(*args, stdin=GREETING.encode(), closed=closed)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _run_in_shell(closed: tuple[int, ...], *args: str) -> subprocess.CompletedProcess[str]:
    signs = {0: "<&-", 1: ">&-", 2: "2>&-"}
    script = f'exec "$@" {" ".join(signs[each] for each in closed)}'
    command = ["/bin/sh", "-c", script, "sh", *own_process.OWN, *args]
    return subprocess.run(command, input=GREETING, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("run", [_run, pytest.param(_run_in_shell, marks=pytest.mark.full)])
@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_a_proxy_serves_with_what_is_open(config: str, closed: tuple[int, ...], run: Run) -> None:
    _assert_serves(run(closed, config), closed)


@pytest.mark.both_hosts
def test_a_proxy_that_a_shell_starts_without_any_stream_serves_to_the_end_of_its_input(config: str) -> None:
    _assert_serves(_run_in_shell((0, 1, 2), config), (0, 1, 2))


def _assert_serves(done: subprocess.CompletedProcess[str], closed: tuple[int, ...]) -> None:
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each.get("id") for each in answers] == ([1] if closed == (2,) else [])


@COMMAND
@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_a_command_runs_with_what_is_open(config: str, closed: tuple[int, ...]) -> None:
    done = _run(closed, "call", "full", "echo", "text=said", "-c", config)
    assert (done.returncode, done.stdout, done.stderr) == (0, "" if 1 in closed else "said\n", "")


@COMMAND
@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_an_error_reaches_nobody_but_stderr(config: str, closed: tuple[int, ...]) -> None:
    done = _run(closed, "call", "full", "-c", f"{config}.gone", "echo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") is (2 not in closed)


@COMMAND
@pytest.mark.parametrize("args", [("check",), ("status",), ("logs",), ("--version",), ("--help",), ("schema",)])
def test_commands_that_only_print_run_without_any_stream(config: str, args: tuple[str, ...]) -> None:
    done = _run((0, 1, 2), *args, *(["-c", config] if args == ("check",) else []))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
