"""Puts the lines of one day's file into the index, in transactions that others may run at the same time.

What is known of a file is how far it was read, and the bytes before that place. Because lines are chained, these
bytes are others where any line before them was written anew.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from dynamic_mcp.features.audit.query import NO_ERRORS, pace_of
from dynamic_mcp.features.audit.reader import DAMAGED, read_whole_lines

# A transaction keeps other commands from writing for as long as this many lines take.
_BATCH = 50_000
_MARK = 80
_COLUMNS = (
    "at, file, start, size, event, who, client, grp, name, shown, config, decision, failed, denied, took, pace, bytes"
)
_INSERT = f"INSERT INTO lines ({_COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - no text of others


class KnownFile(Struct, frozen=True):
    """A file that is in the index: how far, what is before that place, and its status when it was read last.

    `latest` is the time of the last line, which stands for that of a line without one.
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
        """Tell whether nothing was written to the file since."""
        return (self.inode, self.size, self.changed) == (status.st_ino, status.st_size, status.st_mtime_ns)

    def may_go_on(self, file: BinaryIO, status: os.stat_result) -> bool:
        """Tell whether lines were only added to the file since."""
        if status.st_size < self.done or (status.st_size == self.size and not self.is_same(status)):
            return False
        start = max(self.done - _MARK, 0)
        file.seek(start)
        return file.read(self.done - start) == self.mark


class _Row(Struct, frozen=True, gc=False):
    """What the index needs to know of a line."""

    at: datetime
    event: str = ""
    outcome: str = "success"
    subject: str = ""
    client: str = ""
    config: str = ""
    group: str = ""
    name: str = ""
    shown: str = ""
    decision: str = ""
    result_bytes: int = 0
    ms: float = 0.0
    wait_ms: float = 0.0


_decode = msgspec.json.Decoder(_Row).decode


def read_known(connection: sqlite3.Connection) -> dict[str, KnownFile]:
    """Return the files that are in the index, by their names."""
    rows = connection.execute("SELECT id, name, head, mark, done, latest, inode, size, changed FROM files")
    return {row[1]: KnownFile(*row) for row in rows}


def forget(connection: sqlite3.Connection, ids: list[int]) -> None:
    """Remove files and their lines from the index, in a transaction."""
    marks = ", ".join("?" * len(ids))
    connection.execute(f"DELETE FROM lines WHERE file IN ({marks})", ids)  # noqa: S608 - no text of others
    connection.execute(f"DELETE FROM files WHERE id IN ({marks})", ids)  # noqa: S608


class FileIndexer:
    """Indexes files through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._words: dict[str, int] = {"": 0}

    def advance(self, path: Path) -> int | None:
        """Add the next lines of a file, in a transaction; return where they end, None if there were none."""
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            known = read_known(self._connection).get(path.name)
            if known is not None and known.is_same(status):
                return None
            if known is None or not known.may_go_on(file, status):
                known = self._begin(path.name, file, known)
            return self._add(known, file, status)

    def _begin(self, name: str, file: BinaryIO, known: KnownFile | None) -> KnownFile:
        """Begin with a file that is new, or another than it was."""
        if known is not None:
            forget(self._connection, [known.id])
        first = next(read_whole_lines(file, 0), (0, b""))[1]
        head = sha256(first).hexdigest() if first else ""
        cursor = self._connection.execute(
            "INSERT INTO files VALUES (NULL, ?, ?, ?, 0, 0, 0, -1, 0)", [name, head, b""]
        )
        assert cursor.lastrowid is not None
        return KnownFile(cursor.lastrowid, name, head, b"", 0, 0, 0, -1, 0)

    def _add(self, known: KnownFile, file: BinaryIO, status: os.stat_result) -> int | None:
        lines = list(itertools.islice(read_whole_lines(file, known.done), _BATCH))
        rows = list(self._rows(known, lines))
        self._connection.executemany(_INSERT, rows)
        done, mark, head = known.done, known.mark, known.head
        if lines:
            start, last = lines[-1]
            done = start + len(last)
            file.seek(max(done - _MARK, 0))
            mark = file.read(done - file.tell())
            head = head or sha256(lines[0][1]).hexdigest()
        is_whole, latest = len(lines) < _BATCH, rows[-1][0] if rows else known.latest
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
                known.id,
            ],
        )
        return None if is_whole else done

    def _rows(self, known: KnownFile, lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, ...]]:
        word, file, before = self._word, known.id, known.latest
        for start, data in lines:
            try:
                row = _decode(data)
                before = at = int(row.at.timestamp() * 1000 + 0.5)
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
                yield (before, file, start, len(data), word(DAMAGED), 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
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
            )

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


def list_heads(known: Mapping[str, KnownFile]) -> dict[str, int]:
    """Return how far files are in the index, by their first lines."""
    return {each.head: each.done for each in known.values()}
