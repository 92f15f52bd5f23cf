"""Files of a person are read whole, within a bound: no device, no pipe that nobody writes, nothing without an end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_BYTES = 64 << 20

# What a shell's `<(…)` is, and stdin by its name: pipes that are open already.
_OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


class UnsuitableFileError(OSError):
    """Something that is not read as a file: a device, a pipe, or one that is too large. `strerror` says which."""


def read_bytes(file: Path, *, may_be_piped: bool = False, most: int = LARGEST_BYTES) -> bytes:
    """Return what is in a regular file, through links. Raises OSError.

    With `may_be_piped` it may also be a pipe that the shell has opened, as `/dev/stdin` or what `<(…)` gives, and
    the null device is an empty file.
    """
    return read_with_status(file, may_be_piped=may_be_piped, most=most)[0]


def read_with_status(
    file: Path, *, may_be_piped: bool = False, most: int = LARGEST_BYTES
) -> tuple[bytes, os.stat_result]:
    """Return what is in a file as `read_bytes` does, and the status of the file that was read. Raises OSError."""
    is_piped = may_be_piped and os.path.abspath(file).startswith(_OPEN_ALREADY)  # noqa: PTH100 - a link stays one
    try:
        # before it is opened: to open a device may be to use it
        _refuse_special(file, file.stat(), may_be_piped=may_be_piped, is_piped=is_piped)
        never_wait = 0 if is_piped else getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(file, os.O_RDONLY | never_wait | getattr(os, "O_BINARY", 0))
    except ValueError as exc:  # a null character
        raise OSError(errno.EINVAL, "its name is not one", str(file)) from exc
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
    """Tell whether this is what people name where there is to be no file."""
    null = Path(os.devnull).stat()
    return stat.S_ISCHR(status.st_mode) and (status.st_dev, status.st_ino) == (null.st_dev, null.st_ino)
