"""Where config, state and cache are kept. A private file is written whole or not at all."""

import os
import sys
from pathlib import Path

import platformdirs

_APP = "dynamic-mcp"


def config_dir() -> Path:
    """Where a person keeps a config of their own."""
    return platformdirs.user_config_path(_APP, appauthor=False)


def state_dir() -> Path:
    """What must outlive a restart: tokens, approvals."""
    return platformdirs.user_state_path(_APP, appauthor=False)


def cache_dir() -> Path:
    """What can be found out again: catalogs."""
    return platformdirs.user_cache_path(_APP, appauthor=False)


def log_dir() -> Path:
    """Where what happens is written down, for when an AI tool swallows stderr."""
    return platformdirs.user_log_path(_APP, appauthor=False)


def make_private_dir(directory: Path) -> None:
    """Make a directory, and those above it, for the owner alone; what is there stays as it is."""
    if not directory.is_dir():
        make_private_dir(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace what is at `path`, for the owner alone; who reads it meanwhile sees the old or the new, whole.

    A symbolic link at `path` is replaced, not followed. What is not `durable` may be lost when the machine stops.
    Raises OSError and then leaves nothing behind.
    """
    make_private_dir(path.parent)
    _replace(path, data, durable=durable)


def _replace(path: Path, data: bytes, *, durable: bool) -> None:
    written = path.with_name(f".new-{os.urandom(8).hex()}")
    opened = open(written, "xb", opener=_open_private)  # noqa: SIM115 - `Path.open` takes no opener; closed below
    try:
        with opened as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink()
        raise


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class FileLock:
    """A lock that one process at a time holds by a file; it is free again when its holder is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and tell whether it was. Raises OSError when the file cannot be opened."""
        make_private_dir(self._path.parent)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if not _try_lock(descriptor):
                os.close(descriptor)
                return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back. The file stays: removing it could give two holders a lock each."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
