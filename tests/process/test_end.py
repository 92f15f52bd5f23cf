"""How the program ends: nothing that it started is left, whatever a server does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.program import BOUND_S, Program, odd, serving, text_of


async def pids_of(program: Program, group: str) -> list[int]:
    """Return the process ids of a group's server and of its grandchild."""
    told = json.loads(text_of(await program.call(group, "process")))
    return [pid for pid in (told["pid"], told.get("grandchild")) if pid]


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, to look for survivors")


# Rows 6 to 8 and 52 of the fault matrix.


MODES = ("ok", "slow_eof 1", "ignore_eof", "ignore_term", "grandchild", "daemon", "daemon unmarked", "hidden")


@pytest.mark.both_hosts
async def test_no_server_survives_the_end_of_the_programs_input(tmp_path: Path) -> None:
    async with serving_all_modes(tmp_path) as program:
        program.end_input()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
async def test_no_server_survives_a_signal_to_the_program(tmp_path: Path, name: str) -> None:
    async with serving_all_modes(tmp_path) as program:
        os.kill(program.process.pid, signal.Signals[name])


@contextlib.asynccontextmanager
async def serving_all_modes(folder: Path) -> AsyncIterator[Program]:
    """Run the program on a server of each kind, which are gone when it has ended."""
    async with serving(folder, {mode: odd(*mode.split()) for mode in MODES}) as program:
        pids = {mode: await pids_of(program, mode) for mode in MODES}
        assert [mode for mode in MODES if not all(map(is_running, pids[mode]))] == []
        yield program
        assert await program.ends() == 0
        assert [mode for mode in MODES if any(map(is_running, pids[mode]))] == []


@pytest.mark.alone_only("it is told by the program's stderr; test_reload.py has a second signal to a daemon")
@pytest.mark.parametrize(("signals", "is_graceful"), [(["SIGTERM"], True), (["SIGTERM", "SIGINT"], False)])
async def test_a_second_signal_ends_the_program_without_waiting_for_its_servers(
    tmp_path: Path, signals: list[str], is_graceful: bool
) -> None:
    async with serving(tmp_path, {"odd": odd("ignore_term")}) as program:
        pids = await pids_of(program, "odd")
        for name in signals:
            os.kill(program.process.pid, signal.Signals[name])
        assert await program.ends() == 0
        assert ("stopped serving" in await program.stderr()) is is_graceful
        async with asyncio.timeout(BOUND_S):
            while any(map(is_running, pids)):  # noqa: ASYNC110 - nobody tells when a killed process is gone
                await asyncio.sleep(0.01)


async def test_a_server_that_is_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("grandchild")}) as program:
        pids = await pids_of(program, "odd")
        await program.call("odd", "fault", {"kind": "exit"})
        assert await pids_of(program, "odd") != pids
        assert not [pid for pid in pids if is_running(pid)]
