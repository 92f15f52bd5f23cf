"""Real servers over HTTP as child processes, at a port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.own_process import Process

STARTS_WITHIN_S = 30.0

_PORTS = 750  # of each worker
# A run beside this one begins elsewhere.
_NUMBERS = itertools.count(os.getpid() * 37)


def free_port() -> int:
    """Return a free port that the system gives to no socket by itself: it lies below the range from which it chooses.

    Each worker of a run has ports of its own, so what it starts a second later can still listen there.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
    for number in _NUMBERS:
        port = 20_000 + worker * _PORTS + number % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("the numbers never end")


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
