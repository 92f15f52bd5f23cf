"""What the tests of the daemon itself share: configs that ask for one, commands, and a look at processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from dynamic_mcp.face import window
from tests import own_process
from tests.hosting import daemon_log
from tests.own_process import DEVNULL
from tests.program import BOUND_S, Json, Program, running, text_of


def save(folder: Path, servers: Json, *, linger: str = "0s", **settings: Json) -> Path:
    """Write a config that asks for a daemon."""
    file = folder / "dynamic-mcp.json"
    daemon = {"daemon": {"linger": linger}}
    file.write_text(json.dumps({"mcpServers": servers, "settings": {**daemon, **settings}}))
    return file


@contextlib.asynccontextmanager
async def windows_of(file: Path, count: int, *, capabilities: Json = None) -> AsyncIterator[list[Program]]:
    """Open so many windows of a config at once, each shaken hands with."""
    async with contextlib.AsyncExitStack() as stack:
        windows = [await stack.enter_async_context(running(str(file))) for _ in range(count)]
        await asyncio.gather(*(each.initialize(capabilities=capabilities) for each in windows))
        yield windows
        for each in windows:
            each.assert_answered_once()


async def run_command(*args: str) -> int:
    """Run a command of the program, and return its exit code."""
    process = await own_process.start(*args, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    return await process.wait()


def socket_of(file: Path) -> Path:
    """Return where the socket of a config's daemon is."""
    return Path(os.environ["XDG_RUNTIME_DIR"], "dynamic-mcp", window.socket_name(str(file)))


async def logs(words: str) -> None:
    """Wait until these words are in the log."""
    async with asyncio.timeout(BOUND_S):
        while words not in daemon_log():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.01)


async def has_received(program: Program, group: str, marker: str, times: int = 1) -> list[Json]:
    """Wait until a server was sent so many lines with this in them, and return those."""
    async with asyncio.timeout(BOUND_S):
        while True:
            lines = json.loads(text_of(await program.call(group, "record")))
            wanted = [json.loads(line) for line in lines if marker in line and '"record"' not in line]
            if len(wanted) >= times:
                return wanted


async def pid_of(program: Program, group: str) -> int:
    """Return the process id of a group's server, which is of odd.py."""
    return int(text_of(await program.call(group, "pid")))
