"""A private SQLite file shared by several processes, and replaced when it is damaged."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dynamic_mcp.system import file_reader, paths

log = logging.getLogger(__name__)

_SUFFIXES = ("-wal", "-shm", "")


@dataclass(frozen=True)
class DatabaseFile:
    """The path of a database, and its schema, which may begin with pragmas. `busy_s` is the time to wait for a lock.

    A damaged file is set aside as `.bad` if `if_lost` says what the user must do again. Without `if_lost`, the
    content can be rebuilt, and the file is deleted.
    """

    file: Path
    schema: str
    busy_s: float
    if_lost: str = ""

    def open(self, *, platform: str = sys.platform) -> sqlite3.Connection:
        """Open the database, or a new one in its place if it is damaged. Raises OSError and sqlite3.Error.

        The connection does not begin transactions by itself. Any thread may use it, but only one at a time.
        """
        with self._locked():
            try:
                return self._open(platform)
            except sqlite3.OperationalError:
                raise  # locked, or the disk is full: the content is intact
            except sqlite3.DatabaseError as exc:
                if self.if_lost:
                    log.warning("%s cannot be read and is set aside; %s: %s", self.file, self.if_lost, exc)
                    file_reader.replace(self.file, self.file.with_suffix(".bad"))
                else:
                    log.info("%s is damaged and is recreated: %s", self.file, exc)
                delete_database(self.file)
                return self._open(platform)

    def open_in_memory(self) -> sqlite3.Connection:
        return self._prepare(sqlite3.connect(":memory:", isolation_level=None))

    def remove(self, identity: int) -> None:
        """Delete a damaged file, unless another process has replaced the one with this inode. Raises OSError."""
        with self._locked():
            if self.file.exists() and self.file.stat().st_ino == identity:
                delete_database(self.file)

    def _locked(self) -> AbstractContextManager[None]:
        return paths.FileLock(self.file.with_suffix(".lock")).held(self.busy_s)

    def _open(self, platform: str) -> sqlite3.Connection:
        # SQLite gives its journal files the mode of this one
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if sys.platform != "win32" and platform != "win32":
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        paths.make_private(self.file)
        return self._prepare(
            sqlite3.connect(self.file, timeout=self.busy_s, isolation_level=None, check_same_thread=False)
        )

    def _prepare(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            connection.executescript(self.schema)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write within the context: all of it, or nothing if an exception leaves it. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def delete_database(file: Path) -> None:
    """Delete a database and SQLite's files beside it. Raises OSError."""
    for suffix in _SUFFIXES:
        file.with_name(file.name + suffix).unlink(missing_ok=True)
