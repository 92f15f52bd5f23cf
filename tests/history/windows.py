"""Sessions that are windows: processes of the program, all before one daemon, which can be killed.

Linux only: the daemon's process is found by its socket, and what it holds in /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.face import window
from dynamic_mcp.system import private_socket
from tests import own_process
from tests.history.harness import RESULT_LIMIT, Line, Send
from tests.history.record import ABRUPTLY, DAEMON, INPUT_ENDED, History, Json
from tests.own_process import DEVNULL

ROOT = Path(__file__).parents[2]
_CHUNK_BYTES = 1 << 16
_DIES_WITHIN_S = 60.0
_SETTLES_WITHIN_S = 60.0
_CLOSES_WITHIN_S = 60.0
_RESTS_FOR_S = 1.0
# Longer than any pause between windows; a daemon that is left because the tests were killed ends by itself.
_LINGER = "1m"
_NO_DAEMON = b"is served alone"


class Leave(StrEnum):
    """How a window ends."""

    INPUT_ENDED = INPUT_ENDED
    TERMINATED = "terminated"
    KILLED = "killed"

    @property
    def detail(self) -> str:
        """What the history says of it: a process that a signal ends may have been writing a line."""
        return INPUT_ENDED if self is Leave.INPUT_ENDED else ABRUPTLY


def write_config(folder: Path, servers: Mapping[str, Program], *, private: tuple[str, ...]) -> Path:
    """Write the config of a daemon with these servers, of which some are not shared."""
    entries: dict[str, Json] = {}
    for name, program in servers.items():
        share = {"share": "session"} if name in private else {}
        command = {"command": program.command, "args": list(program.args)}
        entries[name] = {**command, "result_limit": RESULT_LIMIT, **share}
    file = folder / "dynamic-mcp.json"
    settings = {"daemon": {"linger": _LINGER}}
    file.write_text(json.dumps({"mcpServers": entries, "settings": settings}))
    return file


class Windows:
    """Opens windows of a config, and kills their daemon. `leave` is how the next window ends."""

    def __init__(self, config: Path, folder: Path, history: History) -> None:
        self.config = config
        self.leave = Leave.INPUT_ENDED
        self.exit_codes: list[tuple[Leave, int]] = []
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run"), "DYNAMIC_MCP_LOG": "warning"}
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            self.environment[f"XDG_{name}_HOME"] = str(folder / name.lower())
        (folder / "run").mkdir(mode=0o700, exist_ok=True)
        self._history = history
        self._stderr = folder / "stderr"
        self._processes: list[own_process.Process] = []
        self._watched: asyncio.subprocess.Process | None = None

    async def open(self, take: Send) -> Line:
        leave = self.leave
        with self._stderr.open("ab") as stderr:
            process = await own_process.start(str(self.config), stderr=stderr, env=self.environment)
        self._processes.append(process)
        return _Window(self, process, take, leave)

    async def close(self) -> None:
        """Kill the windows that a run has left, and stop every daemon; wait for their ends.

        A window may start another daemon when its own ends, also one that has ended since.
        """
        for window_process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                window_process.kill()
            await window_process.wait()
        async with asyncio.timeout(_CLOSES_WITHIN_S):
            while pids := self.daemons():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        process = os.pidfd_open(pid)
                        os.kill(pid, signal.SIGTERM)
                        await asyncio.to_thread(_wait_for_death, process)
        if self._watched is not None:
            await self._watched.wait()  # else its end is never noticed, which pytest reports in a later test

    async def start_watched(self, file: Path) -> None:
        """Start the daemon in which SIGUSR2 counts what is alive, into this file."""
        command = (sys.executable, "-m", "tests.benchmarks.watched", "daemon", "run", "--config", str(self.config))
        null = asyncio.subprocess.DEVNULL
        self._watched = await asyncio.create_subprocess_exec(
            *command,
            stdin=null,
            stdout=null,
            stderr=null,
            env={**self.environment, "WATCHED_FILE": str(file), "PYTHONPATH": str(ROOT)},
        )
        await self.find_daemon()

    def daemon_pid(self) -> int | None:
        """Return the process that listens on the socket of this config."""
        name = window.socket_name(str(self.config))
        connection = private_socket.connect(self.environment, name)
        if connection is None:
            return None
        with contextlib.closing(connection):
            return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)

    async def find_daemon(self) -> int:
        """Return the process of the daemon, once there is one."""
        async with asyncio.timeout(_DIES_WITHIN_S):
            while (pid := self.daemon_pid()) is None:  # noqa: ASYNC110 - another process does not tell
                await asyncio.sleep(0.01)
        return pid

    async def kill_daemon(self) -> None:
        """Kill the daemon; nothing else happens here until it is dead, so the history tells before from after."""
        pid = await self.find_daemon()
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            self._history.kill(f"{DAEMON} {pid}")
            os.kill(pid, signal.SIGKILL)
            _wait_for_death(process)

    @property
    def alone(self) -> int:
        """How many windows could not have a daemon, and served themselves."""
        return self._stderr.read_bytes().count(_NO_DAEMON)

    def errors(self) -> str:
        """Return what the windows wrote to stderr."""
        return self._stderr.read_text()

    def daemons(self) -> list[int]:
        """Return the processes that are daemons of this config."""
        return processes(b"daemon", os.fsencode(self.config))

    async def sessions_at_rest(self) -> list[Json]:
        """Return the sessions that `dynamic-mcp status` shows once it is up to date; it is written now and then."""
        sessions = await self._sessions()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLES_WITHIN_S):
                while sessions:
                    await asyncio.sleep(_RESTS_FOR_S)
                    sessions = await self._sessions()
        return sessions

    async def _sessions(self) -> list[Json]:
        process = await own_process.start("status", "--json", stdin=DEVNULL, env=self.environment)
        output, _ = await process.communicate()
        return [session for proxy in json.loads(output) for session in proxy["sessions"]]


class _Window:
    def __init__(self, windows: Windows, process: own_process.Process, take: Send, leave: Leave) -> None:
        self._windows = windows
        self._process = process
        self._take = take
        self._leave = leave
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    async def close(self) -> list[weakref.ref[object]]:
        match self._leave:
            case Leave.INPUT_ENDED:
                assert self._process.stdin is not None
                self._process.stdin.close()
            case Leave.TERMINATED:
                self._process.terminate()
            case Leave.KILLED:
                self._process.kill()
        await self._reading
        self._windows.exit_codes.append((self._leave, await self._process.wait()))
        return []

    async def _read(self) -> None:
        """Take the lines, and what follows the last line end."""
        assert self._process.stdout is not None
        rest = b""
        while data := await self._process.stdout.read(_CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
        if rest:
            self._take(rest)


@dataclass(frozen=True)
class Holdings:
    """What a daemon has: descriptors, children, its memory in MiB, sessions, and what lives inside it."""

    descriptors: int
    children: int
    threads: int
    memory: float
    inside: Mapping[str, int]

    def growth(self, before: Holdings) -> str:
        """Return what is more than it was; what is less was on its way to its end before."""
        return "; ".join(f"{name}: {old}, then {new}" for name, old, new in self._changes(before) if new > old)

    def differs_from(self, before: Holdings) -> bool:
        """Return whether anything is not as it was."""
        return bool(self._changes(before))

    def _changes(self, before: Holdings) -> list[tuple[str, int, int]]:
        """Return what is not as it was; memory and the threads of the pool may differ."""
        names = ("descriptors", "children")
        pairs = [(name, getattr(before, name), getattr(self, name)) for name in names]
        keys = {**before.inside, **self.inside}
        pairs += [(key, before.inside.get(key, 0), self.inside.get(key, 0)) for key in keys]
        return [(name, old, new) for name, old, new in pairs if old != new]


async def measure(pid: int, file: Path) -> Holdings:
    """Measure a daemon that `start_watched` has started with this file."""
    os.kill(pid, signal.SIGUSR2)
    async with asyncio.timeout(_DIES_WITHIN_S):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process does not tell
            await asyncio.sleep(0.01)
    inside: dict[str, int] = json.loads(file.read_text())  # noqa: ASYNC240
    file.unlink()  # noqa: ASYNC240
    root = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
    tasks = (root / "task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return Holdings(
        descriptors=len(list((root / "fd").iterdir())),
        children=len(children),
        threads=int(status["Threads"]),
        memory=int(status["VmRSS"].split()[0]) / 1024,
        inside=inside,
    )


async def measure_at_rest(pid: int, file: Path) -> Holdings:
    """Measure a daemon that nobody uses, once what ends has ended: when nothing has changed for a while."""
    holdings = await measure(pid, file)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLES_WITHIN_S):
            while True:
                await asyncio.sleep(_RESTS_FOR_S)
                before, holdings = holdings, await measure(pid, file)
                if not holdings.differs_from(before):
                    break
    return holdings


async def settle(pid: int, file: Path, before: Holdings) -> Holdings:
    """Measure a daemon until it has what it had before, or for a while: what is ending takes its time."""
    holdings = await measure(pid, file)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLES_WITHIN_S):
            while holdings.differs_from(before):
                await asyncio.sleep(0.1)
                holdings = await measure(pid, file)
    return holdings


def _wait_for_death(process: int) -> None:
    try:
        select.select([process], [], [], _DIES_WITHIN_S)
    finally:
        os.close(process)


def processes(*words: bytes) -> list[int]:
    """Return the processes that have these words in their command lines."""
    return [pid for pid in _all_processes() if {*words} <= {*_command_line(pid).split(b"\0")}]


def _all_processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
