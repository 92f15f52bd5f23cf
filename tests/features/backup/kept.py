"""State as the program keeps it, and what a test compares of it."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from dynamic_mcp.features.backup.age import Decryptor

PASSPHRASE = "correct horse battery staple"
VARIABLE = "DYNAMIC_MCP_BACKUP_PASSPHRASE"


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(0o600)
    return path


def fill(state: Path, mark: str = "old") -> None:
    """Write one file of each kind that has state, and of each that has none."""
    for name in (
        "logins/a.v1.json",
        "tokens/b.json",
        "pins/c.json",
        "approvals/d.json",
        "journal/1/note.json",
        "journal/1/0.before",
        "tool-uses.json",
        "later/unknown.json",
    ):
        write(state / name, json.dumps({"mark": mark}))
    write(state / "audit" / "key", mark.ljust(32, ".").encode())
    write(state / "audit" / "2026-11-26.jsonl", f'{{"mark":"{mark}"}}\n')
    write(state / "audit" / "seals.jsonl", f'{{"seal":"{mark}"}}\n')
    write(state / "audit" / "open" / "1-aa.jsonl", f'{{"call":"{mark}"}}\n')
    write_database(state / "clients" / "e.v3.sqlite", mark)
    locks = ("logins/a.lock", "audit/lock", "changes.lock")
    for name in (*locks, ".new-12", "scripts/x.script", "run/x", "cache-clear/y"):
        write(state / name, mark)
    write(state / "tasks" / "f.xml", mark)
    write(state / "log" / "dynamic-mcp.log", f"log of {mark}\n")


def write_database(file: Path, mark: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS marks (mark TEXT)")
        connection.execute("DELETE FROM marks")
        connection.execute("INSERT INTO marks VALUES (?)", (mark,))


def read_database(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [mark for (mark,) in connection.execute("SELECT mark FROM marks")]


def marks_of(state: Path) -> dict[str, str]:
    """Return what each file of the state has, by its path: all but what databases have beside them, and locks."""
    found = {}
    for file in sorted(state.rglob("*")):
        name = file.relative_to(state).as_posix()
        if file.is_file() and not name.endswith((".lock", "-wal", "-shm")):
            is_database = name.endswith(".sqlite")
            found[name] = " ".join(read_database(file)) if is_database else file.read_text(encoding="utf-8")
    return found


def left_beside(state: Path) -> list[Path]:
    """Return what a restore has left beside the state."""
    return [each for each in state.parent.iterdir() if each.name.startswith(f".{state.name}")]


def decrypt(file: Path, passphrase: str = PASSPHRASE) -> bytes:
    with file.open("rb") as opened:
        return io.BufferedReader(Decryptor(opened, passphrase)).read()


def names_in(file: Path) -> list[str]:
    data = decrypt(file) if file.read_bytes().startswith(b"age") else file.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return tar.getnames()


def head(**changes: Any) -> dict[str, Any]:  # Any: members of JSON
    return {"format": 1, "version": "0.1.0", "created": time.time(), "has_secrets": False, **changes}
