"""Whether any process of a group still runs. Zombies do not count: without an init that reaps orphans they stay."""

from __future__ import annotations

import contextlib
import os
import sys

from dynamic_mcp.upstream.process.table import has_table, list_pids, read_stat


class ProcessGroup:
    """A group by its number, from when its leader is reaped until all of it has ended."""

    def __init__(self, number: int) -> None:
        self.has_ended = False
        """It must not be signalled any more: its number may be that of another group."""
        self._number = number
        self._members: list[int] = []
        self._was_empty = False

    def poll(self) -> bool:
        """Look for processes of the group, and reap those that are ours; return whether one still runs."""
        self.has_ended = self.has_ended or not self._is_running()
        return not self.has_ended

    def _is_running(self) -> bool:
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self._number, 0)
        except (ProcessLookupError, PermissionError):
            return False
        self._reap()
        if not has_table():
            return True
        self._members = self._filter_running(self._members) or self._filter_running(list_pids())
        if self._members:
            self._was_empty = False
            return True
        # a process that starts while the list is being read shows up the second time
        was_empty, self._was_empty = self._was_empty, True
        return not was_empty

    def _reap(self) -> None:
        """Reap the zombies that have become our children; they are what still reserves the group's number."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self._number, os.WNOHANG) != (0, 0):
                pass

    def _filter_running(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if self._is_running_member(pid)]

    def _is_running_member(self, pid: int) -> bool:
        stat = read_stat(pid)
        return stat is not None and stat.group == self._number and not stat.has_ended
