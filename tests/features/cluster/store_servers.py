"""Servers for the shared store: Redis and Valkey as child processes, and a proxy before one that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.features.cluster.store_address import StoreAddress, parse_address
from dynamic_mcp.features.cluster.valkey_store import ValkeyStore
from dynamic_mcp.system.shared_store import StoreFailure, StoreUnavailable
from tests.features.cluster.replicas import KEY
from tests.journeys.remote_server import STARTS_WITHIN_S, free_port

PROGRAMS = ("redis-server", "valkey-server")


class StoreServer:
    """One server on a port of loopback, which keeps nothing on disk but by request."""

    def __init__(self, folder: Path, program: str = "redis-server", *options: str) -> None:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
        self.folder = folder
        self.port = free_port()
        self.program = program
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    @property
    def address(self) -> StoreAddress:
        return parse_address(self.url, self.folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / f"{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        until = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < until:
            with contextlib.suppress(subprocess.CalledProcessError):
                if self._ask("PING") in ("PONG\n", "NOAUTH Authentication required.\n\n"):
                    return
            time.sleep(0.02)  # the server is a process of its own, and says to no one that it listens
        self.stop()
        pytest.fail(f"{self.program} does not answer: {(self.folder / f'{self.port}.log').read_text()[-2000:]}")

    def _command(self) -> list[str]:
        listen = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder))
        small = ("--save", "", "--databases", "4", "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0")
        return [self.program, *listen, *small, *self.options]

    def stop(self) -> None:
        """Kill it; a stopped one too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(5)
            self._process = None

    def freeze(self) -> None:
        """Let it do nothing, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *command: str) -> str:
        """Return what a command prints."""
        return self._ask(*command)

    def _ask(self, *command: str) -> str:
        client = self.program.replace("-server", "-cli")
        run = subprocess.run(
            [client, "-p", str(self.port), *command],
            capture_output=True,
            timeout=10,
            check=True,
            text=True,
            errors="replace",
        )
        return run.stdout


class Sentinel(StoreServer):
    """A sentinel that watches a server as `main`, and makes a replica of it the new one when it is gone."""

    def __init__(self, folder: Path, watched: StoreServer) -> None:
        config = folder / "sentinel.conf"
        config.write_text(
            f"sentinel monitor main 127.0.0.1 {watched.port} 1\n"
            "sentinel down-after-milliseconds main 300\n"
            "sentinel failover-timeout main 3000\n"
        )
        super().__init__(folder, "redis-server")
        self.config = config

    @property
    def url(self) -> str:
        return f"valkey+sentinel://127.0.0.1:1,127.0.0.1:{self.port}/main/0"

    def _command(self) -> list[str]:
        return [self.program, str(self.config), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"]


@contextlib.contextmanager
def store_server(folder: Path, program: str = "redis-server", *options: str) -> Iterator[StoreServer]:
    """Run a server."""
    server = StoreServer(folder, program, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def reset(connection: asyncio.StreamWriter) -> None:
    """Reset a connection, without an end of what is sent."""
    if not connection.is_closing():
        at_once = struct.pack("ii", 1, 0)
        connection.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    connection.transport.abort()


class FaultyProxy:
    """Passes connections on to a server, and misbehaves as it is told."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self._to = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.ask: Callable[[bytes], bytes] = bytes
        """Turns what the client asks into what the server gets."""
        self.answer: Callable[[bytes], bytes] = bytes
        """Turns what the server answers into what the client gets."""
        self.flows = asyncio.Event()
        """Unset, nothing is answered."""
        self.flows.set()
        self.connections = 0

    @property
    def address(self) -> StoreAddress:
        return parse_address(f"valkey://127.0.0.1:{self.port}/0", Path())

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Listen no more, and cut all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """Reset all connections."""
        for each in [*self._writers]:
            reset(each)
        for task in [*self._tasks]:
            task.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, to_server}
        for work in (
            self._copy(reader, to_server, lambda data: self.ask(data)),
            self._copy_back(from_server, writer),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._copy(reader, writer, lambda data: self.ask(data))

    async def _copy_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._copy(reader, writer, lambda data: self.answer(data), self.flows.wait)

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        change: Callable[[bytes], bytes],
        wait: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if wait is not None:
                    await wait()
                writer.write(change(data))
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def faulty_proxy(port: int) -> AsyncIterator[FaultyProxy]:
    """Run a proxy before the server at a port."""
    proxy = FaultyProxy(port)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()


@contextlib.asynccontextmanager
async def open_valkey(
    address: StoreAddress, keys: Sequence[str] = (KEY,), *, within_s: float = 5.0
) -> AsyncIterator[ValkeyStore]:
    """Open the store at an address. A command has more time than in use, since tests run on busy machines."""
    store = ValkeyStore(address, keys, within_s=within_s)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds of what another process does."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


async def until_true(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that the store knows."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


async def until_works(operation: Callable[[], Awaitable[Any]]) -> Any:  # Any: what it returns
    """Try an operation until the store has healed."""
    async with asyncio.timeout(15):
        while True:
            try:
                return await operation()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def failure_of(operation: Awaitable[object]) -> StoreFailure:
    """Return why an operation fails, which it must."""
    with pytest.raises(StoreUnavailable) as failed:
        await operation
    return failed.value.failure
