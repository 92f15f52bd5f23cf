"""The SQLite file of the login server: one private file per config, shared by all workers."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.config.location import config_key
from dynamic_mcp.system import paths
from dynamic_mcp.system.database_file import DatabaseFile, transaction

T = TypeVar("T")

log = logging.getLogger(__name__)

_FORMAT = 3
# Other processes lock the file for milliseconds only.
_BUSY_S = 10.0

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON; -- overwrites deleted content
CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, private TEXT NOT NULL, made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS clients (
  id TEXT PRIMARY KEY, data BLOB NOT NULL, used REAL NOT NULL, has_logged_in INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS clients_used ON clients (has_logged_in, used);
CREATE TABLE IF NOT EXISTS documents (url TEXT PRIMARY KEY, data BLOB NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS requests (id BLOB PRIMARY KEY, data BLOB NOT NULL, until REAL NOT NULL);
CREATE INDEX IF NOT EXISTS requests_until ON requests (until);
CREATE TABLE IF NOT EXISTS codes (id BLOB PRIMARY KEY, data BLOB NOT NULL, until REAL NOT NULL, family TEXT);
CREATE INDEX IF NOT EXISTS codes_until ON codes (until);
CREATE TABLE IF NOT EXISTS families (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, subject TEXT NOT NULL, data BLOB NOT NULL, secret BLOB NOT NULL,
  number INTEGER NOT NULL, newest TEXT NOT NULL, made REAL NOT NULL, renewed REAL NOT NULL, until REAL NOT NULL,
  answer BLOB);
CREATE INDEX IF NOT EXISTS families_until ON families (until);
CREATE INDEX IF NOT EXISTS families_owner ON families (client, subject);
CREATE INDEX IF NOT EXISTS families_answered ON families (renewed) WHERE answer IS NOT NULL;
CREATE TABLE IF NOT EXISTS revoked (family TEXT PRIMARY KEY, until REAL NOT NULL);
"""


class DatabaseError(Exception):
    """Raised if the file cannot be read or written: the disk is full, or another process locks it."""


def file_for(config: Path) -> Path:
    """Return the file for the logins of a config's clients."""
    name = sha256(os.fsencode(config_key(config))).hexdigest()[:16]
    return paths.state_dir() / "clients" / f"{name}.v{_FORMAT}.sqlite"


class Database:
    """One connection to the file, used in one thread, and opened by its first use."""

    def __init__(self, file: Path) -> None:
        self._database = DatabaseFile(file, _SCHEMA, _BUSY_S, if_lost="clients must log in again")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logins")
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction; if it raises, its changes are undone. Raises DatabaseError."""
        if self._is_closed:
            raise DatabaseError("the database is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)
        except (sqlite3.Error, OSError) as exc:
            log.error("could not use the logins in %s: %s", self._database.file, exc)  # noqa: TRY400
            raise DatabaseError(str(exc)) from exc

    async def close(self) -> None:
        """Close the file after the current work."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection or self._connect()
        with transaction(connection):
            return work(connection)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        self._connection = self._database.open()
        return self._connection
