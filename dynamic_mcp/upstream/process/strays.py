"""Processes of a server that have left its process group, as daemons do: found by a mark or by ancestry.

Every server starts with a mark in its environment, which its descendants inherit. A process that has removed the mark
belongs to the server of its parent. Once its parents have ended, it is a child of this process, and belongs to the
only server that can have started it. While there are several, it is left alone: it may belong to one that goes on.

Only Linux shows environments and ancestry; on other systems no strays are found.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.workspace import SERVER_MARK
from dynamic_mcp.system.prctl import become_subreaper

assert sys.platform != "win32"

# Interval and number of checks of a process before `exec`.
_STARTING_POLL_S = 0.001
_STARTING_POLLS = 1000
# Interval of the search for orphans.
_REAP_EVERY_S = 60.0
# Positions of `starttime` and `env_start` in `stat`, counted after the name of the program.
_STAT_START = 19
_STAT_ENVIRONMENT = 47

_numbers = itertools.count()
# The servers that run, by their marks.
_servers: dict[str, Strays] = {}
_adoption = threading.Lock()
_adopts_orphans: bool | None = None
_applications = 0


@cache
def mark_prefix() -> str:
    """Return the start of the mark of every server that this process starts; it is unique to this process.

    It is created on first use, so that forks of this process have different ones.
    """
    return secrets.token_hex(8)


def no_server_mark() -> str:
    """Return the mark of processes that are not servers: browsers, notices, the programs of plug-ins."""
    return f"none.{mark_prefix()}"


def adopt_orphans() -> None:
    """Become the parent of processes whose parents end, and reap them; call this before the first server starts.

    From then on, processes started here have the mark of no server unless they are started with another environment.
    """
    global _adopts_orphans
    with _adoption:
        if _adopts_orphans is None and not _applications:
            _adopts_orphans = become_subreaper()
            if _adopts_orphans:
                os.environ[SERVER_MARK] = no_server_mark()
                OrphanReaper(_is_server).start()


@contextlib.contextmanager
def leaving_orphans() -> Iterator[None]:
    """Adopt no orphans while the application of another author runs: its children would look like orphans."""
    global _applications
    _applications += 1
    try:
        yield
    finally:
        _applications -= 1


class Strays:
    """The strays of one server: `mark` the environment that the server starts in, then `find` them."""

    def __init__(self) -> None:
        self.server: int | None = None
        """The process that was started, until it is reaped."""
        self.has_exited = False
        self._mark = f"{mark_prefix()}.{next(_numbers)}"
        self._started_at = now_in_ticks()
        self._lock = threading.Lock()
        self._pidfds: list[int] = []
        _servers[self._mark] = self

    def mark(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment to start the server in."""
        return {**environment, SERVER_MARK: self._mark}

    def find(self) -> bool:
        """Find the strays that run now; return whether there are any."""
        pidfds = list(_open_pidfds(self._is_stray))
        self._replace(pidfds)
        return bool(pidfds)

    def record_exit(self) -> None:
        """Record that the server has exited and is reaped. Its strays may go on."""
        self.server, self.has_exited = None, True

    def is_any_alive(self) -> bool:
        with self._lock:
            return any(_is_running(pidfd) for pidfd in self._pidfds)

    def signal(self, number: signal.Signals) -> None:
        with self._lock:
            for pidfd in self._pidfds:
                _signal(pidfd, number)

    def close(self) -> None:
        """Release the server, which has ended with its strays."""
        _servers.pop(self._mark, None)
        self._replace([])

    def may_have_started(self, process: ProcessStat) -> bool:
        """Return whether the server is older than a process."""
        return self._started_at <= process.start

    def _is_stray(self, pid: int, process: ProcessStat, origins: _Origins) -> bool:
        # the environments of older processes, which are most, need not be read
        return pid != self.server and self.may_have_started(process) and self._is_only(origins.find(pid))

    def _is_only(self, origins: list[str]) -> bool:
        """Return whether the server is the only running one among the origins."""
        others = (_servers.get(mark) for mark in origins if mark != self._mark)
        return self._mark in origins and all(strays is None or strays.has_exited for strays in others)

    def _replace(self, pidfds: list[int]) -> None:
        with self._lock:
            before, self._pidfds = self._pidfds, pidfds
        for pidfd in before:
            with contextlib.suppress(ChildProcessError):  # it is not our child, as most are not
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
            os.close(pidfd)


def kill_all() -> None:
    """Kill every server and all that it may have started, at once."""
    for pidfd in _open_pidfds(lambda pid, _, origins: bool(origins.find(pid))):
        _signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def _is_server(pid: int) -> bool:
    return any(strays.server == pid for strays in [*_servers.values()])


def _open_pidfds(is_wanted: Callable[[int, ProcessStat, _Origins], bool]) -> Iterator[int]:
    """Yield a pidfd, which the caller closes, for each process that is wanted."""
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        return
    table = _read_table()
    origins = _Origins(table)
    for pid, process in table.items():
        if process.has_ended or not is_wanted(pid, process, origins):
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            if (now := read_stat(pid)) is not None and now.start == process.start:
                yield pidfd
            else:  # the pid belongs to another process by now
                os.close(pidfd)


