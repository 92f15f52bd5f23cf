"""Files for the state that survives a restart: complete or absent, with a format number, replaced atomically.

An unreadable file is never silently treated as empty: `load` raises, `load_or_set_aside` keeps it as `.bad`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import LARGEST_BYTES, UnsuitableFileError, read_bytes, read_private, too_large
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

T = TypeVar("T")

Stamp = tuple[int, int, int]


class StoreError(Exception):
    """The content of a file cannot be used; the text says why."""


class CorruptFile(StoreError):
    """A file's content is damaged."""


class NewerFile(StoreError):
    """The file was written by a newer version of this program, in another format."""


class Codec(Protocol[T]):
    """Converts a value to and from the content of a file."""

    def encode(self, value: T) -> bytes:
        """Return the content."""

    def decode(self, data: bytes) -> T:
        """Return the value. Raises NewerFile, and ValueError, TypeError and LookupError for anything else."""


class FileStore(Generic[T]):
    """One file with one value.

    A private file is readable by its owner alone, and a link in its place is not followed. Any other file belongs to
    the user, and keeps its mode. `lock` is a second file, by default beside it, because the
    first one is replaced.
    """

    def __init__(
        self,
        file: Path,
        codec: Codec[T],
        *,
        lock: Path | None = None,
        most_bytes: int = LARGEST_BYTES,
        is_private: bool = True,
    ) -> None:
        self.file = file
        self._codec = codec
        self._lock = lock or file.with_suffix(".lock")
        self._most_bytes = most_bytes
        self._is_private = is_private

    def load(self) -> T | None:
        """Return the value; None if there is no file. Raises CorruptFile, NewerFile and OSError."""
        try:
            return self._codec.decode(self._read())
        except FileNotFoundError:
            return None
        except (UnsuitableFileError, IsADirectoryError) as exc:
            raise CorruptFile(os_reason(exc)) from exc
        except RecursionError as exc:
            raise CorruptFile("nested too deeply") from exc
        except KeyError as exc:
            raise CorruptFile(f"`{exc.args[0]}` is missing") from exc
        except (ValueError, TypeError, LookupError) as exc:
            raise CorruptFile(str(exc)) from exc

    def load_or_set_aside(self, what: str) -> T | None:
        """Return the value; None if the file does not exist or cannot be used. Raises OSError.

        An unusable file is renamed to `.bad`, with a warning that begins with `what` and the file's name.
        """
        stamp = stamp_of(self.file)
        try:
            return self.load()
        except StoreError as exc:
            log.warning("%s %s cannot be read and is set aside: %s", what, self.file.name, exc)
            if stamp_of(self.file) == stamp:  # no other process has written a good one meanwhile
                self.set_aside()
            return None

    def set_aside(self) -> None:
        """Rename the file to `.bad`, so that the next save starts a new one. Never raises OSError."""
        try:
            file_reader.replace(self.file, self.file.with_suffix(".bad"))
        except OSError as exc:
            log.warning("%s cannot be set aside: %s", self.file, os_reason(exc))

    def save(self, value: T, *, durable: bool = True) -> None:
        """Replace the file atomically. Raises OSError, which leaves the previous file intact.

        Without `durable`, the value may be lost if the machine stops.
        """
        data = self._codec.encode(value)
        if len(data) > self._most_bytes:
            raise too_large(self.file, self._most_bytes)
        mode = None if self._is_private else _mode_of(self.file)
        paths.write_private(self.file, data, durable=durable)
        if mode is not None:
            self.file.chmod(mode)

    def locked(self, within_s: float) -> AbstractContextManager[None]:
        """Lock the file against changes by other threads and processes. Blocks.

        Raises TimeoutError if the lock is not free within this time, and OSError.
        """
        return paths.FileLock(self._lock).held(within_s)

    def _read(self) -> bytes:
        read = read_private if self._is_private else read_bytes
        return read(self.file, most=self._most_bytes)


class _Head(msgspec.Struct):
    form: int | None = None
    format: int | None = None


class JsonCodec(Generic[T]):
    """JSON encoded by msgspec: a type, and the number of its format as the first `member`.

    Without a number, files of other formats need other names. The JSON is sorted and indented, so that it can be read
    and compared line by line.
    """

    def __init__(self, kind: type[T], number: int | None, *, member: Literal["form", "format"] = "form") -> None:
        self._kind = kind
        self._number = number
        self._member = member
        self._opening = b"" if number is None else b'{"%s":%d' % (member.encode(), number)

    def encode(self, value: T) -> bytes:
        data = msgspec.json.encode(value, order="sorted")
        if self._opening:
            data = self._opening + (b"," if data != b"{}" else b"") + data[1:]
        return msgspec.json.format(data, indent=2) + b"\n"

    def decode(self, data: bytes) -> T:
        if self._number is not None:
            head = decode_as(data, _Head)
            _check_number(head.form if self._member == "form" else head.format, self._number)
        return decode_as(data, self._kind)


class DictCodec:
    """JSON encoded by Python, with the number of its format as `form`: it keeps NaN, any integer and any text."""

    def __init__(self, number: int) -> None:
        self._number = number

    def encode(self, value: dict[str, Any]) -> bytes:
        return json.dumps({**value, "form": self._number}, indent=1).encode()

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data)
        except ValueError as exc:
            raise ValueError("not JSON") from exc
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - the content is wrong, not a call
        _check_number(value.get("form"), self._number)
        return value


def prune_folder(folder: Path, *, most_files: int, most_bytes: int = sys.maxsize) -> None:
    """Remove a folder's oldest files if there are too many, or they are too large together. Raises OSError."""
    files: list[tuple[float, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process may prune the folder, too
                status = entry.stat(follow_symlinks=False)  # which Windows told with the name
                files.append((status.st_mtime, status.st_size, entry.path))
    size = 0
    for number, (_, bytes_, file) in enumerate(sorted(files, reverse=True)):
        size += bytes_
        if number >= most_files or size > most_bytes:
            Path(file).unlink(missing_ok=True)


def stamp_of(file: Path) -> Stamp | None:
    """Return a value that changes whenever the file does; None if there is no accessible file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _check_number(found: object, number: int) -> None:
    """Raises NewerFile, and ValueError for a number that was never used."""
    if isinstance(found, int) and found > number:
        raise NewerFile("written by a newer version of dynamic-mcp")
    if found != number:
        raise ValueError("no number of a format" if found is None else f"format {found} is unknown")


def _mode_of(file: Path) -> int | None:
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        return None
