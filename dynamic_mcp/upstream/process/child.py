"""A child process with pipes that no other child inherits, and its end as an event. It ends with all that it started.

How a program starts and how all of it is ended is the system's: in a process group (`group.py`), or on Windows, in a
job (`job.py`).

The event loops' own subprocesses are not used: uvloop leaves a second copy of each pipe open in the child, so that a
server which closes its stdout seems to live on, and it passes other descriptors down as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system.pipes import PausableStream, Sink, open_sink, open_source
from dynamic_mcp.system.programs import INSTALL_IT, advise_missing

if sys.platform == "win32":
    from dynamic_mcp.upstream.process.job import JobProcess as Leader
    from dynamic_mcp.upstream.process.job import kill_strays, launch, watch_process
else:
    from dynamic_mcp.upstream.process.group import GroupLeader as Leader
    from dynamic_mcp.upstream.process.group import kill_strays, launch, watch_process

__all__ = ["Process", "explain_failure", "kill_all", "start", "suggest_remedy", "terminate_all", "watch_process"]

SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)

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
    kill_strays()
    _kill_all(next(_order))
    kill_strays()  # processes that were started in between


def _terminate(before: int) -> None:
    for process in _children(before):
        process.signal_group(signal.SIGTERM)


def _kill_all(before: int) -> None:
    for process in _children(before):
        process.kill_group()


def _children(before: int) -> list[Process]:
    return [process for process in _live if process.number < before]


class Process:
    """A running child, started as number `number`. `exited` is set once it has exited."""

    def __init__(self, leader: Leader, number: int) -> None:
        self.number = number
        self.pid = leader.pid
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        """The exit code, or minus the signal that ended it; None while it runs."""
        self.stdin: Sink
        self._leader = leader
        self._sources: list[PausableStream] = []
        self._stdout: PausableStream | None = None  # until it is open
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

        def take_exit(code: int) -> None:
            self.returncode = code
            self.exited.set()
            on_exit()

        leader = self._leader
        leader.watch(take_exit)
        if leader.stdin is not None:
            self.stdin = await open_sink(
                leader.stdin, high=1 << 20, on_full=_do_nothing, on_drain=_do_nothing, on_end=on_stdin_end
            )
        self._sources.append(await open_source(leader.stderr, receive_stderr, on_stderr_end))
        self._stdout = await open_source(leader.stdout, receive_stdout, on_stdout_end)
        self._sources.append(self._stdout)

    def pause_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.pause_reading()

    def resume_stdout(self) -> None:
        if self._stdout is not None:
            self._stdout.resume_reading()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child, its process group, and the strays that have been found. Windows ends them all."""
        if not self._has_ended:
            self._leader.send_signal(number)

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
        await asyncio.to_thread(self._leader.find_strays)
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
        """Wait until the child and everything it started have ended, and reap it; return whether all have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.exited.wait()
                await self._leader.wait_for_all(lambda: signal.SIGTERM if self._has_grace else SIGKILL)
                self._has_ended = True
        if self in _live and self._has_ended:
            _live.discard(self)
            await asyncio.to_thread(self._leader.release)
        return self._has_ended

    def close_pipes(self) -> None:
        """Close our ends of the child's output; a process that left the group may keep the other ends open."""
        for source in self._sources:
            source.close()


async def start(program: Program, *, stdin: int | None = None) -> Process:
    """Start a program, without a shell. Raises OSError and ValueError as the system does.

    `stdin` is a file or a device that the program reads, and that this closes; None creates a pipe that we write to.
    """
    number = next(_order)
    # in a thread, because starting a program takes the system some milliseconds
    launching = asyncio.ensure_future(asyncio.to_thread(launch, program, stdin))
    try:
        return Process(await asyncio.shield(launching), number)
    except asyncio.CancelledError:
        launching.add_done_callback(_discard)
        raise


def _discard(launching: asyncio.Future[Leader]) -> None:
    if not launching.cancelled() and launching.exception() is None:
        launching.result().discard()


def _do_nothing() -> None:
    pass


def explain_failure(program: Program, exc: Exception) -> str:
    """Return the reason for which a program could not be started."""
    if program.cwd and isinstance(exc, FileNotFoundError | NotADirectoryError) and not Path(program.cwd).is_dir():
        return f"the directory `{program.cwd}` does not exist"
    command = f"the command `{program.command}`"
    match exc:
        case CannotConfine():
            return f"{command} cannot be confined: {exc}"
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


def suggest_remedy(program: Program, exc: Exception) -> str:
    """Return a hint for the user; empty if there is none."""
    match exc:
        case CannotConfine(hint=hint):
            return hint
        case FileNotFoundError():
            installed = f"{INSTALL_IT}; the `PATH` of the AI tool may not be that of your shell"
            return advise_missing(program.command, program.env, installed)
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return "let programs have more open files (`ulimit -n`), or enable fewer servers"
        case OSError(errno=errno.EAGAIN):
            return "let programs start more processes (`ulimit -u`), or enable fewer servers"
        case _:
            return ""
