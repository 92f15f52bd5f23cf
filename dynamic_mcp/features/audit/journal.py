"""The open calls: each is written here before it is sent, so that it is known even if the process is killed.

Each process has one file, which it keeps locked. The file of a process that has ended can be locked by another one,
which then records its calls in the log, with an unknown outcome.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, structs

from dynamic_mcp.features.audit import chain, days
from dynamic_mcp.features.audit.chain import AuditLine, Damaged
from dynamic_mcp.system import paths

INTERRUPTED = "interrupted"

# What the file may grow to: while no call is open, and while there always is one.
_EMPTIED_BEYOND = 64 * 1024
_RENEWED_BEYOND = 1024 * 1024
_ID = re.compile(rb'\{"v":\d+,"n":\d+,"at":"[^"]*","id":"([^"\\]*)"')


class CallJournal:
    """The open calls of this process, by the ids of their lines. Errors of the file system are OSErrors."""

    def __init__(self, directory: Path, *, platform: str = sys.platform) -> None:
        self._directory = directory / days.OPEN
        # there, a file that is open can be neither renamed nor removed
        self._is_windows = platform == "win32"
        self._lines: dict[str, bytes] = {}
        self._file: tuple[Path, int] | None = None
        self._size = 0

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: AuditLine, shared: bytes = b"") -> None:
        """Write a call that begins, or nothing. `shared` is the JSON of members that are not in its line.

        Raises OSError.
        """
        data = chain.join(shared, chain.encode(line)) + b"\n"
        _, descriptor = self._file or self._create()
        days.write_whole(descriptor, data, self._size)
        self._size += len(data)
        self._lines[line.id] = data

    def remove(self, id: str) -> None:
        """Remove a call whose line is in the log now."""
        if self._lines.pop(id, None) is None or self._file is None or self._size < _EMPTIED_BEYOND:
            return
        with contextlib.suppress(OSError):  # it may as well grow: closed calls are found in the log
            if not self._lines:
                os.ftruncate(self._file[1], 0)
                self._size = 0
            elif self._size > _RENEWED_BEYOND + 2 * sum(map(len, self._lines.values())):
                self._renew()

    def close(self) -> None:
        """Close the file, and remove it unless calls are open: another process will record those."""
        if self._file is not None:
            path, descriptor = self._file
            self._file, self._size = None, 0
            if not self._lines and not self._is_windows:
                path.unlink(missing_ok=True)
            os.close(descriptor)
            if not self._lines:
                path.unlink(missing_ok=True)

    def _create(self) -> tuple[Path, int]:
        """Create the file; it gets its name once it is locked, so it is not taken for one of a dead process."""
        for directory in (self._directory.parent, self._directory):
            paths.claim_private_dir(directory)
        path = self._directory / f"{os.getpid()}-{os.urandom(6).hex()}.jsonl"
        new = path if self._is_windows else path.with_suffix(".new")
        descriptor = days.open_private(new)
        try:
            paths.try_lock(descriptor)
            if new != path:
                new.rename(path)
        except BaseException:
            os.close(descriptor)
            raise
        self._file, self._size = (path, descriptor), 0
        return self._file

    def _renew(self) -> None:
        """Replace the file by one that has only the open calls; at each moment one of them is there."""
        assert self._file is not None
        former, lines = self._file, b"".join(self._lines.values())
        _, descriptor = self._create()
        try:
            days.write_whole(descriptor, lines, 0)
        except OSError:
            os.close(descriptor)
            self._file, self._size = former, os.fstat(former[1]).st_size
            raise
        self._size = len(lines)
        os.close(former[1])
        former[0].unlink(missing_ok=True)


@contextlib.contextmanager
def abandoned(directory: Path) -> Iterator[list[AuditLine]]:
    """Yield the calls that ended processes have left open, as lines for the log.

    Their files are removed at the end of the context, unless it raises. Raises OSError.
    """
    with contextlib.ExitStack() as held:
        files = [file for file in _files(directory / days.OPEN) if _lock(file, held)]
        lines = {line.id: line for file in files for line in _read(file)}
        if lines:
            for id in find_ids(directory, lines, since=min(line.at for line in lines.values())[:10]):
                del lines[id]
        yield [_interrupted(line) for line in lines.values()]
    # Windows removes no file that is open. One that another process has opened meanwhile has no calls for it, since
    # all of them are in the log, and is removed by that process.
    for file in files:
        with contextlib.suppress(PermissionError):
            file.unlink(missing_ok=True)


def find_ids(directory: Path, ids: Iterable[str], *, since: str) -> set[str]:
    """Return which of these ids have a line in the log since a day, also in files that were renamed there."""
    wanted, found = {id.encode() for id in ids}, set[str]()
    for file in sorted(directory.iterdir()):
        if file.name[:10] >= since and days.SUFFIX in file.name and file.is_file() and file.name != days.SEALS:
            with file.open("rb") as lines:
                matches = (_ID.match(line) for line in lines)
                found |= {match[1].decode() for match in matches if match and match[1] in wanted}
    return found


def _interrupted(line: AuditLine) -> AuditLine:
    detail = Raw(msgspec.json.encode({"began": line.at}))
    return structs.replace(line, outcome="unknown", error=INTERRUPTED, detail=detail)


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(file for file in directory.iterdir() if file.suffix == days.SUFFIX)
    except FileNotFoundError:
        return []


def _lock(file: Path, held: contextlib.ExitStack) -> bool:
    """Lock a file until the end of a context; return False if its process or another one has it."""
    try:
        descriptor = os.open(file, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    held.callback(os.close, descriptor)
    # another process may have removed it meanwhile
    return paths.try_lock(descriptor) and file.exists()


def _read(file: Path) -> Iterator[AuditLine]:
    for data in file.read_bytes().split(b"\n"):
        with contextlib.suppress(Damaged):  # a call whose line was not written whole was not sent
            line = chain.read_line(data)
            if line.id:
                yield line
