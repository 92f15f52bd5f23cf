"""Reads a user's files safely: regular files up to a size limit, never devices, and never a pipe that may block.

Texts are decoded and encoded as Windows programs write them.
"""

from __future__ import annotations

import codecs
import errno
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dynamic_mcp.system.text import pluralize

log = logging.getLogger(__name__)

_T = TypeVar("_T")

LARGEST_BYTES = 64 << 20

# Virus scanners, indexers and editors have a file open for some milliseconds. On Windows, it can then be neither
# replaced nor, sometimes, opened.
IN_USE_WITHIN_S = 2.0
_IN_USE_POLL_S = 0.02
# How long another program may prevent the opening of a file.
_OPEN_WITHIN_S = 0.5
# A shell's `<(…)` and stdin by name: pipes that are already open.
_OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


class UnsuitableFileError(OSError):
    """A device, a pipe, or a file that is too large. `strerror` says which."""


def read_bytes(file: Path, *, may_be_piped: bool = False, most: int = LARGEST_BYTES) -> bytes:
    """Return the content of a regular file, following links. Raises OSError.

    With `may_be_piped`, `file` may also be a pipe that the shell has opened (`/dev/stdin`, `<(…)`), or the null
    device, which reads as an empty file.
    """
    return read_with_status(file, may_be_piped=may_be_piped, most=most)[0]


def read_private(file: Path, *, most: int = LARGEST_BYTES) -> bytes:
    """Return the content of one of the program's own files, without following a link. Raises OSError.

    A file that others could read becomes private.
    """
    return _read(file, most=most, is_private=True)[0]


def read_with_status(
    file: Path, *, may_be_piped: bool = False, most: int = LARGEST_BYTES
) -> tuple[bytes, os.stat_result]:
    """Return the content of a file as `read_bytes` does, and the status of that file. Raises OSError."""
    return _read(file, may_be_piped=may_be_piped, most=most)


def _read(
    file: Path, *, most: int, may_be_piped: bool = False, is_private: bool = False
) -> tuple[bytes, os.stat_result]:
    is_piped = may_be_piped and os.path.abspath(file).startswith(_OPEN_ALREADY)  # noqa: PTH100 - a link stays one
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    flags |= 0 if is_piped else getattr(os, "O_NONBLOCK", 0)  # never wait
    flags |= getattr(os, "O_NOFOLLOW", 0) if is_private else 0
    try:
        # before opening it: opening a device can already have an effect
        _refuse_special(file, file.stat(), may_be_piped=may_be_piped, is_piped=is_piped)
        descriptor = retry(lambda: os.open(file, flags), within_s=_OPEN_WITHIN_S)
    except ValueError as exc:  # a null character
        raise OSError(errno.EINVAL, "not a valid file name", str(file)) from exc
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        _refuse_special(file, status, may_be_piped=may_be_piped, is_piped=is_piped)
        if is_private:
            _make_private(file, descriptor, status)
        # no more than its size at first: Python allocates what it is asked to read, and Windows commits that
        data = opened.read(min(status.st_size, most) + 1)
        if len(data) > status.st_size:  # a pipe, or a file that grows
            data += opened.read(most + 1 - len(data))
    if len(data) > most:
        raise too_large(file, most)
    return data, status


def _make_private(file: Path, descriptor: int, status: os.stat_result) -> None:
    if sys.platform == "win32":
        from dynamic_mcp.system import acl

        try:
            if not acl.find_others(file):
                return
            acl.make_private(file)
        except OSError:  # a file system without access control lists
            return
    elif stat.S_IMODE(status.st_mode) & 0o077:
        os.fchmod(descriptor, 0o600)
    else:
        return
    log.warning("%s could be read by others and is now private; replace any secrets in it", file)


def too_large(file: Path, most: int) -> UnsuitableFileError:
    """Return the error for a file over the limit of `most` bytes."""
    limit = f"{most >> 20} MiB" if most >= 1 << 20 else pluralize(most, "byte")
    return UnsuitableFileError(errno.EFBIG, f"larger than {limit}", str(file))


def _refuse_special(file: Path, status: os.stat_result, *, may_be_piped: bool, is_piped: bool) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    is_pipe = is_piped and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    if not (stat.S_ISREG(mode) or is_pipe or (may_be_piped and _is_null_device(file, status))):
        raise UnsuitableFileError(errno.EINVAL, "not a regular file", str(file))


def _is_null_device(file: Path, status: os.stat_result) -> bool:
    """Return whether this is the null device, which users name instead of a file."""
    null = Path(os.devnull).stat()
    if not stat.S_ISCHR(status.st_mode) or (status.st_dev, status.st_ino) != (null.st_dev, null.st_ino):
        return False
    return status.st_ino != 0 or file.name.lower() == os.devnull  # on Windows, the number of all devices is 0


def replace(file: Path, target: Path) -> None:
    """Rename a file, also over an existing one, once no other program prevents it. Raises OSError.

    Blocks for at most `IN_USE_WITHIN_S`.
    """
    retry(lambda: file.replace(target))


def retry(action: Callable[[], _T], *, within_s: float = IN_USE_WITHIN_S) -> _T:
    """Return what the action returns. On Windows, repeat it while the system denies access, for at most this time.

    Blocks. Raises what the action raises.
    """
    ends_at = time.monotonic() + (within_s if sys.platform == "win32" else 0)
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() >= ends_at:
                raise
        time.sleep(_IN_USE_POLL_S)


# --- the encodings of text files: UTF-8, and the UTF-16 of Windows PowerShell and Notepad ----------------------


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text: UTF-16 by its byte order mark or an ASCII character at its start, or UTF-8."""
    head = data[:2]
    if head == codecs.BOM_UTF16_LE or (len(head) == 2 and head[0] and not head[1]):
        return "utf-16-le"
    if head == codecs.BOM_UTF16_BE or (len(head) == 2 and head[1] and not head[0]):
        return "utf-16-be"
    return "utf-8"


def encoding_name(data: bytes) -> str:
    """Return the encoding of a text as a user knows it."""
    return "UTF-16" if encoding_of(data) != "utf-8" else "UTF-8"


def decode(data: bytes) -> str:
    """Return a text without its byte order mark. Raises UnicodeDecodeError."""
    return decode_with_mark(data).removeprefix("\ufeff")


def decode_with_mark(data: bytes) -> str:
    """Return a text to edit: encoded by `encode_like`, it is the same bytes again. Raises UnicodeDecodeError."""
    return data.decode(encoding_of(data))


def encode_like(text: str, data: bytes | None) -> bytes:
    """Encode a text as the file that it replaces, if there is one."""
    return text.encode(encoding_of(data or b""))
