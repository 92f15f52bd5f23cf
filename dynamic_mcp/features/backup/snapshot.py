"""Copies of single files that others write meanwhile: each as it was at one moment.

Files that are replaced are read as they are. A log that is appended to ends with its last whole line. A database is
copied by SQLite, into memory, so that nothing of it is written elsewhere in plain text.
"""

from __future__ import annotations

import io
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.backup.inventory import SQLITE, KeptFile

# Larger ones are logs, which grow at their end.
_IN_MEMORY = 8 << 20
_BUSY_S = 10.0
_LINES = ".jsonl"
_BLOCK = 1 << 16


class Snapshot:
    """The content of one file, of a size that is known."""

    def __init__(self, name: str, content: BinaryIO, size: int, modified_at: float) -> None:
        self.name = name
        self.size = size
        self.modified_at = modified_at
        self._content = content

    def open(self) -> BinaryIO:
        """Return the content, which the caller closes."""
        return self._content


def take_snapshot(file: KeptFile) -> Snapshot | None:
    """Return the content of a file as it is now; None if it has gone. Raises OSError and DynamicMcpError."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(file.path, flags)
    except FileNotFoundError:
        return None
    opened = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    if opened.peek(len(SQLITE)).startswith(SQLITE):
        opened.close()
        return _in_memory(file, _copy_database(file.path), status.st_mtime)
    if status.st_size <= _IN_MEMORY:
        with opened:
            data = opened.read(status.st_size)
        return _in_memory(file, _whole_lines(data) if file.path.suffix == _LINES else data, status.st_mtime)
    size = _end_of_lines(opened, status.st_size) if file.path.suffix == _LINES else status.st_size
    opened.seek(0)
    return Snapshot(file.name, opened, size, status.st_mtime)


def _in_memory(file: KeptFile, data: bytes, modified_at: float) -> Snapshot:
    return Snapshot(file.name, io.BytesIO(data), len(data), modified_at)


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]


def _end_of_lines(file: BinaryIO, size: int) -> int:
    """Return where the last whole line ends."""
    end = size
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _copy_database(file: Path) -> bytes:
    """Return a database as it is between two transactions. Raises DynamicMcpError."""
    try:
        with (
            closing(sqlite3.connect(file, timeout=_BUSY_S)) as source,
            closing(sqlite3.connect(":memory:")) as copied,
        ):
            source.backup(copied)
            return copied.serialize()
    except sqlite3.Error as exc:
        raise DynamicMcpError(
            f"`{file}` cannot be copied: {exc}", hint="if it is damaged, move it away; serving makes a new one"
        ) from exc
