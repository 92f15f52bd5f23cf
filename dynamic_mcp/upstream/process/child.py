"""A child process in a new process group, with pipes that no other child inherits, and its end as an event.

A child that has exited is reaped only once its group is being ended; until then, its pid still identifies the group.

The event loops' own subprocesses are not used: uvloop leaves a second copy of each pipe open in the child, so that a
server which closes its stdout seems to live on, and it passes other descriptors down as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.pipes import PausableStream, Sink, enlarge, open_sink, open_source
from dynamic_mcp.system.prctl import forbid_inspection
from dynamic_mcp.upstream.process import strays
from dynamic_mcp.upstream.process.guardian import guardian
from dynamic_mcp.upstream.process.strays import Strays, adopt_orphans, has_table, list_pids, read_stat

# Interval of checks for the end of a process group, which raises no event.
_POLL_S = 0.02
SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)
# Set to let debuggers and profilers of the same user attach, which would also let servers read our environment.
_TRACEABLE = "DYNAMIC_MCP_TRACEABLE"

_live: set[Process] = set()
# Numbers every start of a child, and every call of `terminate_all`, in the order in which they happen.
_order = itertools.count()


def terminate_all(within_s: float) -> None:
    """End every child that has been started so far: SIGTERM after half of `within_s`, SIGKILL after all of it.

    A caller that already waits for one of these children waits no longer than that. Children that start after this
    call are not affected.
    """
    loop = asyncio.get_running_loop()
    before = next(_order)
    loop.call_later(within_s / 2, _terminate, before)
    loop.call_later(within_s, _kill_all, before)


def kill_all() -> None:
    """Kill every child and all that it started, at once; for an exit that cannot wait."""
    strays.kill_all()
    _kill_all(next(_order))
    strays.kill_all()  # processes that were started in between


def _terminate(before: int) -> None:
    for process in _children(before):
        process.signal_group(signal.SIGTERM)


def _kill_all(before: int) -> None:
    for process in _children(before):
        process.kill_group()


def _children(before: int) -> list[Process]:
    return [process for process in _live if process.number < before]


class _Launch(Struct):
    """A child that has been started: our ends of its pipes, and its pidfd where the system has one."""

    child: subprocess.Popen[bytes]
    strays: Strays
    stdin: int | None
    stdout: int
    stderr: int
    pidfd: int | None = None

    def discard(self) -> None:
        """Kill a child that is no longer needed."""
        descriptors = {self.stdin, self.stdout, self.stderr, self.pidfd} - {None}
        for fd in descriptors:
            assert fd is not None
            os.close(fd)
        threading.Thread(target=self.kill, daemon=True).start()

    def kill(self) -> None:
        """Kill the child and all that it started, and wait for that."""
        self.strays.find()
        _kill(self.child)
        self.strays.signal(SIGKILL)
        self.child.wait()
        self.strays.record_exit()
        if self.strays.find():
            self.strays.signal(SIGKILL)
        self.strays.close()
        guardian.release(self.child.pid)


class Process:
    """A running child, started as number `number`. `exited` is set once it has exited."""

    def __init__(self, launch: _Launch, number: int) -> None:
        self.number = number
        self.pid = launch.child.pid
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        """The exit code, or minus the signal that ended it; None while it runs."""
        self.stdin: Sink
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self._sources: list[PausableStream] = []
        self._stdout: PausableStream | None = None  # until it is open
        self._group = _ProcessGroup(self.pid)
        self._strays = launch.strays
        self._has_grace = True
        self._has_ended = False
        _live.add(self)

    async def open_pipes(
        self,
        receive_stdout: Callable[[bytes], None],
        receive_stderr: Callable[[bytes], None],
        *,
        on_stdin_end: Callable[[], None],
        on_stdout_end: Callable[[], None],
        on_exit: Callable[[], None],
        on_stderr_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Start to read the child's output and to watch for its exit.

        `on_stdin_end` is called when it has stopped reading. A child that was started with a file as its stdin has no
        `stdin` here.
        """
        launch = self._launch
        self._watch(on_exit)
        if launch.stdin is not None:
            self.stdin = await open_sink(
                launch.stdin, high=1 << 20, on_full=_do_nothing, on_drain=_do_nothing, on_end=on_stdin_end
            )
        self._sources.append(await open_source(launch.stderr, receive_stderr, on_stderr_end))
        self._stdout = await open_source(launch.stdout, receive_stdout, on_stdout_end)
        self._sources.append(self._stdout)

    def pause_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.pause_reading()

    def resume_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.resume_reading()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child, its process group, and the strays that have been found."""
        if self._has_ended:
            return
        self._strays.signal(number)
        if self._group.has_ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._launch.child.terminate()
            else:
                os.killpg(self.pid, number)

    def kill_group(self) -> None:
        """Kill the child, its group, and from now on each stray when it is found."""
        self._has_grace = False
        self.signal_group(SIGKILL)

    async def end(self, *, grace_s: float, kill_within_s: float) -> bool:
        """End the child and everything that it started; return whether all of it has ended.

        Processes get SIGTERM, and are killed after `grace_s`. Strays are found before their server is killed, because
        its end hides their origin.
        """
        self.signal_group(signal.SIGTERM)
        if await self.wait_for_end(grace_s):
            return True
        self._has_grace = False
        await asyncio.to_thread(self._strays.find)
        self.signal_group(SIGKILL)
        return await self.wait_for_end(kill_within_s)

    async def wait_for_exit(self, within_s: float) -> bool:
        """Wait until the child itself has exited; return whether it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.exited.wait()
                return True
        return False

    async def wait_for_end(self, within_s: float) -> bool:
        """Wait until the child and everything it started have ended, and reap it; return whether all have.

        Strays are signalled as soon as the group has ended: they do not notice the end of the server by themselves.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.exited.wait()
                self._launch.child.wait()  # it has exited: this only reaps it
                self._strays.record_exit()
                while self._group.poll():  # noqa: ASYNC110 - a process group's end raises no event
                    await asyncio.sleep(_POLL_S)
                await self._end_strays()
                self._has_ended = True
        if self in _live and self._has_ended:
            _live.discard(self)
            self._strays.close()
            await asyncio.to_thread(guardian.release, self.pid)
        return self._has_ended

    async def _end_strays(self) -> None:
        while self._strays.is_any_alive() or await asyncio.to_thread(self._strays.find):
            self._strays.signal(signal.SIGTERM if self._has_grace else SIGKILL)
            while self._strays.is_any_alive():  # noqa: ASYNC110 - as above
                await asyncio.sleep(_POLL_S)

    def close_pipes(self) -> None:
        """Close our ends of the child's output; a process that left the group may keep the other ends open."""
        for source in self._sources:
            source.close()

    def _watch(self, on_exit: Callable[[], None]) -> None:
        pidfd, child = self._launch.pidfd, self._launch.child

        def take_exit() -> None:
            self.returncode = _exit_code(child)
            self.exited.set()
            on_exit()

        if pidfd is None:
            threading.Thread(target=self._wait_in_thread, args=(take_exit,), daemon=True).start()
            return

        def take_pidfd() -> None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            take_exit()

        self._loop.add_reader(pidfd, take_pidfd)

    def _wait_in_thread(self, take_exit: Callable[[], None]) -> None:
        _exit_code(self._launch.child)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program is ending
            self._loop.call_soon_threadsafe(take_exit)


