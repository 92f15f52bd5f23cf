"""Keeps several processes of one service running: starts each again when it ends, and passes signals on to all.

It serves nothing itself. If it is killed, the workers end too: each watches the pipe that is its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

assert sys.platform != "win32"

from dynamic_mcp.config.addresses import TcpAddress  # noqa: E402
from dynamic_mcp.config.resolved import Config  # noqa: E402
from dynamic_mcp.errors import InvalidArguments  # noqa: E402
from dynamic_mcp.host.http_control import HttpOverrides  # noqa: E402
from dynamic_mcp.host.systemd import open_notifier, read_sockets  # noqa: E402
from dynamic_mcp.observe.proxies import is_alive  # noqa: E402
from dynamic_mcp.system import private_socket  # noqa: E402
from dynamic_mcp.system.task_set import TaskSet  # noqa: E402
from dynamic_mcp.system.worker import ALIVE_EVERY_S, VARIABLE, WorkerIdentity  # noqa: E402

log = logging.getLogger("dynamic_mcp")

# The pause before an ended worker is started again: twice as long each time, unless it has served for a while.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GOOD_AFTER_S = 0.5, 30.0, 60.0
# A worker that has said nothing for so long hangs, and is killed; one that begins may take longer.
_HANGS_AFTER_S, _SERVES_WITHIN_S = 60.0, 120.0
# The longest name of a socket in the folder.
_LONGEST_NAME = "999-home.sock"
# Beyond the time that calls may take to end.
_END_WITHIN_S = 10.0


def run(config: Config, overrides: HttpOverrides, workers: int) -> int:
    """Serve a config by this many processes until a signal arrives; return the exit code.

    Raises InvalidArguments and ListenError. If the first worker cannot serve, it says why, and its exit code is ours.
    """
    http = overrides.override(config.http)
    if config.cluster is not None:
        raise InvalidArguments(
            "`settings.cluster` is for replicas, and each of them is one process",
            hint="leave `--workers` out, or take `settings.cluster` out of the config",
        )
    if not isinstance(http.listen, TcpAddress):
        raise InvalidArguments("workers share a port, and not a Unix socket", hint="listen at `127.0.0.1:PORT`")
    if read_sockets(os.environ) is not None:
        raise InvalidArguments(
            "each worker listens at a socket of its own, and systemd passes one",
            hint="leave `--workers` out, or disable the socket unit",
        )
    port = _find_port(http.listen)
    folder = Path(private_socket.place(os.environ, f"workers-{os.getpid()}{os.sep}{_LONGEST_NAME}")).parent
    _remove_those_of_dead(folder)
    folder.mkdir(mode=0o700)
    try:
        first = WorkerIdentity(
            0, workers, str(folder), secrets.token_hex(32), os.getpid(), port if not http.listen.port else 0
        )
        command = [sys.executable, "-P", "-m", "dynamic_mcp", *sys.argv[1:]]
        return asyncio.run(Supervisor(first, command, os.environ, finish_within_s=http.shutdown_timeout_s).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_port(address: TcpAddress) -> int:
    """Return the port of an address, which nobody uses yet. Raises ListenError."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, where = found[0]
        with socket.create_server(where[:2], family=family) as listening:
            port: int = listening.getsockname()[1]
            return port
    except OSError as exc:
        from dynamic_mcp.host.http_service import listen_error

        raise listen_error(address, exc) from exc


def _remove_those_of_dead(folder: Path) -> None:
    """Remove the folders that killed supervisors have left; in a container, each may have had our process id."""
    for each in folder.parent.glob("workers-*"):
        if each == folder or not is_alive(int(each.name.removeprefix("workers-")), 0.0):
            shutil.rmtree(each, ignore_errors=True)


