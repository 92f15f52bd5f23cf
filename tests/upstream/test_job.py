"""On Windows, a server ends with all that it has started, and also if the proxy is killed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

if os.name != "nt":
    pytest.skip("only Windows has job objects", allow_module_level=True)
assert sys.platform == "win32"  # mypy passes over the rest elsewhere

from dynamic_mcp.config.resolved import Program  # noqa: E402
from dynamic_mcp.upstream.process.child import Process, explain_failure, kill_all, start, terminate_all  # noqa: E402
from tests.program import BOUND_S  # noqa: E402

# Tells the pids of a child and of a detached grandchild with a process group of its own, and does not end with its
# input.
FAMILY = """
import os, subprocess, sys, time
CHILD = '''
import subprocess, sys, time
flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], creationflags=flags)
print(grandchild.pid, flush=True)
time.sleep(600)
'''
child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
print(os.getpid(), child.pid, int(child.stdout.readline()), flush=True)
sys.stdin.read()
if sys.argv[1:] == ["leave"]:
    os._exit(3)
time.sleep(600)
"""
# Starts the family as a proxy does, passes on what it tells, and hangs.
PROXY = """
import asyncio, os, sys
from dynamic_mcp.config.resolved import Program  # noqa: E402
from dynamic_mcp.upstream.process.child import start

async def main():
    process = await start(Program(sys.executable, ("-c", sys.argv[1]), dict(os.environ), None))
    nothing = lambda *_: None
    await process.open_pipes(lambda data: os.write(1, data), nothing,
        on_stdin_end=nothing, on_stdout_end=nothing, on_exit=nothing)
    await asyncio.sleep(600)

asyncio.run(main())
"""
_SYNCHRONIZE = 0x100000


class Running:
    """A running process that has been started, and what it writes."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.stdout = asyncio.StreamReader()
        self.stdin_ended = asyncio.Event()

    async def read_line(self) -> str:
        async with asyncio.timeout(BOUND_S):
            return (await self.stdout.readline()).decode().strip()


@contextlib.asynccontextmanager
async def run(script: str, *args: str) -> AsyncIterator[Running]:
    running = Running(await start(Program(sys.executable, ("-c", script, *args), dict(os.environ), None)))
    await running.process.open_pipes(
        running.stdout.feed_data,
        lambda data: None,
        on_stdin_end=running.stdin_ended.set,
        on_stdout_end=running.stdout.feed_eof,
        on_exit=lambda: None,
    )
    try:
        yield running
    finally:
        await running.process.stdin.close()
        await running.process.end(grace_s=BOUND_S, kill_within_s=BOUND_S)
        running.process.close_pipes()


def has_ended(pid: int, *, within_s: float = 0) -> bool:
    """Wait for the end of a process; return whether it has ended."""
    kernel32 = ctypes.windll.kernel32
    handle = kernel32.OpenProcess(_SYNCHRONIZE, 0, pid)
    if not handle:
        return True
    result: int = kernel32.WaitForSingleObject(handle, int(within_s * 1000))
    kernel32.CloseHandle(handle)
    return result == 0


async def test_nothing_is_left_of_a_server_that_ignores_the_end_of_its_input() -> None:
    async with run(FAMILY) as server, run(FAMILY) as other:
        pids = [int(word) for word in (await server.read_line()).split()]
        others = [int(word) for word in (await other.read_line()).split()]
        await server.process.stdin.close()
        assert not any(map(has_ended, pids))

        assert await server.process.end(grace_s=BOUND_S, kill_within_s=BOUND_S)

        assert all(map(has_ended, pids))
        assert server.process.returncode == 1
        assert not any(map(has_ended, others))


async def test_what_a_server_leaves_behind_ends_after_it() -> None:
    async with run(FAMILY, "leave") as server:
        pids = [int(word) for word in (await server.read_line()).split()]
        await server.process.stdin.close()
        assert await server.process.wait_for_exit(BOUND_S)
        assert [has_ended(pid) for pid in pids] == [True, False, False]

        assert await server.process.end(grace_s=BOUND_S, kill_within_s=BOUND_S)

        assert all(map(has_ended, pids))
        assert server.process.returncode == 3


async def test_ending_all_ends_each_family_that_runs_and_none_that_starts_later() -> None:
    async with run(FAMILY) as before:
        pids = [int(word) for word in (await before.read_line()).split()]
        terminate_all(0.1)
        async with run(FAMILY) as after:
            assert await before.process.wait_for_end(BOUND_S)
            assert all(map(has_ended, pids))
            later = [int(word) for word in (await after.read_line()).split()]
            assert not any(map(has_ended, later))
            kill_all()
            assert await after.process.wait_for_end(BOUND_S)
            assert all(map(has_ended, later))


def test_nothing_is_left_of_a_server_whose_proxy_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROXY, FAMILY], stdout=subprocess.PIPE) as proxy:
        assert proxy.stdout is not None
        pids = [int(word) for word in proxy.stdout.readline().split()]
        assert len(pids) == 3
        assert not any(map(has_ended, pids))

        proxy.kill()  # TerminateProcess

        assert all(has_ended(pid, within_s=BOUND_S) for pid in pids)


async def test_a_server_inherits_its_three_pipes_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    async with run("import sys; print('ready', flush=True); sys.stdin.read()") as server:
        assert await server.read_line() == "ready"
        os.close(writer)
        assert await asyncio.to_thread(os.read, reader, 1) == b""
    os.close(reader)


@pytest.mark.not_in_wine("its conhost.exe, which has the console of the server, keeps what that inherits")
async def test_a_server_that_closes_its_input_is_noticed() -> None:
    async with run("import os, time; os.close(0); time.sleep(600)") as server, asyncio.timeout(BOUND_S):
        await server.stdin_ended.wait()
        assert not server.process.exited.is_set()


async def test_bytes_pass_unchanged_and_a_stopped_reader_loses_none() -> None:
    data = bytes(range(256)) * 4096  # 1 MiB with each kind of line end
    async with run("import os\nwhile data := os.read(0, 65536): os.write(1, data)") as server:
        server.process.pause_stdout()
        server.process.stdin.write(data)
        server.process.resume_stdout()
        async with asyncio.timeout(BOUND_S):
            assert await server.stdout.readexactly(len(data)) == data


@pytest.mark.parametrize(
    ("command", "why"),
    [("no-such-program", "was not found"), (__file__, "it is not a program that windows can start")],
)
async def test_what_cannot_be_started_says_why(command: str, why: str) -> None:
    program = Program(command, (), dict(os.environ), None)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - of any kind
        await start(program)
    assert why in explain_failure(program, caught.value)


async def test_the_directory_must_exist() -> None:
    program = Program(sys.executable, (), dict(os.environ), r"C:\no\such\directory")
    with pytest.raises(NotADirectoryError) as caught:
        await start(program)
    assert "does not exist" in explain_failure(program, caught.value)