async def start(program: Program, *, stdin: int | None = None) -> Process:
    """Start a program, without a shell. Raises OSError and ValueError as the system does.

    `stdin` is a file or a device that the program reads, and that this closes; None creates a pipe that we write to.
    """
    number = next(_order)
    # in a thread, because starting a program takes the system some milliseconds
    launch = asyncio.ensure_future(asyncio.to_thread(_launch, program, stdin))
    try:
        return Process(await asyncio.shield(launch), number)
    except asyncio.CancelledError:
        launch.add_done_callback(_discard)
        raise


def _launch(program: Program, file: int | None) -> _Launch:
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
            strays.server = child.pid
            guard(child.pid)
        launch = _Launch(child, strays, stdin, stdout, stderr)
        try:
            launch.pidfd = _open_pidfd(child.pid)
        except OSError:
            launch.kill()
            raise
        ours.pop_all()
        return launch


@functools.cache
def _protect() -> None:
    if not os.environ.get(_TRACEABLE):
        forbid_inspection()


def _popen(program: Program, strays: Strays, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program.command, *program.args],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=strays.mark(program.env),
        cwd=program.cwd,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    reads.callback(os.close, reader)
    writes.callback(os.close, writer)
    return reader, writer


def _open_pidfd(pid: int) -> int | None:
    """Open a descriptor that becomes readable when the child exits; None where the system has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox
            return None
        raise


def _discard(launch: asyncio.Future[_Launch]) -> None:
    if not launch.cancelled() and launch.exception() is None:
        launch.result().discard()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that has not been reaped yet, and its group."""
    if sys.platform == "win32":
        child.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, SIGKILL)


def _exit_code(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child to exit and return its exit code; where the system allows it, the child is not reaped."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            info = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            if info is not None:
                return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
    return child.wait()


def _do_nothing() -> None:
    pass


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
        if sys.platform == "win32":
            return False
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


def explain_failure(program: Program, exc: Exception) -> str:
    """Return the reason for which a program could not be started."""
    if program.cwd and isinstance(exc, FileNotFoundError | NotADirectoryError) and not Path(program.cwd).is_dir():
        return f"the directory `{program.cwd}` does not exist"
    command = f"the command `{program.command}`"
    match exc:
        case FileNotFoundError():
            return f"{command} was not found"
        case PermissionError() if Path(program.cwd or "", program.command).is_dir():
            return f"{command} is a directory"
        case PermissionError():
            return f"{command} is not executable"
        case OSError(errno=errno.E2BIG):
            name = max(program.env, key=lambda each: len(program.env[each]), default="")
            return f"{command} cannot be started: its arguments and environment are too long, above all `{name}`"
        case OSError(errno=errno.EAGAIN):
            return f"{command} cannot be started: the system allows no more processes"
        case OSError(strerror=str(why)):
            return f"{command} cannot be started: {why.lower()}"
        case _:
            return f"{command} cannot be started: {exc}"


def suggest_remedy(exc: Exception) -> str:
    """Return a hint for the user; empty if there is none."""
    match exc:
        case FileNotFoundError():
            return "install it, or give its full path; the `PATH` of the AI tool may not be that of your shell"
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "let programs have more open files (`ulimit -n`), or enable fewer servers"
        case OSError(errno=errno.EAGAIN):
            return "let programs start more processes (`ulimit -u`), or enable fewer servers"
        case _:
            return ""
