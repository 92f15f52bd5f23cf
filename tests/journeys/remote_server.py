"""Real servers over HTTP as child processes, at a port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.own_process import Process

STARTS_WITHIN_S = 30.0

# Below the range from which the system gives a socket a port by itself: so many blocks of so many ports.
_FIRST_PORT, _BLOCKS, _PORTS = 20_000, 30, 400
_NUMBERS = itertools.count()


def free_port() -> int:
    """Return a free port, at which what is started a second later can still listen: no other process takes it."""
    _, first = _take_block()
    for number in _NUMBERS:
        port = first + 1 + number % (_PORTS - 1)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("the numbers never end")


@functools.cache
def _take_block() -> tuple[socket.socket, int]:
    """Take a block of ports that no other process has: its first one is in use as long as this one runs."""
    for number in range(_BLOCKS):
        first = _FIRST_PORT + (os.getpid() + number) % _BLOCKS * _PORTS
        guard = socket.socket()
        try:
            guard.bind(("", first))
        except OSError:
            guard.close()
        else:
            return guard, first
    raise AssertionError("every block of ports is in use")


@contextlib.asynccontextmanager
async def listening(*command: str, port: int, env: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """Run a server, which listens at this port from here on; it is gone afterwards."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **(env or {})}, stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        async with asyncio.timeout(STARTS_WITHIN_S):
            await wait_until_listening(process, port)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def wait_until_listening(process: Process, at: int | Path) -> None:
    """Wait until somebody listens at this port or Unix socket, which is to be this process."""
    while True:
        assert process.returncode is None, "the server ended"
        with contextlib.suppress(OSError):
            if isinstance(at, Path):
                _, writer = await asyncio.open_unix_connection(at)
            else:
                _, writer = await asyncio.open_connection("127.0.0.1", at)
            writer.close()
            return
        await asyncio.sleep(0.02)
