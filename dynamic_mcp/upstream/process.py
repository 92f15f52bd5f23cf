"""A child process in a process group of its own, with pipes that nobody else inherits, and its end as an event.

The loops' own subprocesses are not used: uvloop's leave a second copy of each pipe open in the child, so that
a server which closes its stdout seems to live on, and pass other descriptors down as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.pipes import Sink, Source, open_sink, open_source

# How often a process group is looked at that raises no event when it ends.
_POLL_S = 0.02


class Process:
    """A running child. `exited` is set when it has ended and was reaped."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.pid = child.pid
        self.exited = asyncio.Event()
        self.stdin: Sink
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._sources: list[Source] = []

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self._child.returncode

    async def open_pipes(
        self,
        receive_stdout: Callable[[bytes], None],
        receive_stderr: Callable[[bytes], None],
        *,
        stdout_ended: Callable[[], None],
        exited: Callable[[], None],
    ) -> None:
        """Begin to read what the child writes, and to wait for its end."""
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._watch(exited)
        self.stdin = await open_sink(
            _detached(child.stdin), high=1 << 20, full=_nothing, drained=_nothing, ended=_nothing
        )
        self._sources.append(await open_source(_detached(child.stderr), receive_stderr, _nothing))
        self._sources.append(await open_source(_detached(child.stdout), receive_stdout, stdout_ended))

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child and all that it started and left in its group; the group may outlive it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._child.terminate()
            else:
                os.killpg(self.pid, number)

    async def exits_within(self, seconds: float) -> bool:
        """Wait until the child itself has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                return True
        return False

    async def ends_within(self, seconds: float) -> bool:
        """Wait until the child and, where there are process groups, all of its group have ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                while self._group_lives():  # noqa: ASYNC110 - a process group's end raises no event
                    await asyncio.sleep(_POLL_S)
                return True
        return False

    def close_pipes(self) -> None:
        """Let go of the child's output, which a process that left its group may hold open for ever."""
        for source in self._sources:
            source.close()

    def _group_lives(self) -> bool:
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _watch(self, exited: Callable[[], None]) -> None:
        def ended() -> None:
            self._child.wait()  # it has ended: this reaps it
            self.exited.set()
            exited()

        if hasattr(os, "pidfd_open"):
            handle = os.pidfd_open(self.pid)

            def readable() -> None:
                self._loop.remove_reader(handle)
                os.close(handle)
                ended()

            self._loop.add_reader(handle, readable)
        else:
            threading.Thread(target=self._wait_in_thread, args=(ended,), daemon=True).start()

    def _wait_in_thread(self, ended: Callable[[], None]) -> None:
        self._child.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(ended)


async def start(program: Program) -> Process:
    """Start a program, without a shell. Raises OSError and ValueError as the system does."""

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [program.command, *program.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(program.env),
            cwd=program.cwd,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )

    # in a thread: to start a program takes the system some milliseconds
    starting = asyncio.ensure_future(asyncio.to_thread(popen))
    try:
        return Process(await asyncio.shield(starting))
    except asyncio.CancelledError:
        starting.add_done_callback(_end_unwanted)
        raise


def _end_unwanted(started: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    if not started.cancelled() and started.exception() is None:
        child = started.result()
        child.kill()
        child.wait()


def _detached(file: IO[bytes]) -> int:
    """Take a descriptor of its own from a file object, which closes the one that it has."""
    fd = os.dup(file.fileno())
    file.close()
    return fd


def _nothing() -> None:
    pass
