"""What is left of a script when the program is killed, or ends, in the middle of it: nothing. On each way in."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.process.test_kill import all_end, children_of, watching
from tests.program import BOUND_S, Json, Program, full, serving, text_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux, to watch processes end")
SETTINGS = {"scripts": {"cpu": "60s"}}
FOR_EVER = "while True: pass"


def run(code: str) -> Json:
    """Return the params of a call that runs a script."""
    return {"name": "run_dynamic_script", "arguments": {"code": code}}


async def worker_of(program: Program) -> int:
    """Wait for the worker of a script that has begun to compute, and return its process id."""
    async with asyncio.timeout(BOUND_S):
        while True:
            for pid in children_of(program):
                command = _read(pid, "cmdline")
                if b"monty\0subprocess" in command and _ticks(pid) >= 5:
                    return pid
            await asyncio.sleep(0.01)


def _ticks(pid: int) -> int:
    """Return how long a process has computed, in hundredths of a second."""
    return int(_read(pid, "stat").rpartition(b")")[2].split()[11])


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.mark.both_hosts
async def test_a_script_calls_tools_through_the_whole_program(tmp_path: Path) -> None:
    async with serving(tmp_path, {"full": full()}, settings=SETTINGS) as program:
        answer = await program.request("tools/call", run('return await call("full", "echo", {"text": "7 of them"})'))
        assert "isError" not in answer["result"]
        assert "7 of them" in text_of(answer["result"])


@pytest.mark.both_hosts
async def test_a_worker_does_not_survive_a_kill_of_the_program(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, settings=SETTINGS) as program:
        program.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": run(FOR_EVER)})
        with watching(await worker_of(program)) as handles:
            program.kill()
            await all_end(handles)


@pytest.mark.both_hosts
async def test_a_worker_ends_when_its_client_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, settings=SETTINGS) as program:
        program.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": run(FOR_EVER)})
        with watching(await worker_of(program)) as handles:
            program.end_input()
            await all_end(handles)
