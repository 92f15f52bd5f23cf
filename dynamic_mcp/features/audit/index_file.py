"""The SQLite file of the index: one per directory of logs, in the cache, private, and made anew if it is damaged."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.system import paths
from dynamic_mcp.system.database_file import DatabaseFile

_FORMAT = 1
# Another command has the file for a second while it adds lines.
_BUSY_S = 60.0

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -65536;
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


def database_for(directory: Path) -> DatabaseFile:
    """Return the database of that index."""
    return DatabaseFile(file_for(directory), _SCHEMA, _BUSY_S)
