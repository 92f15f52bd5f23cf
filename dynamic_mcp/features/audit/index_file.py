"""The SQLite file of the index: one per directory of logs, in the cache, private, and made anew if it is damaged."""

from __future__ import annotations

import logging
import os
import sqlite3
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.system import paths

log = logging.getLogger(__name__)

_FORMAT = 1
# Another command has the file for a second while it adds lines.
_BUSY_S = 60.0

_SCHEMA = """
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
  bytes INTEGER NOT NULL);
"""
# Made after the first lines, since many are added faster without. The last two have all that statistics need.
ORDER = (
    "CREATE INDEX IF NOT EXISTS lines_at ON lines (at)",
    "CREATE INDEX IF NOT EXISTS lines_who ON lines (who, pace, at, event, config, failed, denied, bytes)",
    "CREATE INDEX IF NOT EXISTS lines_grp ON lines (grp, name, pace, at, event, config, failed, denied, bytes)",
)


def file_for(directory: Path) -> Path:
    """Return the index of the log in a directory."""
    name = sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
    return paths.cache_dir() / "audit" / f"{name}.v{_FORMAT}.sqlite"


def open_or_replace(file: Path) -> sqlite3.Connection:
    """Open the index, or a new one in its place if it is damaged. Raises OSError and sqlite3.Error."""
    lock = paths.FileLock(file.with_suffix(".lock"))
    if not lock.acquire(_BUSY_S):
        raise OSError("another process opens the index for too long")
    try:
        try:
            return _open(file)
        except sqlite3.OperationalError:
            raise  # locked, or the disk is full: what is there is good
        except sqlite3.DatabaseError as exc:
            log.info("%s is damaged and is made anew: %s", file, exc)
            _remove(file)
            return _open(file)
    finally:
        lock.release()


def remove(file: Path, identity: int) -> None:
    """Remove a damaged index, unless another process has replaced it meanwhile. Raises OSError."""
    lock = paths.FileLock(file.with_suffix(".lock"))
    if not lock.acquire(_BUSY_S):
        raise OSError("another process opens the index for too long")
    try:
        if file.exists() and file.stat().st_ino == identity:
            _remove(file)
    finally:
        lock.release()


def open_in_memory() -> sqlite3.Connection:
    """Return an index that is gone with its connection."""
    return _prepare(sqlite3.connect(":memory:", isolation_level=None))


def _remove(file: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _open(file: Path) -> sqlite3.Connection:
    # SQLite gives its other files the mode of this one
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        if os.name == "posix":
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return _prepare(sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None))


def _prepare(connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection
