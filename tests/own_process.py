"""Starts `dynamic-mcp` as `asyncio` and `subprocess` start programs, but in forks of one process that has loaded it.

A new interpreter is started where a fork would not do: if the environment changes how Python itself starts, and on
systems other than Linux. Tests about the start of the program start one themselves.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

OWN = (sys.executable, "-m", "dynamic_mcp")
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
Stream = int | IO[bytes]
BOUND_S = 60.0
_LINE_BYTES = 1 << 16
_OUTSIDE = {**os.environ, "HOME": "/nonexistent"}  # of the process that the runs are forks of, which is no test's
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_")


class _Run:
    """A run in a fork; it has ended once its exit code was read."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the run has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended a moment ago
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the run to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the run."""
        self.send_signal(signal.SIGKILL)


class BlockingProcess(_Run):
    """A run in a fork, with what the tests use of `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Return the exit code, if the run has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = BOUND_S) -> int:
        """Wait for the end, and return the exit code."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("dynamic-mcp", timeout)
            self.returncode = _read_exit_code(self._status)
        return self.returncode


class OwnProcess(_Run):
    """A run in a fork, with what the tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, status: int) -> None:
        super().__init__(pid, status)
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._has_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(status, self._on_end)

    async def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        await self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for the end, and return what was written to the pipes."""
        outputs = [b"" if stream is None else await stream.read() for stream in (self.stdout, self.stderr)]
        await self.wait()
        return outputs[0], outputs[1]

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        self.returncode = _read_exit_code(self._status)
        if self.stdin is not None:
            self.stdin.close()
        self._has_ended.set()


Process = asyncio.subprocess.Process | OwnProcess
Blocking = subprocess.Popen[bytes] | BlockingProcess


async def start(
    *args: str,
    stdin: Stream = PIPE,
    stdout: Stream = PIPE,
    stderr: Stream = PIPE,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit: int = _LINE_BYTES,
) -> Process:
    """Start `dynamic-mcp` with these arguments."""
    environment = dict(os.environ if env is None else env)
    if not _can_fork(environment):
        return await asyncio.create_subprocess_exec(
            *OWN, *args, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=cwd, limit=limit
        )
    with contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair() if stdin == PIPE else (None, None)
        first = _descriptor(stdin, stack) if theirs is None else stack.enter_context(theirs).fileno()
        descriptors, readers = [first], []
        for stream in (stdout, stderr):
            reader = None
            if stream == PIPE:
                source, sink = os.pipe()
                stack.callback(os.close, sink)
                reader = await _open_reader(source, limit)
                descriptors.append(sink)
            else:
                descriptors.append(_descriptor(stream, stack))
            readers.append(reader)
        process = OwnProcess(*_fork(args, environment, cwd, descriptors))
    process.stdout, process.stderr = readers
    if ours is not None:
        _, process.stdin = await asyncio.open_connection(sock=ours)
    return process


async def _open_reader(source: int, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", 0))
    return reader


def start_at_terminal(
    *args: str,
    terminal: int,
    stdout: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Blocking:
    """Start `dynamic-mcp` with these arguments in a session of its own, which this terminal controls."""
    environment = dict(os.environ if env is None else env)
    out = terminal if stdout is None else stdout
    return start_at_once(
        *args, stdin=terminal, stdout=out, stderr=terminal, env=environment, cwd=cwd, has_terminal=True
    )


def run(
    *args: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    closed: Sequence[int] = (),
    memory: int = 0,
    timeout: float = BOUND_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run `dynamic-mcp` with these arguments to its end; it is killed, with its process group, after `timeout` s.

    `closed` are the standard descriptors that it does not get, `memory` is how many bytes it may map: only in a fork.
    """
    environment = dict(os.environ if env is None else env)
    if not (closed or memory or _can_fork(environment)):
        return subprocess.run(
            [*OWN, *args], input=stdin, capture_output=True, env=environment, cwd=cwd, timeout=timeout, check=False
        )
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        descriptors = [each.fileno() for each in files]
        pid, status = _fork(args, environment, cwd, descriptors, closed=closed, memory=memory, has_own_group=True)
        if not select.select([status], [], [], timeout)[0]:
            os.killpg(pid, signal.SIGKILL)
            os.close(status)
            raise subprocess.TimeoutExpired(["dynamic-mcp", *args], timeout)
        code = _read_exit_code(status)
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess(["dynamic-mcp", *args], code, files[1].read(), files[2].read())


def start_at_once(
    *args: str,
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
    env: Mapping[str, str],
    cwd: Path | None = None,
    has_terminal: bool = False,
) -> Blocking:
    """Start `dynamic-mcp` with these arguments, for a test that has no loop; no stream is a pipe of its own.

    If stdin is a terminal that is to control it, it is in a session of its own.
    """
    assert PIPE not in (stdin, stdout, stderr)
    if not _can_fork(env):
        return subprocess.Popen(
            [*OWN, *args], stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=has_terminal
        )
    with contextlib.ExitStack() as stack:
        descriptors = [_descriptor(each, stack) for each in (stdin, stdout, stderr)]
        return BlockingProcess(*_fork(args, env, cwd, descriptors, has_terminal=has_terminal))


def _can_fork(environment: Mapping[str, str]) -> bool:
    changed = {name for name, _ in environment.items() ^ _OUTSIDE.items()}
    return sys.platform == "linux" and not any(name.startswith(_OF_THE_INTERPRETER) for name in changed)


def _descriptor(stream: Stream, stack: contextlib.ExitStack) -> int:
    if stream == DEVNULL:
        return stack.enter_context(Path(os.devnull).open("r+b", 0)).fileno()
    return stream if isinstance(stream, int) else stream.fileno()


def _fork(
    args: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | None,
    descriptors: Sequence[int],
    **more: object,
) -> tuple[int, int]:
    """Return the process id of a run, and the descriptor that its exit code can be read from."""
    folder = str(cwd or Path.cwd())
    request = {"args": args, "environment": dict(environment), "folder": folder, "umask": _read_umask(), **more}
    status, theirs = os.pipe()
    with tempfile.TemporaryFile() as file:  # a message on the socket could not be as long as a command line can
        file.write(json.dumps(request).encode())
        file.seek(0)
        socket.send_fds(_server(), [b"run"], [*descriptors, theirs, file.fileno()])
    os.close(theirs)
    return int(_read_line(status)), status


def _read_umask() -> int:
    os.umask(umask := os.umask(0))
    return umask


@cache
def _server() -> socket.socket:
    """Start the process that the runs are forks of; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        program = str(Path(__file__).with_name("fork_server.py"))
        command = [sys.executable, program, str(theirs.fileno())]
        process = subprocess.Popen(command, env=_OUTSIDE, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _read_exit_code(status: int) -> int:
    try:
        return int(_read_line(status))
    finally:
        os.close(status)


def _read_line(status: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(status, 1)
        assert data, "the process that the runs are forks of has ended"
        line += data
    return line
