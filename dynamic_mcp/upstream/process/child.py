"""A child process in a process group of its own, with pipes that nobody else inherits, and its end as an event.

A child that has ended is reaped only when its group is being ended, so that until then its number means its group.

The loops' own subprocesses are not used: uvloop's leave a second copy of each pipe open in the child, so that
a server which closes its stdout seems to live on, and pass other descriptors down as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from msgspec import Struct

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.pipes import Sink, Source, open_sink, open_source
from dynamic_mcp.upstream.process import strays
from dynamic_mcp.upstream.process.group import ProcessGroup
from dynamic_mcp.upstream.process.guardian import guardian
from dynamic_mcp.upstream.process.strays import Strays

# How often a process group is looked at that raises no event when it ends.
_POLL_S = 0.02
SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)

_live: set[Process] = set()
# Set when every child is being killed: what one of them has left behind then gets no grace either.
_no_grace = False


def terminate_all(within_s: float) -> None:
    """Have every child end within so many seconds: SIGTERM after half of them and SIGKILL after all.

    Whoever waits for the end of a child then waits no longer than that, whatever patience it began with.
    """
    loop = asyncio.get_running_loop()
    loop.call_later(within_s / 2, _signal_all, signal.SIGTERM)
    loop.call_later(within_s, _signal_all, SIGKILL)


def kill_all() -> None:
    """End every child and all that it started now, without a grace; for an exit that cannot wait."""
    _signal_all(SIGKILL)
    strays.kill_all()


def _signal_all(number: signal.Signals) -> None:
    global _no_grace
    _no_grace |= number is SIGKILL
    for process in list(_live):
        process.signal_group(number)


class _Launched(Struct, frozen=True):
    """A child that was started: our ends of its pipes, and its pidfd where there is such a thing."""

    child: subprocess.Popen[bytes]
    strays: Strays
    stdin: int
    stdout: int
    stderr: int
    handle: int | None

    def discard(self) -> None:
        """End a child that nobody will use."""
        descriptors = {self.stdin, self.stdout, self.stderr, self.handle} - {None}
        for fd in descriptors:
            assert fd is not None
            os.close(fd)
        _kill(self.child)
        threading.Thread(target=_bury, args=(self.child,), daemon=True).start()


class Process:
    """A running child. `exited` is set when it has ended."""

    def __init__(self, launched: _Launched) -> None:
        self.pid = launched.child.pid
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        """The exit code, or minus the signal that ended it; None while it runs."""
        self.stdin: Sink
        self._launched = launched
        self._loop = asyncio.get_running_loop()
        self._sources: list[Source] = []
        self._group = ProcessGroup(self.pid)
        self._strays = launched.strays
        self._is_gone = False
        _live.add(self)

    async def open_pipes(
        self,
        receive_stdout: Callable[[bytes], None],
        receive_stderr: Callable[[bytes], None],
        *,
        stdin_ended: Callable[[], None],
        stdout_ended: Callable[[], None],
        exited: Callable[[], None],
    ) -> None:
        """Begin to read what the child writes, and to wait for its end; `stdin_ended` tells that it reads no more."""
        ours = self._launched
        self._watch(exited)
        self.stdin = await open_sink(
            ours.stdin, high=1 << 20, on_full=_nothing, on_drain=_nothing, on_end=stdin_ended
        )
        self._sources.append(await open_source(ours.stderr, receive_stderr, _nothing))
        self._sources.append(await open_source(ours.stdout, receive_stdout, stdout_ended))

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child, all that it started and left in its group, and what was found to have left the group."""
        if self._is_gone:
            return
        self._strays.signal(number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._launched.child.terminate()
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
        """Wait until the child and all that it started have ended, as far as the system tells; reap the child."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                self._launched.child.wait()  # it has ended: this only reaps it
                while self._group.lives():  # noqa: ASYNC110 - a process group's end raises no event
                    await asyncio.sleep(_POLL_S)
                await self._strays_end()
                self._is_gone = True
        if self in _live and self._is_gone:
            _live.discard(self)
            await asyncio.to_thread(guardian.release, self.pid)
        return self._is_gone

    async def _strays_end(self) -> None:
        """Ask those that left the group to end, and wait; nobody else will tell them that the server has."""
        if not self._strays.live():
            if not await asyncio.to_thread(self._strays.look):
                return
            self._strays.signal(SIGKILL if _no_grace else signal.SIGTERM)
        while self._strays.live():  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL_S)
        self._strays.forget()

    def close_pipes(self) -> None:
        """Let go of the child's output, which a process that left its group may hold open for ever."""
        for source in self._sources:
            source.close()

    def _watch(self, exited: Callable[[], None]) -> None:
        handle, child = self._launched.handle, self._launched.child

        def ended() -> None:
            self.returncode = _exit_code(child)
            self.exited.set()
            exited()

        if handle is None:
            threading.Thread(target=self._wait_in_thread, args=(ended,), daemon=True).start()
            return

        def readable() -> None:
            self._loop.remove_reader(handle)
            os.close(handle)
            ended()

        self._loop.add_reader(handle, readable)

    def _wait_in_thread(self, ended: Callable[[], None]) -> None:
        _exit_code(self._launched.child)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(ended)


async def start(program: Program) -> Process:
    """Start a program, without a shell. Raises OSError and ValueError as the system does."""
    # in a thread: to start a program takes the system some milliseconds
    starting = asyncio.ensure_future(asyncio.to_thread(_launch, program))
    try:
        return Process(await asyncio.shield(starting))
    except asyncio.CancelledError:
        starting.add_done_callback(_discard_unwanted)
        raise


def _launch(program: Program) -> _Launched:
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        child_in, stdin = _pipe(theirs, ours)
        stdout, child_out = _pipe(ours, theirs)
        stderr, child_err = _pipe(ours, theirs)
        left_behind = Strays()
        with guardian.starting(child_in) as guard:
            child = _popen(program, left_behind, child_in, child_out, child_err)
            guard(child.pid)
        try:
            handle = _handle(child.pid)
        except OSError:
            _kill(child)
            _bury(child)
            raise
        ours.pop_all()
        return _Launched(child, left_behind, stdin, stdout, stderr, handle)


def _popen(program: Program, left_behind: Strays, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program.command, *program.args],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=left_behind.marked(program.env),
        cwd=program.cwd,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    reads.callback(os.close, reader)
    writes.callback(os.close, writer)
    return reader, writer


def _handle(pid: int) -> int | None:
    """Open what becomes readable at the child's end; None where the system has no such thing."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox
            return None
        raise


def _discard_unwanted(started: asyncio.Future[_Launched]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().discard()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that was not reaped yet, and its group."""
    if sys.platform == "win32":
        child.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, SIGKILL)


def _bury(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    guardian.release(child.pid)


def _exit_code(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child's end and return how it was; the child is left to be reaped where that can be had."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            info = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            if info is not None:
                return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
    return child.wait()


def _nothing() -> None:
    pass
