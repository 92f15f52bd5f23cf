"""A private SQLite file that several processes open, and which is replaced where it is damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from dynamic_mcp.system.database_file import DatabaseFile
from dynamic_mcp.system.paths import FileLock

SCHEMA = "PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS numbers (number INTEGER);"
JUNK = b"no database at all" * 500


def database(folder: Path, *, if_lost: str = "") -> DatabaseFile:
    return DatabaseFile(folder / "numbers.sqlite", SCHEMA, 5.0, if_lost)


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM numbers")]


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are a POSIX matter")
def test_the_file_and_those_beside_it_are_private(tmp_path: Path) -> None:
    (tmp_path / "numbers.sqlite").touch(mode=0o644)
    with contextlib.closing(database(tmp_path).open()) as connection:
        connection.execute("INSERT INTO numbers VALUES (1)")
        files = [file for file in tmp_path.iterdir() if file.suffix != ".lock"]
        assert len(files) == 3
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are a POSIX matter")
def test_windows_keeps_no_modes_for_a_database_and_the_file_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fchmod")  # as on Windows
    file = tmp_path / "numbers.sqlite"
    file.touch()
    file.chmod(0o644)
    with contextlib.closing(database(tmp_path).open(platform="win32")) as connection:
        assert numbers(connection) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_what_one_connection_has_written_is_there_for_the_next(tmp_path: Path) -> None:
    with contextlib.closing(database(tmp_path).open()) as one, contextlib.closing(database(tmp_path).open()) as other:
        one.execute("INSERT INTO numbers VALUES (1)")
        assert numbers(other) == [1]


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "numbers.sqlite").write_bytes(JUNK)
    with contextlib.closing(database(tmp_path).open()) as connection:
        assert numbers(connection) == []
    assert not (tmp_path / "numbers.bad").exists()


def test_a_damaged_file_that_nothing_else_has_is_set_aside_and_the_log_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numbers.sqlite").write_bytes(JUNK)
    with contextlib.closing(database(tmp_path, if_lost="count again").open()) as connection:
        assert numbers(connection) == []
    assert (tmp_path / "numbers.bad").read_bytes() == JUNK
    assert "is set aside; count again: " in caplog.text


def test_a_file_that_cannot_be_opened_is_not_replaced(tmp_path: Path) -> None:
    with contextlib.closing(database(tmp_path).open()) as connection:
        connection.execute("INSERT INTO numbers VALUES (1)")
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            DatabaseFile(tmp_path / "numbers.sqlite", "BEGIN IMMEDIATE; COMMIT;", 0.0).open()
        connection.execute("COMMIT")
        assert numbers(connection) == [1]


def test_only_the_file_that_was_found_to_be_damaged_is_removed(tmp_path: Path) -> None:
    database(tmp_path).open().close()
    damaged = (tmp_path / "numbers.sqlite").stat().st_ino
    database(tmp_path).remove(damaged + 1)
    assert (tmp_path / "numbers.sqlite").exists()
    database(tmp_path).remove(damaged)
    assert [file.name for file in tmp_path.iterdir()] == ["numbers.lock"]


def test_a_process_that_never_ends_opening_it_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "numbers.lock")
    assert lock.try_acquire()
    with pytest.raises(TimeoutError, match="another process keeps it locked"):
        DatabaseFile(tmp_path / "numbers.sqlite", SCHEMA, 0.0).open()
    lock.release()


def test_one_in_memory_leaves_no_file(tmp_path: Path) -> None:
    with contextlib.closing(database(tmp_path).open_in_memory()) as connection:
        assert numbers(connection) == []
    assert list(tmp_path.iterdir()) == []
