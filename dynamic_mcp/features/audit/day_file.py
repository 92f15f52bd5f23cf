"""One file of the log, open for appending: private, no symbolic link, and written one whole line at a time."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import Damaged, Link

log = logging.getLogger(__name__)

# A line is never longer, because what is recorded of a call is bounded.
MAX_LINE = 1024 * 1024
_BLOCK = 64 * 1024
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class Tail(Struct, frozen=True):
    """How a file ends: its last good line, whether lines after that are damaged, and a last one without its end."""

    last: Link | None = None
    damaged: int = 0
    torn: bytes = b""


class DayFile:
    """A file that lines are appended to. `size` is how much of it is known, and changes with each line.

    Raises OSError if it cannot be opened, is another user's, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._descriptor = open_private(path)
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        self.size = 0

    def __repr__(self) -> str:
        return f"<DayFile {self.path}, {self.size} bytes>"

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._descriptor

    def look(self) -> int | None:
        """Return how long the file is now; None if another one, or none, is in its place. Raises OSError."""
        try:
            status = os.stat(self._name, follow_symlinks=False)  # noqa: PTH116 - for each call, and a Path takes twice as long
        except FileNotFoundError:
            return None
        return status.st_size if (status.st_dev, status.st_ino) == self._identity else None

    def append(self, data: bytes) -> None:
        """Append a whole line with one write, or nothing. Raises OSError."""
        write_whole(self._descriptor, data, self.size)
        self.size += len(data)

    def read_tail(self, size: int) -> Tail:
        """Return how the file ends at this size."""
        return read_tail(self._descriptor, size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def open_private(path: Path) -> int:
    """Open a file for appending that only its owner may use; one that others may use is private then.

    Raises OSError, also for a symbolic link, for another user's file, and for what is not a regular file.
    """
    descriptor = os.open(path, _FLAGS | _BINARY, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if os.name == "posix":
            _make_private(descriptor, path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append to a file of this size with one write: everything, or nothing. Raises OSError."""
    written = os.write(descriptor, data)
    if written != len(data):
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_tail(descriptor: int, size: int) -> Tail:
    """Return how a file of this size ends, as far as its last lines say."""
    length = min(_BLOCK, size)
    while True:
        block = _read(descriptor, size - length, length)
        tail = _parse_tail(block, is_whole=length == size)
        if tail is not None or length >= min(size, 4 * MAX_LINE):
            return tail or Tail(damaged=1)
        length = min(4 * length, size, 4 * MAX_LINE)


def read_end(descriptor: int, size: int) -> bytes:
    """Return the last bytes of a file of this size."""
    length = min(_BLOCK, size)
    return _read(descriptor, size - length, length)


def describe_torn(torn: bytes) -> dict[str, object]:
    """Return what a gap line says of a line without its end, so that it cannot be changed afterwards."""
    return {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}


def _parse_tail(block: bytes, *, is_whole: bool) -> Tail | None:
    """Return the tail if this block has a good line, or is the whole file."""
    *lines, torn = block.split(b"\n")
    if not is_whole:
        lines = lines[1:]  # the first is the end of one
    damaged = 0
    for line in reversed(lines):
        try:
            return Tail(chain.read_link(line), damaged, torn)
        except Damaged:
            damaged += 1
    return Tail(None, damaged, torn) if is_whole else None


def _read(descriptor: int, start: int, length: int) -> bytes:
    """Read a part of a file, or less where it has become shorter."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, length)


def _make_private(descriptor: int, path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.fchmod(descriptor, 0o600)
        log.warning("%s could be used by others and is now private", path)
