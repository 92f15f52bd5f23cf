"""The end of child processes, and which of them the end of everything concerns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.config.workspace import SERVER_MARK
from dynamic_mcp.upstream.process.child import Process, start, terminate_all
from tests.program import BOUND_S

if sys.platform == "win32":
    pytest.skip("process groups and signals; test_job.py is about Windows", allow_module_level=True)

from dynamic_mcp.upstream.process import group
from dynamic_mcp.upstream.process.strays import (
    Strays,
    adopt_orphans,
    no_server_mark,
    now_in_ticks,
    read_stat,
)

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

# Ignores SIGTERM, and tells the pid of what it starts in a session of its own. With an argument, that has another
# environment; with a second one, its parent has ended.
STUBBORN_FAMILY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.setsid()
    if len(sys.argv) == 3 and os.fork():
        os._exit(0)
    os.write(writer, b"%d" % os.getpid())
    environment = {} if sys.argv[1:] else dict(os.environ)
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], environment)
os.close(writer)
pid = b"".join(iter(lambda: os.read(reader, 100), b"")).decode()  # to the end, when it has become another program
if len(sys.argv) == 3:
    os.waitpid(child, 0)
print("ready", flush=True)
print(pid, flush=True)
while True:
    signal.pause()
"""
# Tells the pid of what it starts in its own group.
FAMILY = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
print(child.pid, flush=True)
signal.pause()
"""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who has left a process group")


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
async def run(script: str, *args: str) -> AsyncIterator[Child]:
    """Start a Python script, wait until it is ready, and leave nothing of it behind."""
    program = Program(command=sys.executable, args=("-c", script, *args), env=dict(os.environ), cwd=None)
    child = Child(await start(program))
    await child.open()
    try:
        assert await child.read_line() == "ready"
        yield child
    finally:
        await child.process.stdin.close()
        await child.process.end(grace_s=0, kill_within_s=BOUND_S)
        child.process.close_pipes()


def start_in_background() -> str:
    """Start a process in a session of its own, whose parent ends, as what opens a browser does; return its pid."""
    command = ("/bin/sh", "-c", "sleep 600 >/dev/null & echo $!")
    return subprocess.run(command, start_new_session=True, stdout=subprocess.PIPE, check=True, text=True).stdout


def has_ended(pid: int) -> bool:
    """Whether a process is gone, and reaped."""
    return not Path(f"/proc/{pid}").exists()


async def test_ending_all_children_does_not_end_those_that_start_later() -> None:
    async with run(STUBBORN) as before:
        terminate_all(0.1)
        async with run(STUBBORN) as after:
            async with asyncio.timeout(BOUND_S):
                await before.exited.wait()

            assert before.process.returncode == -signal.SIGKILL
            after.process.stdin.write(b"still here\n")
            assert await after.read_line() == "still here"


async def test_a_server_ends_with_its_group_where_processes_have_no_handles_and_no_table_as_on_macos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("pidfd_open", "waitid"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(group, "has_table", lambda: False)
    async with run(FAMILY) as child:
        started = int(await child.read_line())
        assert await child.process.end(grace_s=BOUND_S, kill_within_s=BOUND_S)
        assert child.process.returncode == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


@linux_only
async def test_strays_of_a_child_get_sigterm_even_after_an_earlier_child_was_killed() -> None:
    async with run(STUBBORN) as before:
        terminate_all(0.1)
        assert await before.process.wait_for_end(BOUND_S)

    async with run(DAEMON) as after:
        await after.process.stdin.close()
        assert await after.process.wait_for_end(BOUND_S)

        assert await after.read_rest() == "asked to end"


@linux_only
async def test_strays_of_a_killed_child_are_killed() -> None:
    async with run(DAEMON) as child:
        terminate_all(0.0)
        assert await child.process.wait_for_end(BOUND_S)

        assert await child.read_rest() == ""


@linux_only
@pytest.mark.parametrize("args", [(), ("unmarked",), ("unmarked", "orphan")])
async def test_nothing_is_left_of_a_server_that_must_be_killed(args: tuple[str, ...]) -> None:
    async with run(STUBBORN_FAMILY, *args) as child:
        stray = int(await child.read_line())

        assert await child.process.end(grace_s=0.1, kill_within_s=BOUND_S)

        assert has_ended(child.process.pid)
        assert has_ended(stray)


@linux_only
async def test_an_orphan_that_two_servers_can_have_started_ends_with_the_second() -> None:
    async with run(STUBBORN) as first, run(STUBBORN_FAMILY, "unmarked", "orphan") as second:
        stray = int(await second.read_line())

        assert await second.process.end(grace_s=0, kill_within_s=BOUND_S)
        assert not has_ended(stray)

        assert await first.process.end(grace_s=0, kill_within_s=BOUND_S)
        assert has_ended(stray)


@linux_only
async def test_an_orphan_that_is_older_than_all_other_servers_ends_with_its_own() -> None:
    async with run(STUBBORN_FAMILY, "unmarked", "orphan") as first:
        stray = int(await first.read_line())
        process = read_stat(stray)
        while process is not None and now_in_ticks() <= process.start:  # noqa: ASYNC110 - the next tick of a clock
            await asyncio.sleep(0)
        async with run(STUBBORN):
            assert await first.process.end(grace_s=0, kill_within_s=BOUND_S)

            assert has_ended(stray)


@linux_only
async def test_what_we_start_beside_the_servers_outlives_them() -> None:
    async with run(STUBBORN) as child:
        helper = int(await asyncio.to_thread(start_in_background))

        assert await child.process.end(grace_s=0, kill_within_s=BOUND_S)

        assert not has_ended(helper)
        os.kill(helper, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, helper, 0)  # it has become our child


@linux_only
def test_what_is_just_being_started_besides_a_server_is_no_stray_of_it() -> None:
    adopt_orphans()
    server = Strays()
    found: list[str] = []
    is_over = threading.Event()

    def search() -> None:
        while not is_over.is_set():
            if server.find():
                found.append("during the start of a program")

    searching = threading.Thread(target=search)
    searching.start()
    try:
        for _ in range(50):
            environment = {SERVER_MARK: no_server_mark()}
            with subprocess.Popen(["/bin/sleep", "600"], env=environment, start_new_session=True) as program:
                if server.find():
                    found.append("after its start")
                program.kill()
    finally:
        is_over.set()
        searching.join()
        server.close()

    assert found == []
