"""Appends lines to the audit log, from any number of processes. A written line is never changed.

Each process holds a lock on the directory while it appends, and first checks that today's file is the one that it
knows, and its size. So it sees lines of other processes, and whether the file was moved, cut or damaged: then the
chain goes on from the last known line, after an `audit.gap` line that says what happened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import VERSION, AuditLine, ChainLink
from dynamic_mcp.features.audit.days import DayFile, open_private, read_tail
from dynamic_mcp.features.audit.seals import read_seals
from dynamic_mcp.system import paths

GAP = "audit.gap"

# Why there is a gap: today's file was moved away or removed, was cut, ends with damaged lines or with half a line, or
# lines could not be written.
GapReason = Literal["moved", "cut", "damaged", "torn", "lost"]

_NO_LINE = ChainLink(0, chain.ZERO)
_LOCK_WITHIN_S = 0.25
_LOCK_POLL_S = 0.001


class AuditLog:
    """The log in one directory. `on_new_day` is called when a day begins, in the thread that appends.

    All methods may be used in any thread. Errors of the file system are OSErrors.
    """

    def __init__(self, directory: Path, *, now: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self.on_new_day: Callable[[str], None] = lambda day: None
        self._now = now
        self._mutex = threading.Lock()
        self._lock: int | None = None
        self._file: DayFile | None = None
        self._day = ""
        self._last = _NO_LINE
        self._may_wait = True

    def __repr__(self) -> str:
        return f"<AuditLog {self.directory}, {self._day or 'not begun'}, {self._last.n} lines>"

    def append(self, line: AuditLine) -> AuditLine:
        """Append a line; return it with its number, time and hashes. Raises OSError, and then nothing is written."""
        return self.append_all([line])[0]

    def append_all(self, lines: Sequence[AuditLine]) -> list[AuditLine]:
        """Append several lines, all of them or none. Raises OSError, and then nothing is written."""
        with self._mutex:
            lock = self._acquire()
            try:
                return self._append(lines)
            finally:
                paths.unlock(lock)

    def settle(self) -> None:
        """Wait until no process appends to a day that has ended. Raises OSError."""
        with self._mutex:
            paths.unlock(self._acquire())

    def sync(self) -> None:
        """Sync the written lines to disk. Raises OSError."""
        with self._mutex:
            copied = None if self._file is None else os.dup(self._file.descriptor)
        if copied is not None:
            try:
                os.fsync(copied)
            finally:
                os.close(copied)

    def close(self) -> None:
        """Sync everything to disk, and close the files. Appending opens them again. Raises OSError."""
        self.sync()
        with self._mutex:
            self._close_file()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    # --- the lock ----------------------------------------------------------------------------------------------

    def _acquire(self) -> int:
        """Acquire the lock, which other processes hold for some microseconds unless they are stopped meanwhile."""
        if self._lock is None:
            self._lock = open_lock(self.directory)
        ends_at = time.monotonic() + _LOCK_WITHIN_S if self._may_wait else 0.0
        while not paths.try_lock(self._lock):
            if time.monotonic() > ends_at:
                self._may_wait = False  # only once: this blocks everything else
                raise OSError(errno.EAGAIN, "another process holds the lock", str(self.directory / days.LOCK))
            time.sleep(_LOCK_POLL_S)
        self._may_wait = True
        return self._lock

    # --- appending; all with the lock --------------------------------------------------------------------------

    def _append(self, lines: Sequence[AuditLine]) -> list[AuditLine]:
        at = days.timestamp(self._now())
        file = self._file
        if file is None or at[:10] > self._day or file.current_size() != file.size:
            file = self._catch_up(at)
        return self._write(file, lines, at)

    def _write(self, file: DayFile, lines: Sequence[AuditLine], at: str, *, before: bytes = b"") -> list[AuditLine]:
        """Write lines with one write, so that a process that is killed has written all of them or none."""
        n, prev = self._last.n, self._last.hash
        parts, written = [before], list[AuditLine]()
        for n, line in enumerate(lines, n + 1):  # noqa: B020 - it goes on from there
            line = structs.replace(line, n=n, at=at, prev=prev, hash="")
            data, prev = chain.finish(chain.encode(line))
            parts.append(data)
            written.append(structs.replace(line, hash=prev))
        file.append(b"".join(parts))
        self._last = ChainLink(n, prev)
        return written

    def _write_gap(self, file: DayFile, reason: GapReason, details: Mapping[str, object], at: str) -> None:
        self._write(file, [gap_line(reason, details)], at, before=b"\n" if reason == "torn" else b"")

    # --- finding the end of the chain --------------------------------------------------------------------------

    def _catch_up(self, at: str) -> DayFile:
        """Find the end of the chain, and begin the file of a new day."""
        today = at[:10]
        if self._file is None:
            self._open_again(today, at)
        elif (size := self._file.current_size()) is None:
            self._open(self._day, at)
        elif size != self._file.size:
            self._take_up(self._file, at, why="cut")
        if today > self._day:
            self._last = ChainLink(0, self._last.hash)
            self._open(today, at)
            self.on_new_day(today)
        assert self._file is not None
        return self._file

    def _open_again(self, today: str, at: str) -> None:
        """Open the latest file, or today's; the clock may have moved back over midnight."""
        known = days.list_days(self.directory)
        day = max([today, self._day, *known[-1:]])
        if day != self._day:
            self._last = ChainLink(
                0, find_end(self.directory, [each for each in known if each < day]) or self._last.hash
            )
        self._open(day, at)

    def _open(self, day: str, at: str) -> None:
        file = DayFile(days.file_of(self.directory, day))
        self._close_file()
        self._file, self._day = file, day
        self._take_up(file, at, why="moved")

    def _take_up(self, file: DayFile, at: str, *, why: GapReason) -> None:
        """Continue after the last line of a file; if it is not the last known line, write a gap line."""
        file.size = os.fstat(file.descriptor).st_size
        tail, known = read_tail(file.descriptor), self._last
        if tail.last is not None and (tail.last.n > known.n or tail.last.hash == known.hash):
            self._last = tail.last
        if tail.torn:
            torn = {"bytes": len(tail.torn), "sha256": hashlib.sha256(tail.torn).hexdigest()}
            self._write_gap(file, "torn", torn, at)
        elif tail.damaged:
            self._write_gap(file, "damaged", {"lines": tail.damaged}, at)
        elif self._last is known and known.n:
            self._write_gap(file, why, {"last": known.n}, at)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def gap_line(reason: GapReason, details: Mapping[str, object]) -> AuditLine:
    """Return the line that records a gap before it."""
    detail = Raw(msgspec.json.encode({"reason": reason, **details}))
    id = f"gap-{os.urandom(8).hex()}"
    return AuditLine(v=VERSION, id=id, event=GAP, outcome="failure", pid=os.getpid(), detail=detail)


def open_lock(directory: Path) -> int:
    """Open the file to lock while appending, in a private directory, which is created if it is missing.

    Raises OSError; also if another user owns one of them, who could hold the lock for ever, or move days away.
    """
    paths.claim_private_dir(directory)
    return open_private(directory / days.LOCK)


def find_end(directory: Path, day_names: Sequence[str]) -> str:
    """Return the hash of the last line of these days, or of the last day that is sealed; empty if there is none.

    Raises OSError.
    """
    sealed = max(read_seals(directory), key=lambda seal: seal.day, default=None)
    if day_names and (sealed is None or day_names[-1] >= sealed.day):
        last = read_tail(days.file_of(directory, day_names[-1])).last
        if last is not None:
            return last.hash
    return "" if sealed is None else sealed.last