class Supervisor:
    """Runs `command` once for each worker."""

    def __init__(
        self,
        first: WorkerIdentity,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        finish_within_s: float,
        first_pause_s: float = _FIRST_PAUSE_S,
        look_every_s: float = ALIVE_EVERY_S,
    ) -> None:
        self._first = first
        self._command = command
        self._environment = environment
        self._finish_within_s = finish_within_s
        self._first_pause_s = first_pause_s
        self._look_every_s = look_every_s
        self._processes: dict[int, _Process] = {}
        self._ended = asyncio.Event()
        self._keepers = TaskSet(log)
        self._watching = TaskSet(log)
        self._notifier = open_notifier(os.environ)  # the workers are not to tell

    async def run(self) -> int:
        """Run until a signal arrives and all workers have ended; return the exit code."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._end, signal.SIGINT: self._end, signal.SIGHUP: self._reload}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            return await self._run()
        finally:
            self._watching.cancel_all()
            for number in handlers:
                loop.remove_signal_handler(number)

    async def _run(self) -> int:
        self._watching.create(self._watch(), name="watch over the workers")
        first = await self._start(0)
        if not await first.serves() and not self._ended.is_set():
            return await first.wait() or 1
        keepers = [self._keep(first)]
        if not self._ended.is_set():
            keepers += [self._keep(await self._start(number)) for number in range(1, self._first.count)]
            log.info("%d workers serve together", self._first.count)
            if self._notifier is not None:
                self._notifier.ready(f"{self._first.count} workers serve over HTTP")
        for each in keepers:
            self._keepers.create(each, name="keeper of a worker")
        await self._ended.wait()
        if self._notifier is not None:
            self._notifier.stopping()
        await self._finish()
        return 0

    async def _start(self, number: int) -> _Process:
        process = await _Process.start(replace(self._first, number=number), self._command, self._environment)
        self._processes[number] = process
        if self._ended.is_set():
            process.signal(signal.SIGTERM)
        return process

    async def _keep(self, process: _Process) -> None:
        """Start a worker again whenever it has ended."""
        pause_s, loop = self._first_pause_s, asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await process.wait()
            if self._ended.is_set():
                return
            if loop.time() - began >= _GOOD_AFTER_S:
                pause_s = self._first_pause_s
            log.error("worker %d has ended (%s), and starts again in %g s", process.number, _describe(code), pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._ended.wait()
                    return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                process = await self._start(process.number)
            except OSError as exc:  # there is no memory, or no free descriptor
                log.error("worker %d cannot be started: %s", process.number, exc)  # noqa: TRY400

    async def _watch(self) -> None:
        """Kill workers that hang; each is started again as one that has ended.

        Looks are counted, and not seconds, so that nobody is blamed for a time in which this process did not run.
        """
        while not self._ended.is_set():
            await asyncio.sleep(self._look_every_s)
            for each in self._processes.values():
                each.looks += 1
                most_s = _HANGS_AFTER_S if each.is_serving else _SERVES_WITHIN_S
                if each.looks * ALIVE_EVERY_S > most_s and each.is_running:
                    what = "hangs" if each.is_serving else f"does not serve after {_SERVES_WITHIN_S:g} s"
                    log.error("worker %d %s, and is killed", each.number, what)
                    each.signal(signal.SIGKILL)

    # --- signals ---------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End all workers as one would end alone; at the second signal, at once."""
        number = signal.SIGKILL if self._ended.is_set() else signal.SIGTERM
        self._ended.set()
        self._signal(number)

    def _reload(self) -> None:
        """Reload the workers that serve: one that still starts would end by it, and reads the config anyway."""
        for process in self._processes.values():
            if process.is_serving:
                process.signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            process.signal(number)

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(self._finish_within_s + _END_WITHIN_S):
                await self._keepers.wait()
        except TimeoutError:
            log.error("workers do not end, and are killed")  # noqa: TRY400
            self._signal(signal.SIGKILL)
            await self._keepers.wait()


class _Process:
    """One running worker."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, alive: int) -> None:
        self.number = number
        self.is_serving = False
        self.looks = 0  # since it said that it does not hang
        self._process = process
        self._alive = alive
        self._said = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(alive, self._hear)

    @staticmethod
    async def start(worker: WorkerIdentity, command: Sequence[str], environment: Mapping[str, str]) -> _Process:
        """Start a worker in a session of its own, so that the signals of a terminal reach only the supervisor."""
        ours, its = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                env={**environment, VARIABLE: replace(worker, alive=its).to_variable()},
                pass_fds=(its,),
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(its)
        return _Process(worker.number, process, ours)

    async def serves(self) -> bool:
        """Return whether the worker serves now; False once it has ended without."""
        await self._said.wait()
        return self.is_serving

    def _hear(self) -> None:
        """Called when it has written, or its end is closed."""
        if os.read(self._alive, 1024):
            self.is_serving, self.looks = True, 0
        else:
            self._loop.remove_reader(self._alive)
        self._said.set()

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """Return its exit code once it has ended; negative for a signal."""
        code = await self._process.wait()
        self.is_serving = False
        if self._alive >= 0:
            self._loop.remove_reader(self._alive)
            os.close(self._alive)
            self._alive = -1
        return code

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
