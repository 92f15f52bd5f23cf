"""How the programs of a test serve: each alone, or as windows of a daemon that ends with the last of them.

The fixtures in `hosting_fixtures.py` run each test in both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dynamic_mcp.system.paths import log_dir

BOUND_S = 60.0
_POLL_S = 0.01

ALONE, DAEMON = "alone", "daemon"
ENDS_WITH_LAST_WINDOW = {"linger": "0s"}


class Hosting:
    """The way in which the programs of this test serve, and the processes that serve for them."""

    def __init__(self, *, has_daemon: bool) -> None:
        self.has_daemon = has_daemon
        self.open_windows = 0
        self.may_serve_alone = False
        self._lingers = False

    def prepare(self, config: Path) -> None:
        """Let a config ask for a daemon, if that is the way and the file can be read."""
        if not self.has_daemon:
            return
        try:
            tree = json.loads(before := config.read_text())
            settings = tree.setdefault("settings", {})
            self._lingers = settings.setdefault("daemon", ENDS_WITH_LAST_WINDOW) != ENDS_WITH_LAST_WINDOW
        except (OSError, ValueError, AttributeError):  # a test of what is wrong with it
            return
        if (text := json.dumps(tree)) != before:
            config = config.resolve()
            new = config.with_suffix(".prepared")
            new.write_text(text)
            shutil.copymode(config, new)
            new.replace(config)  # other windows may be reading it

    def host(self, window: int) -> int:
        """Return the id of the process that serves a window: its daemon, or the window itself."""
        return find_daemon() if self.has_daemon else window

    async def wait_for_end(self) -> None:
        """Wait until the daemon has ended, if its last window has and it does not linger."""
        if self.has_daemon and not self.open_windows and not self._lingers:
            await wait_for_daemons()

    def log(self) -> str:
        """Return what a daemon has logged, which has nobody's stderr."""
        return daemon_log() if self.has_daemon else ""


# What `tests.program` starts serves in this way.
hosting = Hosting(has_daemon=False)


def daemons() -> list[int]:
    """Return the process ids of all daemons of this test."""
    return [pid for pid, arguments in survivors() if arguments[0] == sys.executable and "--ready" in arguments]


async def wait_for_daemons(*expected: int) -> None:
    """Wait until these daemons of this test run, and no others."""
    async with asyncio.timeout(BOUND_S):
        while (running := daemons()) != [*expected]:
            if ending := [pid for pid in running if pid not in expected]:
                await asyncio.to_thread(wait_for_end, ending[0], BOUND_S)
            else:
                await asyncio.sleep(_POLL_S)


def wait_for_end(pid: int, within_s: float) -> None:
    """Wait until a process that is nobody's child has ended, or for this long."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            select.select([process], [], [], within_s)
        finally:
            os.close(process)


def find_daemon() -> int:
    """Return the process id of the one daemon of this test."""
    deadline = time.monotonic() + BOUND_S
    while len(pids := daemons()) != 1:
        assert time.monotonic() < deadline, f"there is not one daemon, but {pids}"
        time.sleep(_POLL_S)
    return pids[0]


def daemon_log() -> str:
    """Return the messages in the log file, one a line."""
    files = sorted(log_dir().glob("dynamic-mcp.log*"), reverse=True)
    records = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return "".join(f"{record['message']}\n{record.get('traceback', '')}" for record in records)


def survivors() -> list[tuple[int, list[str]]]:
    """Return the processes that this test's programs have started and that still run, with their command lines."""
    return processes_at(Path(os.environ["HOME"]))


def processes_at(home: Path) -> list[tuple[int, list[str]]]:
    """Return the processes that run with this home, with their command lines."""
    return [(pid, arguments) for pid, each, arguments in list_processes() if each == str(home)]


def list_processes() -> Iterator[tuple[int, str, list[str]]]:
    """Yield the processes that can be looked at and have a home, with that and their command lines (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            arguments = os.fsdecode((folder / "cmdline").read_bytes()).split("\0")
            for home in (each for each in variables if each.startswith(b"HOME=")):
                yield int(folder.name), os.fsdecode(home[5:]), arguments
