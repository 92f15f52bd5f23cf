"""The end of child processes, and which of them the end of everything concerns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.process.child import Process, start, terminate_all
from tests.fakes import BOUND_S

# Echoes its input, and ignores SIGTERM.
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""

# Ends with its input, and leaves a process in a group of its own behind that says so when it is asked to end.
DAEMON = """
import os, signal, sys
if os.fork():
    sys.stdin.read()
else:
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"asked to end\\n"), os._exit(0)))
    os.write(1, b"ready\\n")
    while True:
        signal.pause()
"""


class Child:
    """A running process, and what it has written."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.exited = asyncio.Event()
        self._stdout = asyncio.StreamReader()

    async def open(self) -> None:
        await self.process.open_pipes(
            self._stdout.feed_data,
            lambda data: None,
            on_stdin_end=lambda: None,
            on_stdout_end=self._stdout.feed_eof,
            on_exit=self.exited.set,
        )

    async def read_line(self) -> str:
        async with asyncio.timeout(BOUND_S):
            return (await self._stdout.readline()).decode().strip()

    async def read_rest(self) -> str:
        async with asyncio.timeout(BOUND_S):
            return (await self._stdout.read()).decode().strip()


@contextlib.asynccontextmanager
async def run(script: str) -> AsyncIterator[Child]:
    """Start a Python script, wait until it is ready, and leave nothing of it behind."""
    program = Program(command=sys.executable, args=("-c", script), env=dict(os.environ), cwd=None)
    child = Child(await start(program))
    await child.open()
    try:
        assert await child.read_line() == "ready"
        yield child
    finally:
        await child.process.stdin.close()
        child.process.signal_group(signal.SIGKILL)
        await child.process.wait_for_end(BOUND_S)
        child.process.close_pipes()


async def test_ending_all_children_does_not_end_those_that_start_later() -> None:
    async with run(STUBBORN) as before:
        terminate_all(0.1)
        async with run(STUBBORN) as after:
            async with asyncio.timeout(BOUND_S):
                await before.exited.wait()

            assert before.process.returncode == -signal.SIGKILL
            after.process.stdin.write(b"still here\n")
            assert await after.read_line() == "still here"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows who has left a process group")
async def test_strays_of_a_child_get_sigterm_even_after_an_earlier_child_was_killed() -> None:
    async with run(STUBBORN) as before:
        terminate_all(0.1)
        assert await before.process.wait_for_end(BOUND_S)

    async with run(DAEMON) as after:
        await after.process.stdin.close()
        assert await after.process.wait_for_end(BOUND_S)

        assert await after.read_rest() == "asked to end"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows who has left a process group")
async def test_strays_of_a_killed_child_are_killed() -> None:
    async with run(DAEMON) as child:
        terminate_all(0.0)
        assert await child.process.wait_for_end(BOUND_S)

        assert await child.read_rest() == ""
