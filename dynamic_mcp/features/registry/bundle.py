"""Bundles: zip archives with a local server and a manifest (`.mcpb`).

A bundle is not trusted: its archive is checked as a whole before a byte of it is written, nothing of it can be
outside of its folder, and what it unpacks to is bounded by what is really written.
https://github.com/modelcontextprotocol/mcpb/blob/main/MANIFEST.md
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line, os_reason

MANIFEST = "manifest.json"
MOST_BYTES = 256 << 20
MOST_UNPACKED = 1 << 30
_MOST_FILES = 50_000
_MOST_MANIFEST = 1 << 20
_CHUNK = 1 << 16
_LONGEST_PART, _LONGEST_PATH, _LONGEST_TEXT = 200, 1000, 10_000
_FOLDER = re.compile(r"[0-9a-f]{16}")
# Windows has these in every directory, whatever follows the first dot.
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_Text = Annotated[str, Meta(max_length=_LONGEST_TEXT)]
_Texts = Annotated[tuple[_Text, ...], Meta(max_length=500)]
_Variables = Annotated[dict[_Text, _Text], Meta(max_length=500)]
_Scalar = str | int | float | bool


class BadBundle(DynamicMcpError):
    """A bundle that cannot be used, with the reason."""


class Setting(Struct, frozen=True):
    """A value that the user gives."""

    type: Literal["string", "number", "boolean", "directory", "file"]
    title: _Text = ""
    description: _Text = ""
    required: bool = False
    default: _Scalar | Annotated[list[_Scalar], Meta(max_length=100)] | None = None
    multiple: bool = False
    sensitive: bool = False
    min: float | None = None
    max: float | None = None


class PlatformStart(Struct, frozen=True):
    """How the server is started on one platform, where that differs."""

    command: _Text | None = None
    args: _Texts | None = None
    env: _Variables = {}


class BundleStart(Struct, frozen=True):
    """How the server is started."""

    command: _Text
    args: _Texts = ()
    env: _Variables = {}
    platform_overrides: dict[str, PlatformStart] = {}

    def on(self, platform: str) -> BundleStart:
        """Return how it is started on a platform."""
        other = self.platform_overrides.get(platform, PlatformStart())
        args = self.args if other.args is None else other.args
        return BundleStart(other.command or self.command, args, {**self.env, **other.env})


class BundledServer(Struct, frozen=True):
    """The server in a bundle."""

    type: Literal["node", "python", "uv", "binary"]
    entry_point: _Text
    mcp_config: BundleStart | None = None


class Compatibility(Struct, frozen=True):
    """Where a bundle runs; no platforms are all."""

    platforms: tuple[str, ...] = ()


class _Author(Struct, frozen=True):
    name: _Text


class Manifest(Struct, frozen=True):
    """What a bundle says of itself. Other members are ignored."""

    name: _Text
    version: _Text
    server: BundledServer
    description: _Text = ""
    author: _Author = _Author("unknown")
    user_config: Annotated[dict[_Text, Setting], Meta(max_length=200)] = {}
    compatibility: Compatibility = Compatibility()


class Bundle:
    """An archive that has been checked. `digest` is the SHA-256 of the file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Check an archive. Raises BadBundle."""
        self.digest = _digest(file)
        with _reading():
            self._archive = zipfile.ZipFile(file)
            self._members = self._archive.infolist()
        _check(self._members)
        self.manifest = self._read_manifest()

    def has(self, path: str) -> bool:
        """Return whether a file of this path is in the archive."""
        return any(each.filename == path and not each.is_dir() for each in self._members)

    def unpack(self, folder: Path, *, programs: frozenset[str]) -> None:
        """Unpack into a folder that does not exist yet; `programs` are files to be executable. Raises BadBundle.

        After a failure, there is no such folder.
        """
        try:
            paths.make_private_dir(folder.parent)
            folder.mkdir(mode=0o700)
            with _reading():
                self._unpack(folder, programs)
        except OSError as exc:
            shutil.rmtree(folder, ignore_errors=True)
            raise BadBundle(f"the bundle cannot be unpacked into `{folder}`: {os_reason(exc)}") from exc
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _unpack(self, folder: Path, programs: frozenset[str]) -> None:
        left = MOST_UNPACKED
        for member in self._members:
            target = folder.joinpath(*PurePosixPath(member.filename).parts)
            if member.is_dir():
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_program = member.filename in programs or bool(member.external_attr >> 16 & stat.S_IXUSR)
            # no file is written twice, and no link is followed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
            fd = os.open(target, flags, 0o700 if is_program else 0o600)
            with os.fdopen(fd, "wb") as out, self._archive.open(member) as data:
                while chunk := data.read(_CHUNK):
                    left -= len(chunk)  # what the archive says of its sizes may be a lie
                    if left < 0:
                        raise _too_large()
                    out.write(chunk)

    def _read_manifest(self) -> Manifest:
        if not self.has(MANIFEST):
            raise BadBundle(f"it has no `{MANIFEST}`")
        with _reading(), self._archive.open(MANIFEST) as file:
            data = file.read(_MOST_MANIFEST + 1)
        if len(data) > _MOST_MANIFEST:
            raise BadBundle(f"its `{MANIFEST}` is larger than {_MOST_MANIFEST >> 20} MiB")
        try:
            manifest = msgspec.convert(json.loads(data), Manifest)
        except (ValueError, RecursionError) as exc:
            raise BadBundle(f"its `{MANIFEST}` cannot be used: {one_line(str(exc), 300)}") from exc
        _check_texts(manifest)
        return manifest


def bundles_dir() -> Path:
    """Return the folder with the unpacked bundles."""
    return paths.data_dir() / "bundles"


def folder_of(name: object) -> Path | None:
    """Return the folder of a bundle by the name that its entry has; None if that is no such name."""
    return bundles_dir() / name if isinstance(name, str) and _FOLDER.fullmatch(name) else None


def copy_bounded(read: Callable[[int], bytes], file: IO[bytes]) -> None:
    """Copy a bundle into a file. Raises BadBundle if it is too large."""
    left = MOST_BYTES
    while chunk := read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            raise BadBundle(f"it is larger than {MOST_BYTES >> 20} MiB")
        file.write(chunk)


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()


def _check(members: list[zipfile.ZipInfo]) -> None:
    """Check the paths, the kinds and the sizes of all members. Raises BadBundle."""
    if len(members) > _MOST_FILES:
        raise BadBundle(f"it has more than {_MOST_FILES} files")
    if sum(each.file_size for each in members) > MOST_UNPACKED:
        raise _too_large()
    seen: dict[str, bool] = {}
    for member in members:
        shown = one_line(member.filename, 100)
        if why := _find_flaw(member):
            raise BadBundle(f"`{shown}` in it {why}")
        key = member.filename.rstrip("/").casefold()  # as on systems that do not tell cases apart
        if key in seen and not (seen[key] and member.is_dir()):
            raise BadBundle(f"`{shown}` is in it twice")
        seen[key] = member.is_dir()
    for key in seen:
        if any(seen.get(str(parent)) is False for parent in PurePosixPath(key).parents):
            raise BadBundle(f"`{one_line(key, 100)}` in it is below a file")


def _find_flaw(member: zipfile.ZipInfo) -> str:
    """Return why a member of an archive cannot be unpacked; empty if it can."""
    name = member.orig_filename
    parts = name.removesuffix("/").split("/")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if member.flag_bits & 1:
        return "is encrypted"
    if name != member.filename or not name.isprintable() or "\\" in name or ":" in name:
        return "has a name that is not a plain path"
    if len(name) > _LONGEST_PATH or any(len(part) > _LONGEST_PART for part in parts):
        return "has too long a name"
    if any(part in ("", ".", "..") or part.endswith((".", " ")) or _DEVICE.fullmatch(part) for part in parts):
        return "has a name that leads elsewhere"
    return ""


def _check_texts(manifest: Manifest) -> None:
    """Refuse texts that cannot be shown, or that are no file of the bundle. Raises BadBundle."""
    start = manifest.server.mcp_config
    starts: list[BundleStart | PlatformStart] = [] if start is None else [start, *start.platform_overrides.values()]
    texts = [manifest.name, manifest.version, manifest.server.entry_point, *manifest.user_config]
    for each in starts:
        texts += [each.command or "", *(each.args or ()), *each.env, *each.env.values()]
    if any(not text.isprintable() for text in texts):
        raise BadBundle(f"its `{MANIFEST}` has control characters")


def _too_large() -> BadBundle:
    return BadBundle(f"it unpacks to more than {MOST_UNPACKED >> 30} GiB")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Turn the errors of a broken archive into BadBundle."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeError) as exc:
        raise BadBundle(f"it is not a bundle, or is damaged: {one_line(str(exc), 200)}") from exc


def read_values(value: object) -> tuple[str, ...]:
    """Return the texts of a default."""
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(json.dumps(each) if isinstance(each, bool | int | float) else str(each) for each in values)


Values = Mapping[str, tuple[str, ...]]
