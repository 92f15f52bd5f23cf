"""An index over the files of the audit log, which answers queries about a million lines within a second.

It is a private SQLite file in the cache, one for each directory of logs. It only follows the log, can be removed at
any time, and is rebuilt if it is damaged. If it cannot be written, it is built in memory.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec
from msgspec import Struct

from dynamic_mcp.features.audit import days, query
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.days import DAMAGED_EVENT, LinePlace, StoredLine, read_places, read_whole_lines
from dynamic_mcp.features.audit.query import (
    CALLS,
    HOUR_MS,
    MINUTE_MS,
    NO_ERRORS,
    CallCount,
    LineCursor,
    LineFilter,
    Subject,
    UseCount,
    digest_of,
    pace_of,
)
from dynamic_mcp.system import paths
from dynamic_mcp.system.database_file import DatabaseFile, delete_database, transaction

T = TypeVar("T")

log = logging.getLogger(__name__)

# Called with the number of new bytes that were read, and of all new ones.
Progress = Callable[[int, int], None]

_CANNOT_KEEP = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
_FORMAT = 2
# Another command has the file for a second while it adds lines.
_BUSY_S = 60.0
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -{cache_kib};
CREATE TABLE IF NOT EXISTS files (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, head TEXT NOT NULL, mark BLOB NOT NULL, done INTEGER NOT NULL,
  latest INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, changed INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS words (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
INSERT OR IGNORE INTO words VALUES (0, '');
CREATE TABLE IF NOT EXISTS lines (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, file INTEGER NOT NULL, start INTEGER NOT NULL,
  size INTEGER NOT NULL, event INTEGER NOT NULL, who INTEGER NOT NULL, client INTEGER NOT NULL, grp INTEGER NOT NULL,
  name INTEGER NOT NULL, shown INTEGER NOT NULL, config INTEGER NOT NULL, decision INTEGER NOT NULL,
  failed INTEGER NOT NULL, denied INTEGER NOT NULL, took INTEGER NOT NULL, pace INTEGER NOT NULL,
  bytes INTEGER NOT NULL, issuer INTEGER NOT NULL, outcome INTEGER NOT NULL, own INTEGER NOT NULL,
  parent INTEGER NOT NULL, approval INTEGER NOT NULL, trace INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS uses (
  kind INTEGER NOT NULL, config INTEGER NOT NULL, at INTEGER NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
  file INTEGER NOT NULL, calls INTEGER NOT NULL, failed INTEGER NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (kind, config, at, a, b, file)) WITHOUT ROWID;
"""
_IN_TIME = "at, event, who, issuer, client, grp, name, shown, config, decision, outcome, failed, took, bytes"
# Created after the first lines, which are added faster without. `lines_who` and `lines_grp` cover the statistics,
# `lines_use` and `lines_person` all filters, in the order of time. The last ones find lines that belong together.
_ORDER = (
    "CREATE INDEX IF NOT EXISTS lines_at ON lines (at)",
    "CREATE INDEX IF NOT EXISTS lines_who ON lines (who, pace, at, event, config, failed, denied, bytes)",
    "CREATE INDEX IF NOT EXISTS lines_grp ON lines (grp, name, pace, at, event, config, failed, denied, bytes)",
    f"CREATE INDEX IF NOT EXISTS lines_use ON lines ({_IN_TIME})",
    f"CREATE INDEX IF NOT EXISTS lines_person ON lines (issuer, who, {_IN_TIME.replace('who, issuer, ', '')})",
    "CREATE INDEX IF NOT EXISTS lines_own ON lines (own)",
    "CREATE INDEX IF NOT EXISTS lines_parent ON lines (parent) WHERE parent",
    "CREATE INDEX IF NOT EXISTS lines_approval ON lines (approval) WHERE approval",
    "CREATE INDEX IF NOT EXISTS lines_trace ON lines (trace) WHERE trace",
)
# Lines in one transaction, during which other commands cannot write.
_BATCH = 50_000
_MARK_BYTES = 80
_COLUMNS = (
    "at, file, start, size, event, who, client, grp, name, shown, config, decision, failed, denied, took, pace,"
    " bytes, issuer, outcome, own, parent, approval, trace"
)
_INSERT = f"INSERT INTO lines ({_COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608 - no text of others
_ADD_USES = (
    "INSERT INTO uses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
    " SET calls = calls + excluded.calls, failed = failed + excluded.failed, bytes = bytes + excluded.bytes"
)


