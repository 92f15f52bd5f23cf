"""Whether any process of a group still runs. Zombies do not count: without an init that reaps orphans they stay."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class ProcessGroup:
    """A group by its number, from when its leader is reaped until all of it has ended."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._members: list[int] = []
        self._was_empty = False

    def poll(self) -> bool:
        """Look for processes of the group; return whether one still runs."""
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self._number, 0)
        except (ProcessLookupError, PermissionError):
            return False
        if not Path("/proc/self/stat").exists():
            return True
        self._members = self._filter_running(self._members) or self._filter_running(_all_processes())
        if self._members:
            self._was_empty = False
            return True
        # a process that starts while the list is being read shows up the second time
        was_empty, self._was_empty = self._was_empty, True
        return not was_empty

    def _filter_running(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if _group_if_running(pid) == self._number]


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - of hundreds, many times


def _group_if_running(pid: int) -> int | None:
    """Return a process's group, None if it has ended. proc_pid_stat(5): after the name, `state ppid pgrp`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, _, group = stat.rpartition(b")")[2].split()[:3]
    return None if state in b"ZX" else int(group)
