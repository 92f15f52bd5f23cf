"""Users' files: read whole, and replaced whole or not at all, keeping mode, access list, owner and symbolic link."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.text import os_reason


class FileError(DynamicMcpError):
    """A file that cannot be read or written; it is unchanged."""

    def __init__(self, file: Path, message: str, *, hint: str = "") -> None:
        super().__init__(f"{file}: {message}", hint=hint)
        self.file = file


def read_bytes(file: Path) -> bytes | None:
    """Return the content of a file, None if there is no file. Raises FileError."""
    try:
        return file_reader.read_bytes(file)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise FileError(file, f"cannot be read: {os_reason(exc)}") from exc


def read_bytes_of(file: Path, text: str | None) -> bytes | None:
    """Return the content of a file that had this text, None if there was no file. Raises FileError if it differs."""
    data = read_bytes(file)
    if (None if data is None else data.decode(file_reader.encoding_of(data), "replace")) != text:
        raise _changed(file)
    return data


def write_bytes(file: Path, data: bytes, *, expected: bytes | None, is_private: bool = False) -> list[Path]:
    """Replace a file whose content is `expected` (None: no file); return the directories that were created.

    The target of a symbolic link is replaced and keeps its mode and owner; a private file is readable for its owner
    only. Raises FileError, and then nothing has changed.
    """
    if read_bytes(file) != expected:
        raise _changed(file)
    target = file.resolve()
    directories = _make_directories(target.parent)
    try:
        _replace(target, data, is_private=is_private)
    except OSError as exc:
        _remove_directories(directories)
        raise FileError(file, f"cannot be written: {os_reason(exc)}") from exc
    return directories


def remove(file: Path, directories: list[Path]) -> None:
    """Remove a file, and the empty directories among those created for it. Raises FileError."""
    try:
        file.unlink(missing_ok=True)
    except OSError as exc:
        raise FileError(file, f"cannot be removed: {os_reason(exc)}") from exc
    _remove_directories(directories)


def _changed(file: Path) -> FileError:
    return FileError(file, "has changed in the meantime", hint="run the command again")


def _replace(target: Path, data: bytes, *, is_private: bool) -> None:
    _require_writable(target)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}-")
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _copy_access(written, target, is_private=is_private)
            file.write(data)
            file.flush()
            _copy_attributes(written, target, is_private=is_private)
            os.fsync(file.fileno())
        file_reader.replace(written, target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _require_writable(target: Path) -> None:
    if not target.exists():
        return
    if not os.access(target, os.W_OK) or not target.stat().st_mode & 0o222:  # root could write even read-only files
        raise PermissionError(None, "it is read-only")


def _copy_access(written: Path, target: Path, *, is_private: bool) -> None:
    """Let those use the new file on Windows who could use the one that it replaces, where its mode says nothing."""
    from dynamic_mcp.system import acl

    with contextlib.suppress(OSError):  # a file system without access control lists
        if is_private:
            acl.make_private(written)
        elif target.exists():
            acl.copy_access(target, written)


def _copy_attributes(written: Path, target: Path, *, is_private: bool) -> None:
    """Give the new file the owner, the attributes and the mode of the file that it replaces."""
    try:
        before = target.stat()
    except FileNotFoundError:
        if not is_private:
            mask = os.umask(0)
            os.umask(mask)
            written.chmod(0o666 & ~mask)
        return
    now = written.stat()
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.chown(written, before.st_uid, before.st_gid)
    if sys.platform == "linux":
        for attribute in os.listxattr(target):
            with contextlib.suppress(OSError):
                os.setxattr(written, attribute, os.getxattr(target, attribute))
    written.chmod(0o600 if is_private else before.st_mode & 0o7777)


def _make_directories(directory: Path) -> list[Path]:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    is_ours = any(directory.is_relative_to(each) for each in (paths.config_dir(), paths.state_dir()))
    try:
        if is_ours:
            paths.make_private_dir(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(directory, f"cannot be created: {os_reason(exc)}") from exc
    return missing


def _remove_directories(directories: list[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):  # the directory is not empty
            directory.rmdir()
