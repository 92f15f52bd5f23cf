"""The files of scripts that wait for their modern clients: they go on after a restart of the program.

One private file for each. While the process that wrote it lives, no other one reads it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_private

T = TypeVar("T")

FOLDER = "scripts"
"""In the state directory."""
MOST_FILES = 256
MOST_BYTES = 256_000_000
MOST_BYTES_OF_ONE = 16_000_000
# An older file is of no use to anybody.
_LEFT_AFTER_S = 3600.0
# A process that ends may still hold its lock for a moment.
_ENDS_WITHIN_S = 3.0
_SCRIPT, _USED, _LOCK = ".script", ".used", ".lock"


class SuspendedFiles:
    """The files of one process, by ids that begin with its name. `write` and `take` may wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self.process = secrets.token_hex(8)
        self._folder = folder
        self._lock = paths.FileLock(folder / f"{self.process}{_LOCK}")
        self._is_locked = False

    def write(self, id: str, sealed: bytes) -> bool:
        """Write a script, and return True, or False where there are too many. Raises OSError."""
        paths.claim_private_dir(self._folder)
        if len(sealed) > MOST_BYTES_OF_ONE or not self._has_room():
            return False
        if not self._is_locked:
            self._is_locked = self._lock.try_acquire()
        paths.write_private(self._file(id, _SCRIPT), sealed, durable=False)
        return True

    def forget(self, id: str) -> None:
        """Remove a script that goes on, or has ended."""
        with contextlib.suppress(OSError):
            self._file(id, _SCRIPT).unlink()

    def take(self, id: str, read: Callable[[bytes], T]) -> T:
        """Return what `read` returns for a script of a process that has ended; only once. Raises StateRefused."""
        process = id.partition("-")[0]
        lock = paths.FileLock(self._folder / f"{process}{_LOCK}")
        if process == self.process:
            raise StateRefused("used")
        if not self._file(id, _SCRIPT).exists():  # it goes after the other has come
            raise StateRefused("used" if self._file(id, _USED).exists() else "restarted")
        try:
            with lock.held(_ENDS_WITHIN_S):
                return self._take(id, read)
        except (OSError, TimeoutError):
            raise StateRefused("invalid") from None

    def close(self) -> None:
        """Let other processes have the scripts."""
        self._lock.release()
        self._is_locked = False

    def _take(self, id: str, read: Callable[[bytes], T]) -> T:
        file = self._file(id, _SCRIPT)
        if self._file(id, _USED).exists():  # since another one has had the lock
            raise StateRefused("used")
        script = read(read_private(file, most=MOST_BYTES_OF_ONE + 1024))
        try:  # of two that present it at once, one goes on
            os.close(os.open(self._file(id, _USED), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StateRefused("used") from None
        file.unlink()
        return script

    def _has_room(self) -> bool:
        """Return whether one more script may be kept; remove what is of no use."""
        count = size = 0
        for file in self._folder.iterdir():
            with contextlib.suppress(OSError):
                status = file.stat()
                if file.suffix != _LOCK and time.time() - status.st_mtime > _LEFT_AFTER_S:
                    file.unlink()
                elif file.suffix == _LOCK and time.time() - status.st_mtime > 24 * _LEFT_AFTER_S:
                    _remove_lock(file)
                elif file.suffix == _SCRIPT:
                    count += 1
                    size += status.st_size
        return count < MOST_FILES and size < MOST_BYTES

    def _file(self, id: str, suffix: str) -> Path:
        return self._folder / f"{id}{suffix}"


def _remove_lock(file: Path) -> None:
    """Remove the lock of a process that has ended; nothing can be kept in its name any more."""
    lock = paths.FileLock(file)
    if lock.try_acquire():
        lock.release()
        file.unlink()
