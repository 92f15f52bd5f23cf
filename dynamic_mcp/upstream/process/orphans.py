"""Reaps orphans: processes whose parents have ended, which Linux makes children of a subreaper.

Children that other code has started look the same once they have ended. Their exit codes belong to that code, so only
what has stayed unreaped for a while is reaped.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from dynamic_mcp.upstream.process.table import read_table

_EVERY_S = 60.0


class OrphanReaper:
    """Reaps the zombies among our children, except servers, which `is_server` knows."""

    def __init__(self, is_server: Callable[[int], bool]) -> None:
        self._is_server = is_server
        self._seen = set[tuple[int, int]]()

    def start(self) -> None:
        """Sweep once a minute, in a thread, until this process ends."""
        threading.Thread(target=self._run, name="orphans", daemon=True).start()

    def sweep(self) -> None:
        """Reap what was a zombie at the last sweep already."""
        zombies = self._find_zombies()
        for pid, _ in zombies & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = zombies - self._seen

    def _find_zombies(self) -> set[tuple[int, int]]:
        """Return them with the times of their starts, because a pid may belong to another process later."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:  # most of the time
                return set()
        us = os.getpid()
        return {
            (pid, process.start)
            for pid, process in read_table().items()
            if process.has_ended and process.parent == us and not self._is_server(pid)
        }

    def _run(self) -> None:
        while True:
            time.sleep(_EVERY_S)
            self.sweep()
