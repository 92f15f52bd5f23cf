"""Processes of a server that have left its process group, as daemons do. A mark in their environment identifies them.

Only Linux shows the environment of a process; on other systems no strays are found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "DYNAMIC_MCP_SERVER"
# The start of the mark of every server that this process starts.
OURS = secrets.token_hex(8)


class Strays:
    """The strays of one server: `mark` the environment that the server starts in, then `find` them."""

    def __init__(self) -> None:
        self._mark = f"{OURS}.{secrets.token_hex(4)}"
        self._pidfds: list[int] = []

    def mark(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment to start the server in."""
        return {**environment, VARIABLE: self._mark}

    def find(self) -> bool:
        """Find the strays that run now; return whether there are any."""
        self.forget()
        self._pidfds = list(_find_marked(self._mark))
        return bool(self._pidfds)

    def is_any_alive(self) -> bool:
        """Tell whether any stray that was found still runs."""
        return any(_is_running(pidfd) for pidfd in self._pidfds)

    def signal(self, number: signal.Signals) -> None:
        """Signal the strays that were found."""
        for pidfd in self._pidfds:
            _signal(pidfd, number)

    def forget(self) -> None:
        """Forget the strays that were found."""
        for pidfd in self._pidfds:
            os.close(pidfd)
        self._pidfds.clear()


def kill_all() -> None:
    """Kill the strays of every server, at once."""
    for pidfd in _find_marked(OURS):
        _signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def _find_marked(mark: str) -> Iterator[int]:
    """Yield a pidfd, which the caller closes, for each process whose mark starts with `mark`."""
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        return
    entry = f"{VARIABLE}={mark}".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - of hundreds
        if not name.isdigit() or not _has_entry(name, entry):
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(int(name))
            if _has_entry(name, entry):  # the pid still belongs to the same process
                yield pidfd
            else:
                os.close(pidfd)


def _has_entry(pid: str, entry: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return False
    return environment.startswith(entry) or b"\0" + entry in environment


def _is_running(pidfd: int) -> bool:
    import select  # only needed where a server has strays

    return not select.select([pidfd], [], [], 0)[0]


def _signal(pidfd: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)
