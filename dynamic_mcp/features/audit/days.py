"""The files of the audit log: `2026-11-23.jsonl` has the lines of one day, UTC. Their names sort as their days.

A file is private, not a symbolic link, and written one whole line at a time.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import AuditLine, ChainLink, Damaged

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"
SEALS = "seals.jsonl"
OPEN = "open"
KEY = "key"
LOCK = "lock"

# A line is never longer, because what is recorded of a call is bounded.
MAX_LINE = 1024 * 1024
# How a damaged line is shown.
DAMAGED_EVENT = "damaged"

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.jsonl")
_BLOCK = 64 * 1024
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_APPEND_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def timestamp(at: float) -> str:
    """Return a time, in seconds since 1970, as `2026-11-23T10:15:00.250Z`."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03d}Z"


def file_of(directory: Path, day: str) -> Path:
    """Return the file of a day, such as `2026-11-23`."""
    return directory / f"{day}{SUFFIX}"


def day_of(file: Path) -> str | None:
    """Return the day of a file; None if its name is not that of a file of the log."""
    match = _NAME.fullmatch(file.name)
    try:
        return date.fromisoformat(match[1]).isoformat() if match else None
    except ValueError:
        return None


def day_at(at: float) -> str:
    """Return the day of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def list_days(directory: Path) -> list[str]:
    """Return the days that have a file, the oldest first; none if there is no directory. Raises OSError."""
    try:
        return sorted(filter(None, map(day_of, directory.iterdir())))
    except FileNotFoundError:
        return []


def list_files(directory: Path) -> list[Path]:
    """Return the files of all days, the oldest first. Raises OSError."""
    return [file_of(directory, day) for day in list_days(directory)]


def expired(days: Iterable[str], today: str, keep_s: float) -> list[str]:
    """Return the days that ended more than `keep_s` ago, in whole days; never today."""
    kept = timedelta(days=max(int(keep_s // 86_400), 0))
    try:
        first_kept = (date.fromisoformat(today) - kept).isoformat()
    except OverflowError:  # kept for ever
        return []
    return [day for day in days if day < first_kept]


# --- appending ---------------------------------------------------------------------------------------------


class Tail(Struct, frozen=True):
    """The end of a file: its last good line, the number of damaged lines after it, and an unfinished last line."""

    last: ChainLink | None = None
    damaged: int = 0
    torn: bytes = b""


class DayFile:
    """A file that lines are appended to. `size` is its known size, and grows with each line.

    Raises OSError if it cannot be opened, belongs to another user, or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self.descriptor = open_private(path)
        status = os.fstat(self.descriptor)
        self._identity = status.st_dev, status.st_ino
        self.size = 0

    def __repr__(self) -> str:
        return f"<DayFile {self.path}, {self.size} bytes>"

    def current_size(self) -> int | None:
        """Return the size of the file now; None if it was removed or replaced. Raises OSError."""
        try:
            status = os.stat(self._name, follow_symlinks=False)  # noqa: PTH116 - for each call, and a Path takes twice as long
        except FileNotFoundError:
            return None
        return status.st_size if (status.st_dev, status.st_ino) == self._identity else None

    def append(self, data: bytes) -> None:
        """Append whole lines with one write, or nothing. Raises OSError."""
        write_whole(self.descriptor, data, self.size)
        self.size += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def open_private(path: Path) -> int:
    """Open a file for appending that only its owner may use; make it private if others may use it.

    Raises OSError, also for a symbolic link, another user's file, and anything but a regular file.
    """
    descriptor = os.open(path, _APPEND_FLAGS | _BINARY, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
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


def read_tail(file: int | Path) -> Tail:
    """Return how a file ends, which is open or is opened for that. Raises OSError."""
    if isinstance(file, Path):
        descriptor = os.open(file, _READ_FLAGS | _BINARY)
        try:
            return read_tail(descriptor)
        finally:
            os.close(descriptor)
    size = os.fstat(file).st_size
    for length in (_BLOCK, 4 * MAX_LINE):
        tail = _parse_tail(read_end(file, size, length), is_whole=length >= size)
        if tail is not None:
            return tail
    return Tail(damaged=1)


def read_end(descriptor: int, size: int, length: int = _BLOCK) -> bytes:
    """Return the last bytes of a file of this size."""
    start = max(size - length, 0)
    if sys.platform == "win32":
        os.lseek(descriptor, start, os.SEEK_SET)
        block = os.read(descriptor, size - start)
    else:
        block = os.pread(descriptor, size - start, start)
    return block


def _parse_tail(block: bytes, *, is_whole: bool) -> Tail | None:
    """Return the tail if this block has a good line, or is the whole file."""
    *lines, torn = block.split(b"\n")
    if not is_whole:
        lines = lines[1:]  # the first is only the end of one
    for damaged, line in enumerate(reversed(lines)):
        try:
            return Tail(chain.read_link(line), damaged, torn)
        except Damaged:
            continue
    return Tail(None, len(lines), torn) if is_whole else None


def _make_private(descriptor: int, path: Path, status: os.stat_result) -> None:
    if sys.platform == "win32":
        from dynamic_mcp.system import acl

        others = acl.find_others(path)
        is_foreign, is_open = bool(others.owner), bool(others)
    else:
        is_foreign, is_open = status.st_uid != os.geteuid(), bool(stat.S_IMODE(status.st_mode) & 0o077)
    if is_foreign:
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))
    if is_open:
        if sys.platform == "win32":
            acl.make_private(path)
        else:
            os.fchmod(descriptor, 0o600)
        log.warning("%s was open to other users and is now private", path)


# --- reading -----------------------------------------------------------------------------------------------


class LinePlace(Struct, frozen=True, gc=False):
    """The location of a line: the name of its file, its first byte and its length, with the newline."""

    file: str
    start: int
    size: int


class StoredLine(Struct, frozen=True):
    """The bytes of a line, without the newline, and what they say; None if they cannot be read as a line."""

    data: bytes
    line: AuditLine | None

    @property
    def record(self) -> AuditLine:
        """The line; one with the event `damaged` if it cannot be read."""
        return self.line or AuditLine(v=0, event=DAMAGED_EVENT, outcome="unknown")


def parse_stored(data: bytes) -> StoredLine:
    """Parse a stored line, which may end with its newline."""
    data = data.removesuffix(b"\n")
    try:
        return StoredLine(data, chain.read_line(data))
    except Damaged:
        return StoredLine(data, None)


def read_whole_lines(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file from `start` on, each with its position; not an unfinished last line."""
    file.seek(start)
    for data in file:
        if not data.endswith(b"\n"):
            return
        yield start, data
        start += len(data)


def read_places(directory: Path, places: Iterable[LinePlace]) -> Iterator[StoredLine]:
    """Yield the lines at these places; those of a file that was removed are left out. Raises OSError."""
    with ExitStack() as stack:
        files: dict[str, BinaryIO | None] = {}
        for place in places:
            if place.file not in files:
                files[place.file] = _open(stack, directory / place.file)
            file = files[place.file]
            if file is not None:
                file.seek(place.start)
                yield parse_stored(file.read(place.size))


def _open(stack: ExitStack, path: Path) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
