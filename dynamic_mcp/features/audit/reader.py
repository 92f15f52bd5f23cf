"""The index as the page uses it: it follows the log in one thread, and is asked in another meanwhile.

What is asked is answered from what is indexed already; the first indexing of a long log takes seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.index import AuditIndex
from dynamic_mcp.features.audit.query import LineCursor, LineFilter

T = TypeVar("T")

log = logging.getLogger(__name__)

# How often it looks for new lines while a page is open, and after how long it goes on without them.
_LOOK_EVERY_S = 1.0
_REFRESH_WITHIN_S = 0.5
_MOST_NEWEST = 200
# A page asks little at a time, and the process that serves it has other things to keep in memory.
_CACHE_KIB = 8192


class NotIndexed(Exception):
    """The log is being indexed for the first time."""


class IndexReader:
    """The index of the log in a directory, for one event loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = _IndexThread(directory, "index of the audit log")
        self._asker = _IndexThread(directory, "questions to the audit log")
        self._refreshing: asyncio.Task[None] | None = None
        self._looked_at = -math.inf
        self._seen: object = None
        self._version = 0
        self._is_closed = False
        self._newest: dict[LineFilter, tuple[int, LineCursor | None]] = {}
        self._asking: dict[LineFilter, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<IndexReader {self.directory}>"

    async def refresh(self, within_s: float = _REFRESH_WITHIN_S) -> bool:
        """Index new lines; return whether that was done in time. It goes on if it was not."""
        if self._refreshing is None:
            self._begin_refresh()
        assert self._refreshing is not None
        refreshing = self._refreshing
        await asyncio.wait([refreshing], timeout=within_s)
        return refreshing.done() and not refreshing.cancelled() and refreshing.exception() is None

    async def ask(self, work: Callable[[AuditIndex], T]) -> T:
        """Return what the index answers. Raises NotIndexed, OSError and sqlite3.Error."""
        if not self._version:  # to open it could take as long as the first lines are added
            raise NotIndexed

        def answer(index: AuditIndex) -> T:
            if not index.is_ready:
                raise NotIndexed
            return work(index)

        # an index that cannot be written is in the memory of the thread that follows the log
        asked = self._writer if self._writer.is_in_memory else self._asker
        return await asked.run(answer)

    def newest(self, wanted: LineFilter) -> Hashable:
        """Return the place of the newest matching line, as it was found last; look for newer ones meanwhile."""
        self._look()
        version, cursor = self._newest.get(wanted, (-1, None))
        if version != self._version and wanted not in self._asking:
            task = self._asking[wanted] = asyncio.create_task(self._find_newest(wanted), name="newest line")
            task.add_done_callback(lambda task: self._asking.pop(wanted, None))
        return cursor

    async def note_newest(self, wanted: LineFilter) -> None:
        """Find the newest matching line, so that `newest` changes only with newer ones."""
        if wanted not in self._newest:
            await self._find_newest(wanted)

    async def close(self) -> None:
        """Close the index once its threads have ended what they do."""
        self._is_closed = True
        for task in [*self._asking.values(), *([self._refreshing] if self._refreshing else [])]:
            task.cancel()
        await self._writer.close()
        await self._asker.close()

    def _look(self) -> None:
        """Index new lines, if there are any."""
        now = time.monotonic()
        if self._refreshing is None and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            if _stamp_of(self.directory) != self._seen:
                self._begin_refresh()

    def _begin_refresh(self) -> None:
        self._refreshing = asyncio.create_task(self._refresh(), name="refresh of the index of the audit log")
        self._refreshing.add_done_callback(self._end_refresh)

    async def _refresh(self) -> None:
        seen = _stamp_of(self.directory)
        await self._writer.run(lambda index: index.refresh(self._check_open))
        self._seen = seen
        self._version += 1

    def _check_open(self, done: int, size: int) -> None:
        if self._is_closed:
            raise OSError("the page is closed")

    def _end_refresh(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (exc := task.exception()) is not None and not self._is_closed:
            log.warning("the audit log cannot be indexed: %s", exc)

    async def _find_newest(self, wanted: LineFilter) -> None:
        version = self._version
        try:
            cursor = await self.ask(lambda index: index.find_newest(wanted))
        except (NotIndexed, OSError, sqlite3.Error):
            return
        if len(self._newest) >= _MOST_NEWEST:
            self._newest.clear()
        self._newest[wanted] = (version, cursor)


class _IndexThread:
    """A thread with an index of its own, which only it uses."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._index: AuditIndex | None = None
        self.is_in_memory = False

    async def run(self, work: Callable[[AuditIndex], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        self._executor.shutdown(wait=False)

    def _run(self, work: Callable[[AuditIndex], T]) -> T:
        if self._index is not None and not self.is_in_memory and not self._index.is_current:
            self._close()  # another process has replaced the file
        if self._index is None:
            self._index = AuditIndex(self._directory, cache_kib=_CACHE_KIB)
        try:
            return work(self._index)
        finally:
            self.is_in_memory = self._index.is_in_memory

    def _close(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None


def _stamp_of(directory: Path) -> object:
    """Return a value that changes with each new line: the day and the size of the newest file."""
    file = days.file_of(directory, days.day_at(time.time()))
    try:
        return file.name, file.stat().st_size
    except OSError:
        return file.name, 0
