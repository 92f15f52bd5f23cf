"""A shared store in a SQLite file: for the processes of one machine, and in memory for one process.

The file is private to its user and not sealed, as the other state of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.features.cluster.subscribers import Subscribers
from dynamic_mcp.system import paths
from dynamic_mcp.system.database_file import DatabaseFile, transaction
from dynamic_mcp.system.shared_store import (
    ABSENT,
    Lease,
    Rate,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreStatus,
    StoreUnavailable,
    Version,
    Wait,
    check_entry,
)
from dynamic_mcp.system.task_set import TaskSet

T = TypeVar("T")

log = logging.getLogger("dynamic_mcp")

_BUSY_S = 0.4
# How often other processes are looked after for messages, and how long those are kept.
_LOOK_EVERY_S, _MESSAGES_FOR_S = 0.2, 10.0
_PRUNE_EVERY_S = 30.0
_VERSION_BYTES = 12
# The tolerance for rounding errors of times.
_TOLERANCE_S = 1e-9
# With pages of 4 KiB: 256 MiB.
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA secure_delete = ON; -- overwrites deleted content
PRAGMA max_page_count = 65536;
CREATE TABLE IF NOT EXISTS entries (
  space TEXT, name TEXT, value BLOB NOT NULL, version BLOB NOT NULL, until REAL NOT NULL, PRIMARY KEY (space, name));
CREATE INDEX IF NOT EXISTS entries_until ON entries (until);
CREATE TABLE IF NOT EXISTS changes (space TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rates (space TEXT, name TEXT, full_at REAL NOT NULL, PRIMARY KEY (space, name));
CREATE INDEX IF NOT EXISTS rates_full_at ON rates (full_at);
CREATE TABLE IF NOT EXISTS places (
  space TEXT, name TEXT, holder TEXT, until REAL NOT NULL, PRIMARY KEY (space, name, holder));
CREATE INDEX IF NOT EXISTS places_until ON places (until);
CREATE TABLE IF NOT EXISTS messages (
  number INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, message BLOB NOT NULL, at REAL NOT NULL);
"""
_FAILURES = {
    sqlite3.SQLITE_FULL: StoreFailure.FULL,
    sqlite3.SQLITE_READONLY: StoreFailure.READ_ONLY,
    sqlite3.SQLITE_BUSY: StoreFailure.BUSY,
}