class _Origins:
    """The servers that may have started a process, by their marks: one if that is certain, none if no server has."""

    def __init__(self, table: Mapping[int, ProcessStat]) -> None:
        self._table = table
        self._servers = dict(_servers)
        self._by_process = {strays.server: mark for mark, strays in self._servers.items()}
        self._us = os.getpid()
        self._our_session = os.getsid(0)
        self._paths: dict[int, list[str]] = {self._us: []}

    def find(self, pid: int) -> list[str]:
        path: list[int] = []
        while pid not in self._paths:
            self._paths[pid] = []  # the table is no snapshot: it may show two processes as each other's parents
            path.append(pid)
            shown = self._find(pid)
            if shown is None:
                pid = self._table[pid].parent
            else:
                self._paths[pid] = shown
        origins = self._paths[pid]
        self._paths.update(dict.fromkeys(path, origins))
        return origins

    def _find(self, pid: int) -> list[str] | None:
        """Return the origins that a process itself shows; None if it has the origins of its parent."""
        process, mark = self._table.get(pid), _read_mark(pid)
        if process is None or mark == no_server_mark():
            return []
        if mark is not None and mark.startswith(mark_prefix()):
            return [mark]
        if pid in self._by_process:
            return [self._by_process[pid]]
        if process.parent != self._us:
            return None
        # A child of ours without a mark of ours is an orphan, unless it has our session, which no server has, or
        # does not show its environment. As process 1, we also get the orphans of processes that are no descendants.
        if not _adopts_orphans or self._us == 1 or process.session == self._our_session or mark is None:
            return []
        if (mark := _read_settled_mark(pid)) is None or mark == no_server_mark():
            return []
        if mark.startswith(mark_prefix()):
            return [mark]
        return [mark for mark, strays in self._servers.items() if strays.may_have_started(process)]


def _read_settled_mark(pid: int) -> str | None:
    """Return the mark of a child of ours that may just be starting; None if it has ended, or takes too long.

    Before `exec` it shows our environment, and for a moment after that none at all: on a busy machine this may last
    beyond the return of its start.
    """
    us = read_stat(os.getpid())
    for _ in range(_STARTING_POLLS):
        before, mark, after = read_stat(pid), _read_mark(pid), read_stat(pid)
        if before is None or after is None or after.has_ended:
            return None
        is_starting = after.environment == 0 or (us is not None and after.environment == us.environment)
        if not is_starting and before.environment == after.environment:
            return mark
        time.sleep(_STARTING_POLL_S)
    return None


def _read_mark(pid: int) -> str | None:
    """Return the mark in the environment of a process, empty without one; None if it is not readable."""
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, belongs to another user, or forbids inspection
        return None
    _, is_marked, rest = environment.partition(f"\0{SERVER_MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if is_marked else ""


def _is_running(pidfd: int) -> bool:
    import select  # only needed where a server has strays

    return not select.select([pidfd], [], [], 0)[0]


def _signal(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


class OrphanReaper:
    """Reaps the zombies among our children, except servers, which `is_server` recognizes.

    On Linux, processes whose parents have ended become children of a subreaper. Children of other code look the same
    once they have ended. Their exit codes belong to that code, so only zombies that stay unreaped for a while are
    reaped.
    """

    def __init__(self, is_server: Callable[[int], bool]) -> None:
        self._is_server = is_server
        self._zombies = set[tuple[int, int]]()

    def start(self) -> None:
        """Sweep once a minute, in a thread, until this process ends."""
        threading.Thread(target=self._run, name="orphans", daemon=True).start()

    def sweep(self) -> None:
        """Reap the processes that were already zombies at the last sweep."""
        zombies = self._find_zombies()
        for pid, _ in zombies & self._zombies:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._zombies = zombies - self._zombies

    def _find_zombies(self) -> set[tuple[int, int]]:
        """Return zombies with their start times, because a pid may belong to another process later."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:  # most of the time
                return set()
        us = os.getpid()
        return {
            (pid, process.start)
            for pid, process in _read_table().items()
            if process.has_ended and process.parent == us and not self._is_server(pid)
        }

    def _run(self) -> None:
        while True:
            time.sleep(_REAP_EVERY_S)
            self.sweep()


class ProcessStat(Struct, frozen=True, gc=False):
    """Fields of proc_pid_stat(5). `start` is in clock ticks since boot."""

    parent: int
    group: int
    session: int
    start: int
    has_ended: bool
    """True for a zombie, which has not been reaped yet."""
    environment: int = 0
    """The address of its environment; 0 during `exec`, or if it may not be read."""


def has_table() -> bool:
    """Return whether this system has /proc."""
    return Path("/proc/self/stat").exists()


def now_in_ticks() -> int:
    """Return the time in the unit of `ProcessStat.start`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if has_table() else 0


def list_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - of hundreds, many times


def read_stat(pid: int) -> ProcessStat | None:
    """Return the fields of a process; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before it may contain anything
    parent, group, session = map(int, fields[1:4])
    has_ended, environment = fields[0] in b"ZX", int(fields[_STAT_ENVIRONMENT])
    return ProcessStat(parent, group, session, int(fields[_STAT_START]), has_ended, environment)


def _read_table() -> dict[int, ProcessStat]:
    return {pid: stat for pid in list_pids() if (stat := read_stat(pid)) is not None}
