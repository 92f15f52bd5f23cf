"""Whether a process group still does anything. The dead of it may stay for ever where nobody reaps orphans."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class ProcessGroup:
    """A group by its number, from when its leader is reaped until it is found to have ended."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._members: list[int] = []
        self._looked_empty = False

    def lives(self) -> bool:
        """Tell whether a process of the group still runs."""
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self._number, 0)
        except (ProcessLookupError, PermissionError):
            return False
        if not Path("/proc/self/stat").exists():
            return True
        self._members = self._running(self._members) or self._running(_all_processes())
        if self._members:
            self._looked_empty = False
            return True
        # a process that was born while the list was read is seen the second time
        looked_empty_before, self._looked_empty = self._looked_empty, True
        return not looked_empty_before

    def _running(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if _group_if_running(pid) == self._number]


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - of hundreds, many times


def _group_if_running(pid: int) -> int | None:
    """Read a process's group; None when it has ended. proc_pid_stat(5): after the name, `state ppid pgrp`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, _, group = stat.rpartition(b")")[2].split()[:3]
    return None if state in b"ZX" else int(group)
