"""Lets a command clear the caches of all the user's proxies through the modification times of small files.

A proxy checks them when it is about to use a cached result, at most once a second, and in a thread, so that no call
waits for a disk that stalls.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

from dynamic_mcp.system import paths
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.file_store import Stamp, stamp_of

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# After this time, every proxy has seen a mark.
SEEN_AFTER_S = LOOK_EVERY_S + 0.5
_ALL = "all"
_PATIENCE_S = 0.5


def clearing_folder(state_folder: Path) -> Path:
    """Return the folder of the marks."""
    return state_folder / "cache-clear"


def mark_cleared(state_folder: Path, server: str | None = None) -> None:
    """Request that all proxies drop the cached results of one server, or of all. Blocks. Raises OSError."""
    folder = clearing_folder(state_folder)
    paths.write_private(folder / _file_name(server), (server or "").encode("utf-8", "replace"), durable=False)


class ClearingMarks:
    """The marks that a proxy has seen. Marks present at the start concern the caches of other processes."""

    def __init__(self, state_folder: Path, clock: Clock) -> None:
        self._folder = clearing_folder(state_folder)
        self._clock = clock
        self._stamps: dict[str | None, Stamp | None] = {}
        self._due_at = -1.0
        self._looking: asyncio.Task[dict[str | None, Stamp | None]] | None = None

    def is_due(self, server: str) -> bool:
        """Return whether to `look` before using a cached result of a server."""
        return self._clock.now() >= self._due_at or server not in self._stamps

    async def look(self, server: str) -> list[str | None]:
        """Return the servers whose results must be dropped; None stands for all servers."""
        if self._looking is not None and not self._looking.done():
            return []  # the disk has stalled
        self._due_at = self._clock.now() + LOOK_EVERY_S
        names = {None, server, *self._stamps}
        self._looking = asyncio.create_task(asyncio.to_thread(_read, self._folder, names))
        done, _ = await asyncio.wait([self._looking], timeout=_PATIENCE_S)
        if not done:
            log.warning("%s cannot be read in time; kept results are used nevertheless", self._folder)
            return []
        found = self._looking.result()
        marked = [name for name, stamp in found.items() if name in self._stamps and self._stamps[name] != stamp]
        self._stamps.update(found)
        return marked


def _read(folder: Path, servers: Iterable[str | None]) -> dict[str | None, Stamp | None]:
    return {server: stamp_of(folder / _file_name(server)) for server in servers}


def _file_name(server: str | None) -> str:
    return _ALL if server is None else hashlib.sha256(server.encode("utf-8", "replace")).hexdigest()[:32]
