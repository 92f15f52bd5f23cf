"""Processes of a server that have left its process group, as daemons do: a mark in their environment tells them.

Only Linux shows the environment of a process; elsewhere none are found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "DYNAMIC_MCP_SERVER"
# Of all servers that this proxy starts.
OURS = secrets.token_hex(8)


class Strays:
    """What one server has left behind; it carries its mark since `marked`, and is found by `look`."""

    def __init__(self) -> None:
        self._mark = f"{OURS}.{secrets.token_hex(4)}"
        self._handles: list[int] = []

    def marked(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment that the server is to be started in."""
        return {**environment, VARIABLE: self._mark}

    def look(self) -> bool:
        """Find those that run now, and tell whether there are any."""
        self.forget()
        self._handles = list(_found(self._mark))
        return bool(self._handles)

    def live(self) -> bool:
        """Tell whether one of those that were found still runs."""
        return any(_runs(handle) for handle in self._handles)

    def signal(self, number: signal.Signals) -> None:
        """Signal those that were found."""
        for handle in self._handles:
            _signal(handle, number)

    def forget(self) -> None:
        """Let go of those that were found."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()


def kill_all() -> None:
    """End what any server has left behind, now."""
    for handle in _found(OURS):
        _signal(handle, signal.SIGKILL)
        os.close(handle)


def _found(mark: str) -> Iterator[int]:
    """Yield a handle, which the caller closes, of each process whose mark begins so."""
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        return
    wanted = f"{VARIABLE}={mark}".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - of hundreds
        if not name.isdigit() or not _has(name, wanted):
            continue
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(int(name))
            if _has(name, wanted):  # the number still means the same process
                yield handle
            else:
                os.close(handle)


def _has(pid: str, wanted: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False
    return environment.startswith(wanted) or b"\0" + wanted in environment


def _runs(handle: int) -> bool:
    import select  # only where a server has left something behind

    return not select.select([handle], [], [], 0)[0]


def _signal(handle: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(handle, number)
