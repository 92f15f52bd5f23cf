"""A program in a process group of its own, on POSIX systems, with its strays and the guardian of both.

A process that has exited is reaped only once its group is being ended: until then, its pid still identifies it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from dynamic_mcp.config.confinement import ConfinedChild
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.pipes import enlarge
from dynamic_mcp.system.prctl import forbid_inspection

assert sys.platform != "win32"

from dynamic_mcp.upstream.process import strays  # noqa: E402
from dynamic_mcp.upstream.process.guardian import guardian  # noqa: E402
from dynamic_mcp.upstream.process.strays import (  # noqa: E402
    Strays,
    adopt_orphans,
    has_table,
    list_pids,
    read_stat,
)

# Interval of checks for the end of a process group, which raises no event.
_POLL_S = 0.02
# Set to let debuggers and profilers of the same user attach, which would also let servers read our environment.
_TRACEABLE = "DYNAMIC_MCP_TRACEABLE"

kill_strays = strays.kill_all
watch_process = guardian.watch_process


class GroupLeader:
    """A process that leads a group, with our ends of its pipes. `stdin` is None if it reads a file."""

    def __init__(self, child: ConfinedChild, strays: Strays, stdin: int | None, stdout: int, stderr: int) -> None:
        self.pid = child.process.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.pidfd: int | None = None
        """Becomes readable when the process exits; None where the system has no such descriptors."""
        self._child = child.process
        self._release = child.release
        self._strays = strays
        self._group = _ProcessGroup(self.pid)

    def watch(self, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit` with the exit code, or minus the signal that ended the process, in the running loop."""
        loop = asyncio.get_running_loop()
        pidfd = self.pidfd

        def wait() -> None:
            code = self._wait_for_exit()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program is ending
                loop.call_soon_threadsafe(on_exit, code)

        def take_pidfd(pidfd: int) -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            on_exit(self._wait_for_exit())

        if pidfd is None:
            threading.Thread(target=wait, daemon=True).start()
        else:
            loop.add_reader(pidfd, take_pidfd, pidfd)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process, its group, and the strays that have been found."""
        self._strays.signal(number)
        if not self._group.has_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def find_strays(self) -> None:
        """Find the strays while the processes run that show their origin."""
        self._strays.find()

    async def wait_for_all(self, stray_signal: Callable[[], signal.Signals]) -> None:
        """Wait until everything has ended that the process, which has exited, has started; reap it.

        Strays are signalled as soon as the group has ended: they do not notice the end of the server by themselves.
        """
        self._child.wait()  # it has exited: this only reaps it
        self._strays.record_exit()
        while self._group.poll():  # noqa: ASYNC110 - a process group's end raises no event
            await asyncio.sleep(_POLL_S)
        while self._strays.is_any_alive() or await asyncio.to_thread(self._strays.find):
            self._strays.signal(stray_signal())
            while self._strays.is_any_alive():  # noqa: ASYNC110 - as above
                await asyncio.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill the process, which has not been reaped, and all that it started; wait for that, and release it."""
        self._strays.find()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._strays.signal(signal.SIGKILL)
        self._child.wait()
        self._strays.record_exit()
        if self._strays.find():
            self._strays.signal(signal.SIGKILL)
        self.release()

    def release(self) -> None:
        """Release what was needed to end the process and all that it started, which have ended."""
        self._strays.close()
        guardian.release(self.pid)
        self._release()

    def discard(self) -> None:
        """Kill a process that is no longer needed, and that is not watched."""
        for fd in (self.stdin, self.stdout, self.stderr, self.pidfd):
            if fd is not None:
                os.close(fd)
        threading.Thread(target=self.kill, daemon=True).start()

    def _wait_for_exit(self) -> int:
        """Wait for the exit and return its code; where the system allows it, the process is not reaped."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                if info is not None:
                    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        return self._child.wait()


def launch(program: Program, file: int | None) -> GroupLeader:
    """Start a program. Raises OSError and ValueError.

    `file` is the descriptor of the file that is its stdin, and is closed; None creates a pipe.
    """
    adopt_orphans()
    _protect()
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        if file is None:
            child_in, stdin = _pipe(theirs, ours)
        else:
            child_in, stdin = file, None
            theirs.callback(os.close, file)
        stdout, child_out = _pipe(ours, theirs)
        enlarge(stdout)
        stderr, child_err = _pipe(ours, theirs)
        strays = Strays()
        with guardian.watch_start(child_in if file is None else None) as guard:
            try:
                child = _popen(program, strays, child_in, child_out, child_err)
            except BaseException:
                strays.close()
                raise
            strays.server = child.process.pid
            guard(child.process.pid)
        leader = GroupLeader(child, strays, stdin, stdout, stderr)
        try:
            leader.pidfd = _open_pidfd(leader.pid)
        except OSError:
            leader.kill()
            raise
        ours.pop_all()
        return leader


@functools.cache
def _protect() -> None:
    if not os.environ.get(_TRACEABLE):
        forbid_inspection()


def _popen(program: Program, strays: Strays, stdin: int, stdout: int, stderr: int) -> ConfinedChild:
    environment = strays.mark(program.env)
    if program.confinement is not None:
        return program.confinement.start(program, environment, stdin=stdin, stdout=stdout, stderr=stderr)
    child = subprocess.Popen(
        [program.command, *program.args],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        cwd=program.cwd,
        start_new_session=True,
    )
    return ConfinedChild(child, _do_nothing)


def _do_nothing() -> None:
    pass


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    reads.callback(os.close, reader)
    writes.callback(os.close, writer)
    return reader, writer


def _open_pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox
            return None
        raise


class _ProcessGroup:
    """A process group, from when its leader is reaped until all of it has ended.

    Zombies do not count as running: without an init that reaps orphans they stay.
    """

    def __init__(self, number: int) -> None:
        self.has_ended = False
        """True once the group must not be signalled any more: its number may be reused."""
        self._number = number
        self._members: list[int] = []
        self._was_empty = False

    def poll(self) -> bool:
        """Look for processes of the group, and reap those that are ours; return whether one still runs."""
        self.has_ended = self.has_ended or not self._is_running()
        return not self.has_ended

    def _is_running(self) -> bool:
        try:
            os.killpg(self._number, 0)
        except (ProcessLookupError, PermissionError):
            return False
        self._reap()
        if not has_table():
            return True
        self._members = self._filter_running(self._members) or self._filter_running(list_pids())
        if self._members:
            self._was_empty = False
            return True
        # a process that starts while the list is being read shows up the second time
        was_empty, self._was_empty = self._was_empty, True
        return not was_empty

    def _reap(self) -> None:
        """Reap the zombies that have become our children; only they still reserve the group's number."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self._number, os.WNOHANG) != (0, 0):
                pass

    def _filter_running(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if self._is_running_member(pid)]

    def _is_running_member(self, pid: int) -> bool:
        stat = read_stat(pid)
        return stat is not None and stat.group == self._number and not stat.has_ended
