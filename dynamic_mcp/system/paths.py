"""The directories for config, state, cache and logs; private files, written atomically; file locks."""

import contextlib
import errno
import logging
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from dynamic_mcp.system import file_reader

log = logging.getLogger(__name__)

_APP = "dynamic-mcp"
_LOCK_POLL_S = 0.02


def config_dir() -> Path:
    """Return the directory for the user's config."""
    return platformdirs.user_config_path(_APP, appauthor=False)


def state_dir() -> Path:
    """Return the directory for state that must survive a restart: tokens, approvals. Nothing else is in it."""
    directory = platformdirs.user_state_path(_APP, appauthor=False)
    # Windows and macOS have the config there too, and Windows the cache and the log.
    return directory / "State" if directory == config_dir() else directory


def data_dir() -> Path:
    """Return the directory for data that is neither state nor config: unpacked bundles."""
    directory = platformdirs.user_data_path(_APP, appauthor=False)
    # macOS and Windows have the config there too
    return directory / "Data" if directory == config_dir() else directory


def cache_dir() -> Path:
    """Return the directory for data that can be fetched again: catalogs."""
    return platformdirs.user_cache_path(_APP, appauthor=False)


def log_dir() -> Path:
    """Return the directory of the log file, for AI tools that hide stderr."""
    return platformdirs.user_log_path(_APP, appauthor=False)


def make_private_dir(directory: Path) -> None:
    """Create a directory and its parents, accessible only to the owner; existing ones stay unchanged."""
    if not directory.is_dir():
        make_private_dir(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        make_private(directory)


def claim_private_dir(directory: Path) -> None:
    """Create a directory, or make an existing one inaccessible to other users.

    Raises OSError if another user owns it, or if it cannot be made private.
    """
    make_private_dir(directory)
    if sys.platform == "win32":
        _claim_by_acl(directory)
    else:
        status = directory.stat()
        if status.st_uid != os.geteuid():
            message = (
                "the directory belongs to another user; use a directory of your own, or have this one given to you"
            )
            raise PermissionError(errno.EPERM, message, str(directory))
        if stat.S_IMODE(status.st_mode) & 0o077:
            directory.chmod(0o700)
            if stat.S_IMODE(directory.stat().st_mode) & 0o022:  # a file system without modes
                message = "others may write to the directory; use one on a file system that has modes"
                raise PermissionError(errno.EPERM, message, str(directory))
            log.warning("%s could be used by others and is now private", directory)


def _claim_by_acl(directory: Path) -> None:
    from dynamic_mcp.system import acl

    if not acl.are_kept(directory):
        message = (
            "its file system lets everyone use everything; use a directory on one with access control, like NTFS"
        )
        raise PermissionError(errno.EPERM, message, str(directory))
    others = acl.find_others(directory)
    if others.owner:
        raise _belongs_to(others.owner, directory)
    if others:
        for place in (directory, *directory.rglob("*")):
            acl.make_private(place)
        log.warning("%s could be used by others and is now private", directory)


def _belongs_to(owner: str, directory: Path) -> PermissionError:
    message = f"the directory belongs to {owner}; use a directory of your own, or have this one given to you"
    return PermissionError(errno.EPERM, message, str(directory))


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file at `path` atomically, readable only by the owner.

    A symbolic link at `path` is replaced, not followed. Without `durable`, the data may be lost if the machine stops.
    Raises OSError, and then removes its temporary file.
    """
    make_private_dir(path.parent)
    _replace(path, data, durable=durable)


def _replace(path: Path, data: bytes, *, durable: bool) -> None:
    written = path.with_name(f".new-{os.urandom(8).hex()}")
    opened = open(written, "xb", opener=_open_private)  # noqa: SIM115 - `Path.open` takes no opener; closed below
    try:
        with opened as file:
            make_private(written)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        file_reader.replace(written, path)
    except BaseException:
        written.unlink()
        raise


def make_private(path: Path) -> None:
    """Make a file or directory private where the mode does not; some file systems have neither."""
    if sys.platform == "win32":
        from dynamic_mcp.system import acl

        with contextlib.suppress(OSError):
            acl.make_private(path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


if sys.platform == "win32":
    import _winapi
    import msvcrt

    _FILE_READ_DATA, _FILE_APPEND_DATA, _FILE_READ_ATTRIBUTES, _SYNCHRONIZE = 0x1, 0x4, 0x80, 0x100000
    _FILE_SHARE_ALL, _OPEN_ALWAYS = 0x7, 4

    def open_to_append(path: Path) -> int:
        """Open a private file that several processes append to. Raises OSError.

        Each write is at the end of the file, and others may rename it while it is open; Python's `open` has neither.
        """
        access = _FILE_READ_DATA | _FILE_APPEND_DATA | _FILE_READ_ATTRIBUTES | _SYNCHRONIZE
        shared, start = _FILE_SHARE_ALL, _winapi.NULL
        handle = file_reader.retry(
            lambda: _winapi.CreateFile(str(path), access, shared, start, _OPEN_ALWAYS, 0, start)
        )
        return msvcrt.open_osfhandle(handle, os.O_APPEND | os.O_NOINHERIT)

else:

    def open_to_append(path: Path) -> int:
        """Open a private file that several processes append to. Raises OSError."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class FileLock:
    """A lock between processes, held through a file. The system releases it when its holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether it was. Raises OSError if the file cannot be opened."""
        make_private_dir(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if not try_lock(descriptor):
                os.close(descriptor)
                return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def acquire(self, within_s: float) -> bool:
        """Wait for the lock, blocking this thread; return whether it became free in time. Raises OSError."""
        ends_at = time.monotonic() + within_s
        while not self.try_acquire():
            if time.monotonic() > ends_at:
                return False
            time.sleep(_LOCK_POLL_S)
        return True

    @contextlib.contextmanager
    def held(self, within_s: float) -> Iterator[None]:
        """Hold the lock. Raises TimeoutError if it is not free within this time, and OSError."""
        if not self.acquire(within_s):
            raise TimeoutError("another process keeps it locked")
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock. The file stays, since removing it could let two processes hold the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if sys.platform == "win32":
    # Others can neither read nor write a locked byte, so it is one that no file has.
    _LOCKED_BYTE = 1 << 40

    def try_lock(descriptor: int) -> bool:
        """Lock an open file against other processes if it is free; return whether it was."""
        try:
            _set_lock(descriptor, msvcrt.LK_NBLCK)
        except OSError as exc:
            if exc.errno in (errno.EBADF, errno.EINVAL):
                raise
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Unlock an open file, which stays open."""
        _set_lock(descriptor, msvcrt.LK_UNLCK)

    def _set_lock(descriptor: int, operation: int) -> None:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, operation, 1)
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file against other processes if it is free; return whether it was."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Unlock an open file, which stays open."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)