class AuditIndex:
    """The index of the log in a directory, which keeps `cache_kib` of it in memory.

    Raises OSError if the log cannot be read.
    """

    def __init__(self, directory: Path, *, cache_kib: int = 65_536) -> None:
        self.is_in_memory = False
        self._directory = directory
        self._database = _database_for(directory, cache_kib)
        self._identity = 0
        self._last = 0
        self._connection = self._open()
        self._indexer = _FileIndexer(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def refresh(self, progress: Progress | None = None) -> None:
        """Index the changes of the files since the last refresh."""
        self._work(lambda: self._refresh(progress))

    def find(self, wanted: LineFilter, most: int | None = None) -> Iterator[StoredLine]:
        """Yield the matching lines, the oldest first: all, or only the last ones."""
        if most is not None:
            places = self._work(lambda: list(query.find_places(self._connection, wanted, most)))
            return read_places(self._directory, places)
        return read_places(self._directory, query.find_places(self._connection, wanted))

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked: not before it has all lines for the first time."""
        wanted = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name LIKE 'lines\\_%' ESCAPE '\\'"
        found: int = self._connection.execute(wanted).fetchone()[0]
        return found == len(_ORDER)

    @property
    def is_current(self) -> bool:
        """Whether its file is still there, and not another one."""
        try:
            return self._database.file.stat().st_ino == self._identity
        except OSError:
            return False

    def find_page(
        self, wanted: LineFilter, most: int, before: LineCursor | None = None
    ) -> list[tuple[LineCursor, StoredLine]]:
        """Return the last matching lines before a place, the newest first."""
        found = self._work(lambda: query.find_page(self._connection, wanted, most, before))
        lines = ((cursor, next(read_places(self._directory, [place]), None)) for cursor, place in found)
        return [(cursor, line) for cursor, line in lines if line is not None]

    def find_newest(self, wanted: LineFilter) -> LineCursor | None:
        """Return the place of the last matching line."""
        found = self._work(lambda: query.find_page(self._connection, wanted, 1))
        return found[0][0] if found else None

    def find_by_id(self, id: str) -> StoredLine | None:
        """Return the line with this id."""
        return next((each for each in self._find_ids("own", id, 10) if each.record.id == id), None)

    def find_story(self, line: AuditLine, most: int) -> list[StoredLine]:
        """Return the lines that belong to one, the oldest first: its script and what that has called, the approval
        and the trace."""
        found = [*self._find_ids("parent", line.id, most), *self._find_ids("own", line.parent, most)]
        for column in ("parent", "approval", "trace"):
            value: str = getattr(line, column)
            found += [each for each in self._find_ids(column, value, most) if getattr(each.record, column) == value]
        known = {each.record.id: each for each in found if each.line is not None and each.record.id != line.id}
        return sorted(known.values(), key=lambda each: (each.record.at, each.record.n))[:most]

    def _find_ids(
        self, column: Literal["own", "parent", "approval", "trace"], id: str, most: int
    ) -> list[StoredLine]:
        if not id:
            return []
        return [*read_places(self._directory, self._work(lambda: query.find_ids(self._connection, column, id, most)))]

    def find_begin(self) -> int | None:
        """Return the time of the oldest line, in milliseconds since 1970."""
        return self._work(lambda: query.find_begin(self._connection))

    def count_steps(self, wanted: LineFilter, begin: int, end: int, steps: int) -> list[UseCount]:
        """Return the number of matching lines in each step of a time; of calls alone, they are counted already."""
        if wanted == LineFilter(only_calls=True, config=wanted.config, since=wanted.since, until=wanted.until):
            return self._work(lambda: query.count_minutes(self._connection, wanted.config, begin, end, steps))
        return self._work(lambda: query.count_steps(self._connection, wanted, begin, end, steps))

    def count_uses(self, wanted: LineFilter, by: Literal["tool", "client"], most: int) -> list[UseCount]:
        """Return the most used tools, or the clients with most calls, since a time, by `config` and `owner` alone."""
        return self._work(lambda: query.count_uses(self._connection, wanted, by, most))

    def count(self, wanted: LineFilter) -> int:
        """Return the number of matching lines."""
        return self._work(lambda: query.count_lines(self._connection, wanted))

    def count_calls(self, wanted: LineFilter, by: Subject) -> list[CallCount]:
        """Return the matching calls, by user, group or tool."""
        return self._work(lambda: list(query.count_calls(self._connection, wanted, by)))

    def follow(self, wanted: LineFilter) -> Iterator[list[StoredLine]]:
        """Yield the matching lines that were added since the last refresh; each `next` refreshes."""
        heads = _list_heads(_read_files(self._connection))
        self._last = self._last_row()
        while True:
            self.refresh()
            places = self._work(partial(self._find_new, wanted, heads))
            heads = _list_heads(_read_files(self._connection))
            yield list(read_places(self._directory, places))

    def _find_new(self, wanted: LineFilter, heads: dict[str, int]) -> list[LinePlace]:
        places = list(query.find_new_places(self._connection, wanted, self._last, heads))
        self._last = self._last_row()
        return places

    def _last_row(self) -> int:
        found: int = self._connection.execute("SELECT coalesce(max(id), 0) FROM lines").fetchone()[0]
        return found

    # --- following the files -----------------------------------------------------------------------------------

    def _refresh(self, progress: Progress | None) -> None:
        records = _read_files(self._connection)
        files = {file.name: file for file in days.list_files(self._directory)}
        if gone := [each.id for name, each in records.items() if name not in files]:
            with transaction(self._connection):
                _forget(self._connection, gone)
        grown: dict[Path, int] = {}
        for name, file in files.items():
            status = file.stat()
            before = records.get(name)
            if before is None or not before.is_same(status):
                grown[file] = max(status.st_size - (0 if before is None else before.done), 0)
        read = 0
        for file, size in grown.items():
            done: int | None = 0
            while done is not None:
                if progress is not None:
                    progress(read + min(done, size), sum(grown.values()))
                with transaction(self._connection):
                    done = self._indexer.advance(file)
            read += size
        for statement in _ORDER:
            self._connection.execute(statement)

    # --- the file of the index ---------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if not self._database.file.exists():
            _remove_older(self._directory)
        try:
            connection = self._database.open()
            self._identity = self._database.file.stat().st_ino
        except (sqlite3.OperationalError, OSError) as exc:
            log.info("the index of the audit log cannot be written and is built in memory: %s", exc)
            self.is_in_memory = True
            return self._database.open_in_memory()
        return connection

    def _work(self, work: Callable[[], T]) -> T:
        """Do some work, and repeat it with a new index if this one is damaged or cannot be written."""
        try:
            return work()
        except sqlite3.DatabaseError as exc:
            self._replace(exc)
        self._refresh(None)
        return work()

    def _replace(self, exc: sqlite3.DatabaseError) -> None:
        self._connection.close()
        if isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF in _CANNOT_KEEP:
            log.info("the index of the audit log cannot be written and is built in memory: %s", exc)
            self.is_in_memory = True
            self._connection = self._database.open_in_memory()
        elif isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise exc
        else:
            log.info("the index of the audit log is damaged and is rebuilt: %s", exc)
            self._database.remove(self._identity)
            self._connection = self._open()
        self._last = 0
        self._indexer = _FileIndexer(self._connection)


def file_for(directory: Path, version: int = _FORMAT) -> Path:
    """Return the index of the log in a directory."""
    name = sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
    return paths.cache_dir() / "audit" / f"{name}.v{version}.sqlite"


def _remove_older(directory: Path) -> None:
    """Remove the indexes of earlier versions."""
    for version in range(1, _FORMAT):
        file = file_for(directory, version)
        with contextlib.suppress(OSError):
            delete_database(file)
            file.with_suffix(".lock").unlink(missing_ok=True)


def _database_for(directory: Path, cache_kib: int) -> DatabaseFile:
    return DatabaseFile(file_for(directory), _SCHEMA.format(cache_kib=cache_kib), _BUSY_S)


class _IndexedFile(Struct, frozen=True):
    """An indexed file: how far it was read, the bytes before that position, and its status then.

    `latest` is the time of the last line, which lines without a time get.
    """

    id: int
    name: str
    head: str
    mark: bytes
    done: int
    latest: int
    inode: int
    size: int
    changed: int

    def is_same(self, status: os.stat_result) -> bool:
        """Return whether nothing was written to the file since."""
        return (self.inode, self.size, self.changed) == (status.st_ino, status.st_size, status.st_mtime_ns)

    def may_go_on(self, file: BinaryIO, status: os.stat_result) -> bool:
        """Return whether lines were only added to the file since."""
        if status.st_size < self.done or (status.st_size == self.size and not self.is_same(status)):
            return False
        start = max(self.done - _MARK_BYTES, 0)
        file.seek(start)
        return file.read(self.done - start) == self.mark


class _IndexedLine(Struct, frozen=True, gc=False):
    """The members of a line that are indexed."""

    at: datetime
    event: str = ""
    outcome: str = "success"
    id: str = ""
    issuer: str = ""
    subject: str = ""
    trace: str = ""
    parent: str = ""
    approval: str = ""
    client: str = ""
    config: str = ""
    group: str = ""
    name: str = ""
    shown: str = ""
    decision: str = ""
    result_bytes: int = 0
    ms: float = 0.0
    wait_ms: float = 0.0


_decode = msgspec.json.Decoder(_IndexedLine).decode
# What follows the event of a line that cannot be read: it has failed, and nothing else is known.
_DAMAGED = (0, 0, 0, 0, 0, 0, 0, 1, *(0,) * 10)


def _read_files(connection: sqlite3.Connection) -> dict[str, _IndexedFile]:
    """Return the indexed files, by their names."""
    rows = connection.execute("SELECT id, name, head, mark, done, latest, inode, size, changed FROM files")
    return {row[1]: _IndexedFile(*row) for row in rows}


def _forget(connection: sqlite3.Connection, ids: list[int]) -> None:
    """Remove files and their lines from the index, in a transaction."""
    marks = ", ".join("?" * len(ids))
    connection.execute(f"DELETE FROM lines WHERE file IN ({marks})", ids)  # noqa: S608 - no text of others
    connection.execute(f"DELETE FROM uses WHERE file IN ({marks})", ids)  # noqa: S608
    connection.execute(f"DELETE FROM files WHERE id IN ({marks})", ids)  # noqa: S608


class _FileIndexer:
    """Adds the lines of files to the index, in transactions, as other processes may do too.

    Because lines are chained, the bytes before the known position differ if any line before them was rewritten.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._words: dict[str, int] = {"": 0}

    def advance(self, path: Path) -> int | None:
        """Add the next lines of a file, in a transaction; return where they end, None at the end of the file."""
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            record = _read_files(self._connection).get(path.name)
            if record is not None and record.is_same(status):
                return None
            if record is None or not record.may_go_on(file, status):
                record = self._begin(path.name, file, record)
            return self._add(record, file, status)

    def _begin(self, name: str, file: BinaryIO, record: _IndexedFile | None) -> _IndexedFile:
        """Begin with a file that is new or was replaced."""
        if record is not None:
            _forget(self._connection, [record.id])
        first = next(read_whole_lines(file, 0), (0, b""))[1]
        head = sha256(first).hexdigest() if first else ""
        cursor = self._connection.execute(
            "INSERT INTO files VALUES (NULL, ?, ?, ?, 0, 0, 0, -1, 0)", [name, head, b""]
        )
        assert cursor.lastrowid is not None
        return _IndexedFile(cursor.lastrowid, name, head, b"", 0, 0, 0, -1, 0)

    def _add(self, record: _IndexedFile, file: BinaryIO, status: os.stat_result) -> int | None:
        lines = list(itertools.islice(read_whole_lines(file, record.done), _BATCH))
        rows = list(self._rows(record, lines))
        self._connection.executemany(_INSERT, rows)
        self._connection.executemany(_ADD_USES, self._count_uses(record, rows))
        done, mark, head = record.done, record.mark, record.head
        if lines:
            start, last = lines[-1]
            done = start + len(last)
            file.seek(max(done - _MARK_BYTES, 0))
            mark = file.read(done - file.tell())
            head = head or sha256(lines[0][1]).hexdigest()
        is_whole, latest = len(lines) < _BATCH, rows[-1][0] if rows else record.latest
        self._connection.execute(
            "UPDATE files SET head = ?, mark = ?, done = ?, latest = ?, inode = ?, size = ?, changed = ?"
            " WHERE id = ?",
            [
                head,
                mark,
                done,
                latest,
                status.st_ino,
                status.st_size if is_whole else -1,
                status.st_mtime_ns,
                record.id,
            ],
        )
        return None if is_whole else done

    def _rows(self, record: _IndexedFile, lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, ...]]:
        word, file, before = self._word, record.id, record.latest
        for start, data in lines:
            try:
                row = _decode(data)
                before = at = int(row.at.timestamp() * 1000 + 0.5)
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
                yield (before, file, start, len(data), word(DAMAGED_EVENT), *_DAMAGED)
                continue
            yield (
                at,
                file,
                start,
                len(data),
                word(row.event),
                word(row.subject),
                word(row.client),
                word(row.group),
                word(row.name),
                word(row.shown),
                word(row.config),
                word(row.decision),
                row.outcome not in NO_ERRORS,
                row.outcome == "denied",
                int(row.ms * 1000),
                pace_of(row.ms - row.wait_ms),  # a person's time says nothing of a tool
                row.result_bytes,
                word(row.issuer),
                word(row.outcome),
                digest_of(row.id),
                digest_of(row.parent),
                digest_of(row.approval),
                digest_of(row.trace),
            )

    def _count_uses(self, record: _IndexedFile, rows: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """Yield how much was used in each minute, and of each tool and by each client in each hour."""
        calls = {self._word(each) for each in CALLS}
        counts: dict[tuple[int, ...], list[int]] = {}
        for at, _, _, _, event, _, client, group, name, _, config, _, failed, _, _, _, size, *_ in rows:
            if event in calls:
                minute, hour = at - at % MINUTE_MS, at - at % HOUR_MS
                for key in ((0, config, minute, 0, 0), (1, config, hour, group, name), (2, config, hour, client, 0)):
                    count = counts.setdefault(key, [0, 0, 0])
                    count[0] += 1
                    count[1] += failed
                    count[2] += size
        return ((*key, record.id, *count) for key, count in counts.items())

    def _word(self, text: str) -> int:
        found = self._words.get(text)
        if found is None:
            found = self._words[text] = self._find_word(text)
        return found

    def _find_word(self, text: str) -> int:
        text = text.encode(errors="replace").decode()  # half of a surrogate pair
        row = self._connection.execute("SELECT id FROM words WHERE text = ?", [text]).fetchone()
        if row is not None:
            return int(row[0])
        added = self._connection.execute("INSERT INTO words (text) VALUES (?)", [text]).lastrowid
        assert added is not None
        return added


def _list_heads(files: Mapping[str, _IndexedFile]) -> dict[str, int]:
    """Return how far files are indexed, by the hashes of their first lines."""
    return {each.head: each.done for each in files.values()}
