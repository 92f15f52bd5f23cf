"""The file with the pinned definitions of all servers of a config: read whole, changed under a lock, never half.

A file that another version of this program has written in a newer form is left alone. One in the state directory
that cannot be read is set aside; one beside the config belongs to whoever commits it, and stays as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.file_reader import UnsuitableFileError, read_bytes
from dynamic_mcp.system.text import os_reason

FORM = 1
MAX_BYTES = 64 << 20
LOCK_WITHIN_S = 5.0


class LockFileError(Exception):
    """A lock file cannot be read or written; the text says why."""


class NewerLockFile(LockFileError):
    """A newer version of this program has written the lock file."""


class CorruptLockFile(LockFileError):
    """A lock file is none, or not any more."""


class Pin(Struct, frozen=True, omit_defaults=True):
    """One definition that counts: its fingerprint, and the definition as canonical JSON, if it is not too large.

    `first_seen` is a date, as `2026-11-23`. `approved_by` is the person who approved it; empty is the first sight or
    a change that was accepted by itself. `former` are the definitions before, latest first; they may come back.
    """

    hash: str
    definition: Raw = wire.ABSENT
    first_seen: str = ""
    approved_by: str = ""
    former: tuple[Pin, ...] = ()

    def find(self, fingerprint: str) -> Pin | None:
        """Return this pin or the former one that has a fingerprint."""
        return next((each for each in (self, *self.former) if each.hash == fingerprint), None)


class PinnedServer(Struct, frozen=True, omit_defaults=True):
    """What is pinned of one server. `source` is a digest of what is run, and `version` what it says of itself."""

    source: str = ""
    version: str = ""
    instructions: Pin | None = None
    tools: Mapping[str, Pin] = {}
    prompts: Mapping[str, Pin] = {}
    templates: Mapping[str, Pin] = {}

    def find(self, kind: PinKind, name: str) -> Pin | None:
        """Return the pin of a tool, a prompt, a template or the instructions."""
        return self.instructions if kind is PinKind.INSTRUCTIONS else self.pins(kind).get(name)

    def pins(self, kind: PinKind) -> Mapping[str, Pin]:
        """Return the pins of a kind by name; that of instructions has no name."""
        if kind is PinKind.INSTRUCTIONS:
            return {} if self.instructions is None else {"": self.instructions}
        found: Mapping[str, Pin] = getattr(self, kind.member)
        return found

    def with_pins(self, pins: Mapping[Key, Pin]) -> PinnedServer:
        """Return the server with these pins instead of those that it had, or besides them."""
        changed: dict[str, object] = {}
        for kind in PinKind:
            new = {name: pin for (each, name), pin in pins.items() if each is kind}
            if new:
                changed[kind.member] = new[""] if kind is PinKind.INSTRUCTIONS else {**self.pins(kind), **new}
        return structs.replace(self, **changed) if changed else self


class Lock(Struct, frozen=True):
    """All that is pinned, by the names of the servers."""

    servers: Mapping[str, PinnedServer] = {}

    def with_server(self, name: str, server: PinnedServer | None) -> Lock:
        """Return the lock with this for a server; None forgets it."""
        servers = {**self.servers}
        servers.pop(name, None)
        return Lock(servers if server is None else {**servers, name: server})


class _File(Struct, frozen=True):
    form: int
    servers: Mapping[str, PinnedServer] = {}


class _Form(Struct, frozen=True):
    form: int


def find_lock_file(config: Config) -> Path:
    """Return where the pins of a config are: in the file that it names, or else in the state directory."""
    return config.lock_file or path_for(config.file, paths.state_dir() / "pins")


def path_for(config: Path, folder: Path) -> Path:
    """Return the lock file of a config in the `folder` for all those whose config names none."""
    return folder / f"{sha256(os.fsencode(os.path.abspath(config))).hexdigest()[:40]}.json"  # noqa: PTH100 - a link stays


def read_lock(path: Path) -> Lock:
    """Return what a lock file has; nothing if there is none.

    Raises NewerLockFile, CorruptLockFile, and LockFileError for one that cannot be read.
    """
    try:
        data = read_bytes(path, most=MAX_BYTES)
    except FileNotFoundError:
        return Lock()
    except UnsuitableFileError as exc:
        raise CorruptLockFile(os_reason(exc)) from exc
    except OSError as exc:
        raise LockFileError(os_reason(exc)) from exc
    return _decode(data)


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> Lock:
    """Change a lock file in one step, while no other process does, and return what it has then.

    `change` gets what the file has now, and returns the same object to leave it so. Blocks.
    Raises LockFileError, and then nothing has changed.
    """
    path = path.resolve()  # a link to a file that is committed elsewhere stays one
    try:
        lock = paths.FileLock(paths.state_dir() / "pins" / f"{path_for(path, Path()).stem}.lock")
        if not lock.acquire(LOCK_WITHIN_S):
            raise LockFileError("another process keeps it locked")
        try:
            before = read_lock(path)
            after = change(before)
            if after is not before:
                _write(path, after)
            return after
        finally:
            lock.release()
    except OSError as exc:
        raise LockFileError(os_reason(exc)) from exc


def set_aside(path: Path) -> None:
    """Rename a file that cannot be read, so that a new one is begun. Never raises OSError."""
    with contextlib.suppress(OSError):
        path.replace(path.with_suffix(".bad"))


def encode_lock(lock: Lock) -> bytes:
    """Return the content of a lock file: sorted and indented, to be read and compared line by line."""
    data = msgspec.json.encode(_File(FORM, lock.servers), order="sorted")
    return msgspec.json.format(data, indent=2) + b"\n"


def _decode(data: bytes) -> Lock:
    try:
        form = decode_as(data, _Form).form
        if form > FORM:
            raise NewerLockFile("a newer version of dynamic-mcp has written it")
        return Lock(decode_as(data, _File).servers)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise CorruptLockFile(f"it is not a lock file: {exc}") from exc


def _write(path: Path, lock: Lock) -> None:
    data = encode_lock(lock)
    if len(data) > MAX_BYTES:
        raise LockFileError(f"it would be larger than {MAX_BYTES >> 20} MiB")
    mode = _mode_of(path)
    paths.write_private(path, data)
    if mode is not None:
        path.chmod(mode)


def _mode_of(path: Path) -> int | None:
    """Return the mode that a file has to keep; None if it is private, or there is none yet."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
