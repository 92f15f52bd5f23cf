"""The file of a backup: a tar compressed by gzip, encrypted with age if it has secrets.

Its first member says what it is (`backup.json`), its last one has the checksums of the others (`SHA256SUMS`, for
`sha256sum --check`). A file without the last one is not whole.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import IO, BinaryIO, Protocol, cast

import msgspec
from msgspec import Struct

from dynamic_mcp import __version__
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.backup import inventory
from dynamic_mcp.features.backup.age import INTRO, AgeError, Decryptor, Encryptor, WrongPassphrase
from dynamic_mcp.features.backup.snapshot import Snapshot

FORMAT = 1
_HEAD, _SUMS = "backup.json", "SHA256SUMS"
_GZIP = b"\x1f\x8b"
_LARGEST_HEAD, _LARGEST_SUMS = 1 << 20, 64 << 20
# What separates lines of checksums, and what Windows has for other things.
_NOT_IN_NAMES = re.compile(r"[\0\r\n\\:]")
_SUM = re.compile(r"([0-9a-f]{64})  (.+)")
# It compresses logs to a tenth; more takes several times as long for a few percent.
_LEVEL = 6


class Head(Struct, frozen=True, kw_only=True):
    """What an archive is; times are in seconds since 1970. The state is found by the paths of the `configs`."""

    format: int
    version: str = ""
    created: float = 0.0
    machine: str = ""
    configs: tuple[str, ...] = ()
    has_secrets: bool = True


class Passphrase(Protocol):
    """Finds the passphrase once it is needed. Raises DynamicMcpError."""

    def __call__(self) -> str: ...


class Unreadable(DynamicMcpError):
    """Raised for a file that is no whole backup of a version that is known."""


def can_hold(name: str) -> bool:
    """Return whether an archive can have a file of this name, which means one place on each system."""
    path = PurePosixPath(name)
    is_plain = str(path) == name and not path.is_absolute() and ".." not in path.parts
    return is_plain and not _NOT_IN_NAMES.search(name)


# --- writing ---------------------------------------------------------------------------------------------------


def write_archive(target: BinaryIO, head: Head, snapshots: Iterator[Snapshot], passphrase: str | None) -> int:
    """Write a backup of these files; return how many there are. Raises OSError, and what the snapshots raise."""
    encryptor = None if passphrase is None else Encryptor(target, passphrase)
    sums: list[str] = []
    with (
        gzip.GzipFile(fileobj=encryptor or target, mode="wb", compresslevel=_LEVEL, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, _HEAD, msgspec.json.format(msgspec.json.encode(head)) + b"\n", head.created)
        sums.extend(f"{_add_snapshot(tar, each)}  {each.name}" for each in snapshots)
        _add(tar, _SUMS, "".join(f"{line}\n" for line in sums).encode("utf-8", "surrogateescape"), head.created)
    if encryptor is not None:
        encryptor.finish()
    return len(sums)


def _add(tar: tarfile.TarFile, name: str, data: bytes, at: float) -> None:
    tar.addfile(_member(name, len(data), at), io.BytesIO(data))


def _add_snapshot(tar: tarfile.TarFile, snapshot: Snapshot) -> str:
    """Add a file; return its SHA-256, in hex."""
    with snapshot.open() as content:
        reader = _Summed(content)
        tar.addfile(_member(snapshot.name, snapshot.size, snapshot.modified_at), cast("IO[bytes]", reader))
    return reader.digest.hexdigest()


def _member(name: str, size: int, at: float) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(at), 0o600
    return member


class _Summed:
    """Counts what is read into a checksum."""

    def __init__(self, content: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._content = content

    def read(self, size: int) -> bytes:
        data = self._content.read(size)
        self.digest.update(data)
        return data


# --- reading ---------------------------------------------------------------------------------------------------


class ArchivedFile(Struct, frozen=True):
    """One file of an archive."""

    name: str
    size: int
    modified_at: float
    content: IO[bytes]


class Archive:
    """A backup that is read once, from its beginning. Every method raises Unreadable if it is not whole."""

    def __init__(self, tar: tarfile.TarFile, packed: gzip.GzipFile, prefixes: Sequence[str]) -> None:
        self._tar, self._packed = tar, packed
        self._prefixes = prefixes
        self._sums: dict[str, str] = {}
        self.head = self._read_head()

    def files(self) -> Iterator[ArchivedFile]:
        """Yield the files, each of which `copy` must read before the next one. Verifies them at the end."""
        member = self._tar.next()
        while member is not None and member.name != _SUMS:
            self._check(member)
            content = self._tar.extractfile(member)
            assert content is not None, "it is a regular file"
            yield ArchivedFile(member.name, member.size, member.mtime, content)
            if member.name not in self._sums:
                raise Unreadable(f"`{member.name}` was not read")
            member = self._tar.next()
        if member is None:
            raise Unreadable("the backup is cut off: it has no checksums at its end")
        self._verify(self._read(member, _LARGEST_SUMS).decode("utf-8", "surrogateescape"))

    def copy(self, file: ArchivedFile, target: BinaryIO) -> None:
        """Copy the content of a file. Raises OSError."""
        digest, left = hashlib.sha256(), file.size
        while left:
            data = file.content.read(min(left, 1 << 20))
            if not data:
                raise Unreadable("the backup is cut off")
            digest.update(data)
            target.write(data)
            left -= len(data)
        self._sums[file.name] = digest.hexdigest()

    def _read_head(self) -> Head:
        member = self._tar.next()
        if member is None or member.name != _HEAD:
            raise Unreadable("the file is no backup of dynamic-mcp: it does not begin with `backup.json`")
        try:
            head = msgspec.json.decode(self._read(member, _LARGEST_HEAD), type=Head)
        except msgspec.MsgspecError as exc:
            raise Unreadable(f"the backup is damaged: `backup.json`: {exc}") from exc
        if head.format > FORMAT or _numbers(head.version) > _numbers(__version__):
            raise Unreadable(
                f"the backup was made by a newer version of dynamic-mcp ({head.version}); this is {__version__}",
                hint="upgrade dynamic-mcp, and restore it then",
            )
        return head

    def _read(self, member: tarfile.TarInfo, most: int) -> bytes:
        content = self._tar.extractfile(member) if member.isreg() and member.size <= most else None
        if content is None:
            raise Unreadable(f"the backup is damaged: `{member.name}` is not what it should be")
        return content.read()

    def _check(self, member: tarfile.TarInfo) -> None:
        """Refuse what could be written elsewhere, and what no backup has."""
        name = PurePosixPath(member.name)
        if not member.isreg():
            raise Unreadable(f"the backup is refused: `{member.name}` is a link, a device or a directory")
        if not can_hold(member.name) or not self._is_known(name):
            raise Unreadable(f"the backup is refused: `{member.name}` is not a place of the state of dynamic-mcp")
        if member.name in self._sums:
            raise Unreadable(f"the backup is refused: `{member.name}` is in it twice")

    def _is_known(self, name: PurePosixPath) -> bool:
        if name.parts[0] == inventory.STATE:
            return len(name.parts) > 1
        return len(name.parts) > 1 and "/".join(name.parts[:2]) in self._prefixes

    def _verify(self, text: str) -> None:
        matches = [_SUM.fullmatch(line) for line in text.split("\n")[:-1]]
        expected = {each[2]: each[1] for each in matches if each is not None}
        if None in matches or expected.keys() != self._sums.keys():
            raise Unreadable("the backup is damaged: its checksums are of other files")
        for name, digest in expected.items():
            if self._sums[name] != digest:
                raise Unreadable(f"the backup is damaged: `{name}` is not as it was written")
        while self._packed.read(1 << 20):  # so that its end is verified too
            pass


@contextlib.contextmanager
def open_archive(source: BinaryIO, passphrase: Passphrase, prefixes: Sequence[str]) -> Iterator[Archive]:
    """Open a backup; files beside the state directory are only known with these prefixes. Raises Unreadable."""
    buffered = io.BufferedReader(cast("io.RawIOBase", source)) if not hasattr(source, "peek") else source
    start = buffered.peek(len(INTRO))[: len(INTRO)]
    try:
        with contextlib.ExitStack() as stack:
            opened: BinaryIO = buffered
            if start == INTRO:
                opened = cast("BinaryIO", io.BufferedReader(Decryptor(opened, passphrase())))
            elif not start.startswith(_GZIP):
                raise Unreadable("the file is no backup of dynamic-mcp")
            packed = stack.enter_context(gzip.GzipFile(fileobj=opened, mode="rb"))
            tar = stack.enter_context(tarfile.open(fileobj=packed, mode="r|", errorlevel=0))
            yield Archive(tar, packed, prefixes)
    except WrongPassphrase as exc:
        raise Unreadable("the passphrase is wrong", hint="it is the one that the backup was made with") from exc
    except AgeError as exc:
        raise Unreadable(f"the backup cannot be opened: {exc}") from exc
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError) as exc:
        raise Unreadable("the backup is damaged or cut off", hint="take another copy of it") from exc


def new_head(*, machine: str, configs: Sequence[str], has_secrets: bool, now: float) -> Head:
    """Return the head of a backup of this version."""
    return Head(
        format=FORMAT,
        version=__version__,
        created=now,
        machine=machine,
        configs=tuple(configs),
        has_secrets=has_secrets,
    )


def in_words(created: float) -> str:
    """Return when a backup was made."""
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without what marks a build."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
