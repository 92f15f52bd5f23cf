"""Reads a user's files safely: regular files up to a size limit, never devices, and never a pipe that may block."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_BYTES = 64 << 20

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


def read_with_status(
    file: Path, *, may_be_piped: bool = False, most: int = LARGEST_BYTES
) -> tuple[bytes, os.stat_result]:
    """Return the content of a file as `read_bytes` does, and the status of that file. Raises OSError."""
    is_piped = may_be_piped and os.path.abspath(file).startswith(_OPEN_ALREADY)  # noqa: PTH100 - a link stays one
    try:
        # before opening it: opening a device can already have an effect
        _refuse_special(file, file.stat(), may_be_piped=may_be_piped, is_piped=is_piped)
        never_wait = 0 if is_piped else getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(file, os.O_RDONLY | never_wait | getattr(os, "O_BINARY", 0))
    except ValueError as exc:  # a null character
        raise OSError(errno.EINVAL, "not a valid file name", str(file)) from exc
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        _refuse_special(file, status, may_be_piped=may_be_piped, is_piped=is_piped)
        data = opened.read(most + 1)
    if len(data) > most:
        raise UnsuitableFileError(errno.EFBIG, f"larger than {most >> 20} MiB", str(file))
    return data, status


def _refuse_special(file: Path, status: os.stat_result, *, may_be_piped: bool, is_piped: bool) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    is_pipe = is_piped and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    if not (stat.S_ISREG(mode) or is_pipe or (may_be_piped and _is_null_device(status))):
        raise UnsuitableFileError(errno.EINVAL, "not a regular file", str(file))


def _is_null_device(status: os.stat_result) -> bool:
    """Tell whether this is the null device, which people name in place of a file."""
    null = Path(os.devnull).stat()
    return stat.S_ISCHR(status.st_mode) and (status.st_dev, status.st_ino) == (null.st_dev, null.st_ino)
