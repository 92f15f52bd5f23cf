"""An index over the files of the audit log, which answers questions about a million lines within a second.

It only follows the files, can be removed at any time, and is made anew where it is damaged. If it cannot be kept,
it is made in memory.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.features.audit import days, index_file, query
from dynamic_mcp.features.audit.indexing import FileIndexer, forget, list_heads, read_known
from dynamic_mcp.features.audit.query import CallCount, LineFilter, Subject
from dynamic_mcp.features.audit.reader import Place, StoredLine, read_places

T = TypeVar("T")

log = logging.getLogger(__name__)

# Told how many bytes of the new ones were read, and how many there are.
Progress = Callable[[int, int], None]

_CANNOT_KEEP = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}


class AuditIndex:
    """The index of the log in a directory. Raises OSError if the log cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._database = index_file.database_for(directory)
        self._identity = 0
        self._last = 0
        self._connection = self._open()
        self._indexer = FileIndexer(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def refresh(self, progress: Progress | None = None) -> None:
        """Take up what has happened to the files since."""
        self._work(lambda: self._refresh(progress))

    def find(self, wanted: LineFilter, most: int | None = None) -> Iterator[StoredLine]:
        """Yield the lines that are wanted, the oldest first: all, or only the last ones."""
        if most is not None:
            places = self._work(lambda: list(query.find_places(self._connection, wanted, most)))
            return read_places(self._directory, places)
        return read_places(self._directory, query.find_places(self._connection, wanted))

    def count(self, wanted: LineFilter) -> int:
        """Return how many lines are wanted."""
        return self._work(lambda: query.count_lines(self._connection, wanted))

    def count_calls(self, wanted: LineFilter, by: Subject) -> list[CallCount]:
        """Return the calls that are wanted, by who or what they are about."""
        return self._work(lambda: list(query.count_calls(self._connection, wanted, by)))

    def follow(self, wanted: LineFilter) -> Iterator[list[StoredLine]]:
        """Yield the lines that were added since the last refresh, whenever the next ones are asked for."""
        seen = list_heads(read_known(self._connection))
        self._last = self._last_row()
        while True:
            self.refresh()
            places = self._work(partial(self._find_new, wanted, seen))
            seen = list_heads(read_known(self._connection))
            yield list(read_places(self._directory, places))

    def _find_new(self, wanted: LineFilter, seen: dict[str, int]) -> list[Place]:
        places = list(query.find_new_places(self._connection, wanted, self._last, seen))
        self._last = self._last_row()
        return places

    def _last_row(self) -> int:
        found: int = self._connection.execute("SELECT coalesce(max(id), 0) FROM lines").fetchone()[0]
        return found

    # --- following the files -----------------------------------------------------------------------------------

    def _refresh(self, progress: Progress | None) -> None:
        known = read_known(self._connection)
        files = {file.name: file for file in days.list_files(self._directory)}
        if gone := [each.id for name, each in known.items() if name not in files]:
            with self._transaction():
                forget(self._connection, gone)
        grown = _Growth(progress)
        for name, file in files.items():
            status = file.stat()
            before = known.get(name)
            if before is None or not before.is_same(status):
                grown.add(file, status.st_size - (before.done if before is not None else 0))
        for file, size in grown.files.items():
            self._index(file, size, grown)
        for statement in index_file.ORDER:
            self._connection.execute(statement)

    def _index(self, file: Path, size: int, grown: _Growth) -> None:
        done: int | None = 0
        while done is not None:
            with self._transaction():
                done = self._indexer.advance(file)
            grown.report(file, size if done is None else done)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # --- the file of the index ---------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._database.open()
            self._identity = self._database.file.stat().st_ino
        except (sqlite3.OperationalError, OSError) as exc:
            log.info("the index of the audit log cannot be kept, so it is made in memory: %s", exc)
            return self._database.open_in_memory()
        return connection

    def _work(self, work: Callable[[], T]) -> T:
        """Do something, once more with a new index if this one is damaged or cannot be written."""
        try:
            return work()
        except sqlite3.DatabaseError as exc:
            self._replace(exc)
        self._refresh(None)
        return work()

    def _replace(self, exc: sqlite3.DatabaseError) -> None:
        self._connection.close()
        if isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF in _CANNOT_KEEP:
            log.info("the index of the audit log cannot be kept, so it is made in memory: %s", exc)
            self._connection = self._database.open_in_memory()
        elif isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise exc
        else:
            log.info("the index of the audit log is damaged and is made anew: %s", exc)
            self._database.remove(self._identity)
            self._connection = self._open()
        self._last = 0
        self._indexer = FileIndexer(self._connection)


class _Growth:
    """The files that have grown, and how much of that was read."""

    def __init__(self, progress: Progress | None) -> None:
        self.files: dict[Path, int] = {}
        self._read: dict[Path, int] = {}
        self._progress = progress

    def add(self, file: Path, size: int) -> None:
        """Note that a file has grown by this much."""
        self.files[file] = max(size, 0)

    def report(self, file: Path, done: int) -> None:
        """Tell how far everything is."""
        self._read[file] = min(done, self.files[file])
        if self._progress is not None:
            self._progress(sum(self._read.values()), sum(self.files.values()))
