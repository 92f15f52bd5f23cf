"""The files of the audit log: `2026-11-23.jsonl` has the lines of one day, UTC. Their names sort as their days.

A file is private, no symbolic link, and written one whole line at a time.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import AuditLine, Damaged, Link, read_line

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"
SEALS = "seals.jsonl"
OPEN = "open"
KEY = "key"
LOCK = "lock"

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.jsonl")


class Clock:
    """Writes times as RFC 3339 with milliseconds in UTC; the text of one second is made once."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, at: float) -> str:
        """Return a time, in seconds since 1970, as `2026-11-23T10:15:00.250Z`."""
        second = int(at)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._text}.{int((at - second) * 1000):03d}Z"


def file_of(directory: Path, day: str) -> Path:
    """Return the file of a day, such as `2026-11-23`."""
    return directory / f"{day}{SUFFIX}"


def day_of(file: Path) -> str | None:
    """Return the day of a file; None if it has another name than the log's files have."""
    found = _NAME.fullmatch(file.name)
    return None if found is None or not _is_day(found[1]) else found[1]


def day_at(at: float) -> str:
    """Return the day of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def list_days(directory: Path) -> list[str]:
    """Return the days that have a file, the oldest first. Raises OSError, but not if there is no directory."""
    try:
        found = [day_of(file) for file in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(filter(None, found))


def list_files(directory: Path, *, since: str = "", until: str = "9") -> Iterator[Path]:
    """Yield the files of the days from `since` to `until`, the oldest first. Raises OSError."""
    return (file_of(directory, day) for day in list_days(directory) if since <= day <= until)


def expired(days: Iterable[str], today: str, keep_s: float) -> list[str]:
    """Return the days that ended more than `keep_s` ago, in whole days; today never."""
    kept = timedelta(days=max(int(keep_s // 86_400), 0))
    try:
        first_kept = (date.fromisoformat(today) - kept).isoformat()
    except OverflowError:  # kept for ever
        return []
    return [day for day in days if day < first_kept]


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


# --- appending -----------------------------------------------------------------------------------------------------


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


# --- reading -------------------------------------------------------------------------------------------------------


# What takes the place of a line that is none.
DAMAGED = "damaged"


class Place(Struct, frozen=True, gc=False):
    """Where a line is: the name of its file, its first byte and its length, with the newline."""

    file: str
    start: int
    size: int


class StoredLine(Struct, frozen=True):
    """A line as it is in its file, without the newline, and what it says; None if it says nothing that we know."""

    place: Place
    data: bytes
    line: AuditLine | None

    @property
    def known(self) -> AuditLine:
        """What the line says; a damaged one says that."""
        return self.line or AuditLine(v=0, event=DAMAGED, outcome="unknown")


def read_whole_lines(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file from here on, with where they begin, but not a last one without its end."""
    file.seek(start)
    for data in file:
        if not data.endswith(b"\n"):
            return
        yield start, data
        start += len(data)


def read_places(directory: Path, places: Iterable[Place]) -> Iterator[StoredLine]:
    """Yield the lines at these places; those of a file that is gone meanwhile are left out. Raises OSError."""
    with ExitStack() as stack:
        opened: dict[str, BinaryIO | None] = {}
        for place in places:
            if place.file not in opened:
                opened[place.file] = _open(stack, directory / place.file)
            file = opened[place.file]
            if file is not None:
                file.seek(place.start)
                yield parse(place, file.read(place.size))


def parse(place: Place, data: bytes) -> StoredLine:
    """Return a line with what it says."""
    data = data.removesuffix(b"\n")
    try:
        return StoredLine(place, data, read_line(data))
    except Damaged:
        return StoredLine(place, data, None)


def _open(stack: ExitStack, path: Path) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None