class LocalStore:
    """A `SharedStore` in a file; without one, in memory. `clock` is that of all processes: seconds since 1970."""

    def __init__(self, file: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._database = DatabaseFile(
            file or Path("memory"), _SCHEMA, _BUSY_S, if_lost="what replicas shared is forgotten"
        )
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # which file that is of
        self._restores: list[Callable[[], object]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscribers = Subscribers()
        self._tasks = TaskSet(log)
        self._is_looking = False
        self._last_message = 0
        self._pruned_at = float("-inf")
        self._is_closed = False
        self._failure = ""
        self._operations = self._failed = 0

    def __repr__(self) -> str:
        return f"<LocalStore {self._file or 'in memory'}>"

    async def get(self, space: StoreSpace, name: str) -> StoredEntry | None:
        return await self._run(lambda connection: self._read(connection, space, name))

    async def put(self, space: StoreSpace, name: str, value: bytes, ttl_s: float) -> Version:
        check_entry(value, ttl_s)
        return await self._run(lambda connection: self._write(connection, space, name, value, ttl_s))

    async def compare_and_set(
        self, space: StoreSpace, name: str, value: bytes, ttl_s: float, *, expected: Version
    ) -> Version | None:
        check_entry(value, ttl_s)

        def work(connection: sqlite3.Connection) -> Version | None:
            found = self._read(connection, space, name)
            if (ABSENT if found is None else found.version) != expected:
                return None
            return self._write(connection, space, name, value, ttl_s)

        return await self._run(work)

    async def delete(self, space: StoreSpace, name: str, *, expected: Version | None = None) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            found = self._read(connection, space, name)
            if found is None or (expected is not None and found.version != expected):
                return False
            self._remove(connection, space, name)
            return True

        return await self._run(work)

    async def take(self, space: StoreSpace, name: str) -> StoredEntry | None:
        def work(connection: sqlite3.Connection) -> StoredEntry | None:
            found = self._read(connection, space, name)
            if found is not None:
                self._remove(connection, space, name)
            return found

        return await self._run(work)

    async def list_entries(self, space: StoreSpace) -> list[StoredEntry]:
        def work(connection: sqlite3.Connection) -> list[StoredEntry]:
            query = "SELECT name, value, version FROM entries WHERE space = ? AND until > ?"
            return [StoredEntry(*row) for row in connection.execute(query, (space.name, self._clock()))]

        return await self._run(work)

    async def scan(self, space: StoreSpace) -> AsyncIterator[StoredEntry]:
        for each in await self.list_entries(space):
            yield each

    async def count_changes(self, spaces: Sequence[StoreSpace]) -> tuple[int, ...]:
        def work(connection: sqlite3.Connection) -> tuple[int, ...]:
            numbers: dict[str, int] = dict(connection.execute("SELECT space, number FROM changes"))
            return tuple(numbers.get(each.name, 0) for each in spaces)

        return await self._run(work)

    async def count(self, space: StoreSpace, rates: Sequence[Rate]) -> Wait | None:
        def work(connection: sqlite3.Connection) -> Wait | None:
            now, wait = self._clock(), None
            taken = []
            for index, rate in enumerate(rates):
                query = "SELECT full_at FROM rates WHERE space = ? AND name = ?"
                row = connection.execute(query, (space.name, rate.name)).fetchone()
                full_at = max(now, now if row is None else row[0])
                wait_s = full_at - now - rate.slack_s
                if wait_s > _TOLERANCE_S and (wait is None or wait_s > wait.wait_s):
                    wait = Wait(index, wait_s)
                taken.append((space.name, rate.name, full_at + rate.interval_s))
            if wait is None:
                connection.executemany("INSERT OR REPLACE INTO rates VALUES (?, ?, ?)", taken)
            return wait

        return await self._run(work)

    async def acquire(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> Wait | None:
        def work(connection: sqlite3.Connection) -> Wait | None:
            now = self._clock()
            connection.execute("DELETE FROM places WHERE until <= ?", (now,))
            for index, lease in enumerate(leases):
                query = "SELECT count(*), min(until) FROM places WHERE space = ? AND name = ? AND holder <> ?"
                others, first = connection.execute(query, (space.name, lease.name, holder)).fetchone()
                if others >= lease.places:
                    return Wait(index, first - now)
            rows = [(space.name, each.name, holder, now + ttl_s) for each in leases]
            connection.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?)", rows)
            return None

        return await self._run(work)

    async def renew(self, space: StoreSpace, leases: Sequence[Lease], holder: str, ttl_s: float) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            now = self._clock()
            change = "UPDATE places SET until = ? WHERE space = ? AND name = ? AND holder = ? AND until > ?"
            found = [
                connection.execute(change, (now + ttl_s, space.name, each.name, holder, now)).rowcount
                for each in leases
            ]
            return all(found)

        return await self._run(work)

    async def release(self, space: StoreSpace, leases: Sequence[Lease], holder: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            rows = [(space.name, each.name, holder) for each in leases]
            connection.executemany("DELETE FROM places WHERE space = ? AND name = ? AND holder = ?", rows)
            self._send(connection, space, b"")

        await self._run(work)

    async def publish(self, space: StoreSpace, message: bytes) -> None:
        await self._run(lambda connection: self._send(connection, space, message))

    def subscribe(self, space: StoreSpace, on_message: Callable[[bytes | None], object]) -> Callable[[], None]:
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self._thread.submit(self._skip_messages)  # before anything that is sent from now on
            self._tasks.create(self._look(), name="messages of the shared store")
        return self._subscribers.add(space.name, on_message)

    def on_reset(self, restore: Callable[[], object]) -> Callable[[], None]:
        self._loop = asyncio.get_running_loop()
        self._restores.append(restore)

        def remove() -> None:
            if restore in self._restores:
                self._restores.remove(restore)

        return remove

    def _restore(self) -> None:
        """Called when another file is in the place of the one that was open."""
        log.warning("the shared store in %s was replaced", self._file)
        for each in [*self._restores]:
            each()
        self._subscribers.send_loss()

    def describe(self) -> StoreStatus:
        where = "memory" if self._file is None else f"sqlite://{self._file}"
        return StoreStatus(where, self._failure, self._operations, self._failed)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._tasks.cancel_all()
        await self._tasks.wait()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    # --- in the thread of the connection ------------------------------------------------------------------

    def _read(self, connection: sqlite3.Connection, space: StoreSpace, name: str) -> StoredEntry | None:
        query = "SELECT name, value, version FROM entries WHERE space = ? AND name = ? AND until > ?"
        row = connection.execute(query, (space.name, name, self._clock())).fetchone()
        return None if row is None else StoredEntry(*row)

    def _write(
        self, connection: sqlite3.Connection, space: StoreSpace, name: str, value: bytes, ttl_s: float
    ) -> Version:
        now = self._clock()
        if space.most_listed:
            query = "SELECT count(*) FROM entries WHERE space = ? AND name <> ? AND until > ?"
            if connection.execute(query, (space.name, name, now)).fetchone()[0] >= space.most_listed:
                raise StoreUnavailable(StoreFailure.FULL, f"{space.most_listed} entries of `{space.name}`")
        version = secrets.token_bytes(_VERSION_BYTES)
        row = (space.name, name, value, version, now + ttl_s)
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", row)
        self._record_change(connection, space, name)
        return version

    def _remove(self, connection: sqlite3.Connection, space: StoreSpace, name: str) -> None:
        connection.execute("DELETE FROM entries WHERE space = ? AND name = ?", (space.name, name))
        self._record_change(connection, space, name)

    def _record_change(self, connection: sqlite3.Connection, space: StoreSpace, name: str) -> None:
        if space.most_listed:
            # a file in the place of another one has other numbers
            change = (
                "INSERT INTO changes VALUES (?, ?)"
                " ON CONFLICT (space) DO UPDATE SET number = max(number + 1, excluded.number)"
            )
            connection.execute(change, (space.name, int(self._clock() * 1_000_000)))
            self._send(connection, space, name.encode())

    def _send(self, connection: sqlite3.Connection, space: StoreSpace, message: bytes) -> None:
        row = (space.name, message, self._clock())
        connection.execute("INSERT INTO messages (space, message, at) VALUES (?, ?, ?)", row)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in one transaction. Raises StoreUnavailable."""
        if self._is_closed:
            raise StoreUnavailable(StoreFailure.CLOSED)
        self._operations += 1
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)
        except StoreUnavailable:
            self._failed += 1
            raise
        except (sqlite3.Error, OSError) as exc:
            self._failed += 1
            failure = _FAILURES.get(getattr(exc, "sqlite_errorcode", 0) & 0xFF, StoreFailure.DOWN)
            if not self._failure:
                log.warning("the shared store in %s cannot be used: %s", self._file, exc)
            self._failure = failure.value
            raise StoreUnavailable(failure, str(exc)) from exc
        if self._failure:
            self._failure = ""
            log.info("the shared store in %s can be used again", self._file)
        return result

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._find_connection()
        with transaction(connection):
            result = work(connection)
            self._prune(connection)
        return result

    def _prune(self, connection: sqlite3.Connection) -> None:
        now = self._clock()
        if now - self._pruned_at >= _PRUNE_EVERY_S:
            self._pruned_at = now
            for table, column in (("entries", "until"), ("rates", "full_at"), ("places", "until")):
                connection.execute(f"DELETE FROM {table} WHERE {column} <= ?", (now,))  # noqa: S608 - names of ours
            connection.execute("DELETE FROM messages WHERE at <= ?", (now - _MESSAGES_FOR_S,))

    def _find_connection(self) -> sqlite3.Connection:
        """Return the connection to the file that is there now: other processes use no file that was removed."""
        if self._connection is not None and self._opened != self._identify():
            self._disconnect()
            self._last_message = 0
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._restore)
        return self._connection or self._connect()

    def _identify(self) -> tuple[int, int] | None:
        """Return which file is there; None if there is none."""
        try:
            status = self._file.stat() if self._file is not None else None
        except FileNotFoundError:
            status = None
        return None if status is None else (status.st_dev, status.st_ino)

    def _connect(self) -> sqlite3.Connection:
        if self._file is None:
            connection = self._database.open_in_memory()
        else:
            paths.make_private_dir(self._file.parent)  # one that is there may be others' too
            connection = self._database.open()
        self._connection, self._opened = connection, self._identify()
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # --- messages ----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Hand messages of all processes on."""
        while True:
            try:
                messages = await asyncio.get_running_loop().run_in_executor(self._thread, self._read_messages)
            except (sqlite3.Error, OSError) as exc:
                log.debug("messages of the shared store cannot be read: %s", exc)
                messages = []
            for space, message in messages:
                self._subscribers.send(space, message)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _skip_messages(self) -> None:
        with contextlib.suppress(sqlite3.Error, OSError):
            connection = self._find_connection()
            query = "SELECT coalesce(max(number), 0) FROM messages"
            self._last_message = connection.execute(query).fetchone()[0]

    def _read_messages(self) -> list[tuple[str, bytes]]:
        connection = self._find_connection()
        query = "SELECT number, space, message FROM messages WHERE number > ? ORDER BY number"
        rows = connection.execute(query, (self._last_message,)).fetchall()
        if rows:
            self._last_message = rows[-1][0]
        return [(space, message) for _, space, message in rows]
