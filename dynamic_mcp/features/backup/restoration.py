"""Puts a backup in the place of the state: all of it, or nothing.

Everything is written and verified beside the place that it is for, and then exchanged with it in one step of the
file system, or in two where it has no such step. A process that is killed leaves the old state or the new one, if
need be put aside, and the next one brings that back and removes the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import secrets
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.backup import inventory
from dynamic_mcp.features.backup.archive import Archive, ArchivedFile, Unreadable
from dynamic_mcp.features.backup.inventory import STATE, StateLocation
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

# These are of this machine, and stay; everything else that is left out has ended with its processes.
_STAYING = ("log", "tasks")
# From <fcntl.h> of Linux and <linux/fs.h>.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


class Staged:
    """What is to take the place of a directory or file, beside it."""

    def __init__(self, place: StateLocation) -> None:
        self.prefix = place.prefix
        self.target = Path(os.path.realpath(place.path))
        self._owner = _find_owner(self.target)
        self.path = _beside(self.target, "restoring")
        self._files = 0
        self._directories: list[Path] = []
        self._has_replaced = False

    @property
    def is_used(self) -> bool:
        return self._files > 0 or self.prefix == STATE

    def prepare(self) -> None:
        """Make the state directory, of which a backup may have nothing. Raises OSError."""
        if self.prefix == STATE:
            self._make_dir(self.path)

    def add(self, archive: Archive, file: ArchivedFile) -> None:
        """Write a file of an archive, private. Raises OSError and Unreadable."""
        path = self._path_of(file.name)
        descriptor = os.open(path, _NEW_FLAGS, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            paths.make_private(path)
            archive.copy(file, target)
            target.flush()
            os.fsync(descriptor)
            self._give(descriptor)
        os.utime(path, (file.modified_at, file.modified_at))
        self._files += 1

    def keep(self, name: str, source: Path) -> None:
        """Let a file of the present state stay. Raises OSError."""
        path = self._path_of(f"{self.prefix}/{name}")
        with contextlib.suppress(FileExistsError):
            try:
                os.link(source, path)
            except OSError as exc:
                if exc.errno == errno.EEXIST:
                    raise
                shutil.copy2(source, path, follow_symlinks=False)
                self._give(path)

    def take_place(self) -> None:
        """Take the place of what is there. Raises OSError and DynamicMcpError, and then nothing has changed."""
        for directory in reversed(self._directories):  # not before: their owner could put links into them meanwhile
            self._give(directory)
        _sync_dirs(self.path)
        _close_database(self.target)
        self._has_replaced = self.target.exists()
        self.path = _exchange(self.path, self.target)
        _sync_dir(self.target.parent)

    def give_back(self) -> None:
        """Undo `take_place`; say so if that cannot be, and keep what was there. Raises OSError."""
        try:
            if self._has_replaced:
                self.path = _exchange(self.path, self.target)
            else:
                _rename(self.target, self.path)
        except (OSError, DynamicMcpError) as exc:
            log.error("`%s` is already that of the backup, and cannot be given back: %s", self.target, exc)  # noqa: TRY400
            if self._has_replaced:
                kept = _beside(self.target, "kept")
                _rename(self.path, kept)
                log.error("what was there is in `%s`", kept)  # noqa: TRY400

    def remove(self) -> None:
        """Remove what is beside the target: what was not used, or what was there before."""
        _remove(self.path)

    def _path_of(self, name: str) -> Path:
        relative = name.removeprefix(self.prefix).lstrip("/")
        path = self.path / relative if relative else self.path
        if relative:
            self._make_dir(path.parent)
        else:
            paths.make_private_dir(path.parent)
        return path

    def _make_dir(self, directory: Path) -> None:
        if not directory.is_dir():
            if directory != self.path:
                self._make_dir(directory.parent)
            paths.make_private_dir(directory)
            self._directories.append(directory)

    def _give(self, file: Path | int) -> None:
        """Give a file to the owner of the state: root may restore that of a service."""
        if sys.platform == "win32" or os.geteuid() != 0:
            return
        if isinstance(file, int):
            os.fchown(file, *self._owner)
        else:
            os.chown(file, *self._owner, follow_symlinks=False)


_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def staging(places: Sequence[StateLocation]) -> Iterator[list[Staged]]:
    """Yield where the contents of these places can be written. What was not exchanged is removed at the end.

    Before that, what a command that was killed has put aside comes back. Raises DynamicMcpError if another command
    restores there, and OSError.
    """
    state = next(each.path for each in places if each.prefix == STATE)
    lock = paths.FileLock(paths.cache_dir() / "restore.lock")
    if not lock.try_acquire():
        raise DynamicMcpError(f"another `dynamic-mcp restore` works on `{state}`", hint="wait until it has ended")
    staged = [Staged(each) for each in places]
    try:
        for each in staged:
            _recover(each.target)
            each.prepare()
        yield staged
    finally:
        for each in staged:
            each.remove()
        lock.release()


def fill(staged: Sequence[Staged], archive: Archive) -> int:
    """Write and verify all that an archive has; return the number of files. Raises OSError and Unreadable."""
    count = 0
    for file in archive.files():
        _find(staged, file.name).add(archive, file)
        count += 1
    return count


def keep_rest(staged: Sequence[Staged], places: Sequence[StateLocation], *, has_secrets: bool) -> None:
    """Keep what is of this machine, and the present secrets if the archive was made without. Raises OSError."""
    for one, place in zip(staged, places, strict=True):
        for name in _STAYING if place.prefix == STATE else ():
            for file in sorted((place.path / name).glob("*")):
                if file.is_file():
                    one.keep(f"{name}/{file.name}", file)
        for kept in inventory.list_kept(place) if not has_secrets and one.is_used else ():
            if kept.is_secret:
                _close_database(kept.path)
                one.keep(kept.name.removeprefix(f"{place.prefix}/"), kept.path)


def exchange(staged: Sequence[Staged]) -> None:
    """Let each take its place, or none. Raises OSError and DynamicMcpError."""
    done: list[Staged] = []
    try:
        for each in staged:
            if each.is_used:
                each.take_place()
                done.append(each)
    except BaseException:
        for each in reversed(done):
            each.give_back()
        raise


def _find(staged: Sequence[Staged], name: str) -> Staged:
    for each in staged:
        if name == each.prefix or name.startswith(f"{each.prefix}/"):
            return each
    raise Unreadable(
        f"the backup has `{name}`, which a config keeps beside the state directory",
        hint="name that config with `-c`, so that it says where",
    )


def _recover(target: Path) -> None:
    """Bring back what was put aside by a command that was killed, and remove what else it has left."""
    for aside in target.parent.glob(f".{target.name}.replaced-*"):
        if not target.exists():
            _rename(aside, target)
    for purpose in ("restoring", "replaced"):
        for left in target.parent.glob(f".{target.name}.{purpose}-*"):
            _remove(left)


def _remove(path: Path) -> None:
    """Remove a directory or file; say so if it stays, since it may have secrets."""
    try:
        file_reader.retry(lambda: shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True))
    except OSError as exc:
        log.error("`%s` may have secrets, and cannot be removed: %s", path, os_reason(exc))  # noqa: TRY400


def _exchange(new: Path, target: Path) -> Path:
    """Exchange two directories or files, and return where the old one is now; the target may be missing.

    Raises OSError and DynamicMcpError, and then nothing has changed.
    """
    if not target.exists():
        _rename(new, target)
        return new
    if _exchange_at_once(new, target):
        return new
    aside = _beside(target, "replaced")
    try:
        _rename(target, aside)
    except PermissionError as exc:  # not that of their directory, where the new one was made
        raise DynamicMcpError(
            f"`{target}` cannot be replaced, and is as it was: {os_reason(exc)}",
            hint="another program uses it: close what has a file of it open, on Windows also a terminal in it",
        ) from exc
    try:
        _rename(new, target)
    except BaseException:
        _rename(aside, target)
        raise
    return aside


def _rename(path: Path, target: Path) -> None:
    """Rename a directory or file, once no other program prevents it. Raises OSError."""
    file_reader.retry(lambda: path.rename(target))


def _exchange_at_once(one: Path, other: Path) -> bool:
    """Exchange them by renameat2(2); return False where the system cannot. Raises OSError."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    if number == errno.EBUSY:
        raise DynamicMcpError(
            f"`{other}` cannot be replaced as a whole: something is mounted there",
            hint="mount it one directory higher, or restore into another directory and copy it",
        )
    raise OSError(number, os.strerror(number), str(other))


def _close_database(file: Path) -> None:
    """Let SQLite put into a database what a killed process has left beside it."""
    if file.is_file() and any(file.with_name(f"{file.name}{suffix}").exists() for suffix in ("-wal", "-journal")):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _beside(target: Path, purpose: str) -> Path:
    return target.with_name(f".{target.name}.{purpose}-{secrets.token_hex(6)}")


def _find_owner(target: Path) -> tuple[int, int]:
    """Return the user and the group of what is there, or else of the nearest directory."""
    while not target.exists():
        target = target.parent
    status = target.stat()
    return status.st_uid, status.st_gid


def _sync_dirs(path: Path) -> None:
    if path.is_dir():
        for directory, _, _ in os.walk(path):
            _sync_dir(Path(directory))


def _sync_dir(directory: Path) -> None:
    """Write the entries of a directory to disk, where systems have that."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as exc:
        raise OSError(exc.errno, os_reason(exc), str(directory)) from exc
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
