"""Scripts that wait for their modern clients, on disk: they go on after a restart of the program.

One private file for each, encrypted with a key that only the client has, as part of the `requestState`. The file is
bound to the principal and the call, is removed before the script goes on, and is used once. While the process that
wrote it lives, no other one reads it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scripts.sandbox import Pending
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.proxy.parked_calls import PARKED_FOR_S
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.file_reader import read_private

FOLDER = "scripts"
"""In the state directory."""
MOST_FILES = 256
MOST_BYTES = 256_000_000
MOST_BYTES_OF_ONE = 16_000_000
_FORMAT = 1
_NONCE_BYTES = 12
# An older file is of no use to anybody.
_LEFT_AFTER_S = 3600.0
# A process that ends may still hold its lock for a moment.
_ENDS_WITHIN_S = 3.0
_SCRIPT, _WRITTEN, _USED, _LOCK = ".script", ".written", ".used", ".lock"


class KeptCall(Struct):
    """A call that a script has made, by its number in the script; `outcome` is empty while it has no answer.

    `is_unsent`: a person has not yet allowed it. `retry` are the params by which it goes on at a modern server, once
    the client has answered the `questions`: the keys that the server has for them, by those that the client has.
    """

    id: int
    group: str
    name: str
    arguments: str
    outcome: str = ""
    took_s: float = 0.0
    is_unsent: bool = False
    retry: bytes = b""
    questions: dict[str, str] = {}


class SuspendedScript(Struct):
    """All that a script needs to go on; without a `state`, it has not begun.

    `elapsed_s` is how long it had run at `saved_at`, in seconds since 1970.
    """

    state: bytes
    pending: dict[int, Pending]
    results: dict[int, str]
    calls: list[KeptCall]
    elapsed_s: float
    saved_at: float
    printed: str
    handles: str
    blocks: dict[str, bytes]
    used_tools: list[tuple[str, str]]
    marked_by: str
    format: int = _FORMAT


class SuspendedScripts:
    """The files of one process. `write` and `take` may wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = secrets.token_hex(8)
        self._lock = paths.FileLock(folder / f"{self._process}{_LOCK}")
        self._is_locked = False

    def write(self, script: SuspendedScript, binding: bytes, name: str = "") -> str:
        """Write a script; return its name for `take`, or nothing where there are too many. Raises OSError.

        It does not count before it is published. `name` is the one that the client has already, if it has.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        data = msgspec.msgpack.encode(script)
        paths.claim_private_dir(self._folder)
        if len(data) > MOST_BYTES_OF_ONE or not self._has_room():
            return ""
        if not self._is_locked:
            self._is_locked = self._lock.try_acquire()
        name = (
            name or f"{self._process}-{secrets.token_hex(8)}-{urlsafe_b64encode(AESGCM.generate_key(256)).decode()}"
        )
        (id, secret), nonce = _split(name), os.urandom(_NONCE_BYTES)
        sealed = AESGCM(secret).encrypt(nonce, data, _bound(id, binding))
        paths.write_private(self._file(id, _WRITTEN), nonce + sealed, durable=False)
        return name

    def publish(self, name: str) -> None:
        """Let a script that was written count, at once. Raises OSError."""
        id = _split(name)[0]
        file_reader.replace(self._file(id, _WRITTEN), self._file(id, _SCRIPT))

    def discard(self, name: str) -> None:
        """Remove a script that was written, and is not to count."""
        with contextlib.suppress(OSError):
            self._file(_split(name)[0], _WRITTEN).unlink()

    def forget(self, name: str) -> None:
        """Remove a script that goes on, or has ended."""
        with contextlib.suppress(OSError):
            self._file(_split(name)[0], _SCRIPT).unlink()

    def take(self, name: str, binding: bytes) -> SuspendedScript:
        """Return a script of a process that has ended; only once. Raises StateRefused."""
        id, key = _split(name)
        process = id.partition("-")[0]
        lock = paths.FileLock(self._folder / f"{process}{_LOCK}")
        if process == self._process:
            raise StateRefused("used")
        if not self._file(id, _SCRIPT).exists():  # it goes after the other has come
            raise StateRefused("used" if self._file(id, _USED).exists() else "restarted")
        try:
            with lock.held(_ENDS_WITHIN_S):
                return self._take(id, key, binding)
        except (OSError, TimeoutError):
            raise StateRefused("invalid") from None

    def close(self) -> None:
        """Let other processes have the scripts."""
        self._lock.release()
        self._is_locked = False

    def _take(self, id: str, key: bytes, binding: bytes) -> SuspendedScript:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        file = self._file(id, _SCRIPT)
        if self._file(id, _USED).exists():  # since another one has had the lock
            raise StateRefused("used")
        data = read_private(file, most=MOST_BYTES_OF_ONE + 1024)
        try:
            opened = AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(id, binding))
            script = msgspec.msgpack.decode(opened, type=SuspendedScript)
        except (ValueError, InvalidTag):
            raise StateRefused("invalid") from None
        try:  # of two that present it at once, one goes on
            os.close(os.open(self._file(id, _USED), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StateRefused("used") from None
        file.unlink()
        if script.format != _FORMAT:
            raise StateRefused("restarted")
        if time.time() - script.saved_at > PARKED_FOR_S:
            raise StateRefused("expired")
        return script

    def _has_room(self) -> bool:
        """Return whether one more script may be kept; remove what is of no use."""
        count = size = 0
        for file in self._folder.iterdir():
            with contextlib.suppress(OSError):
                status = file.stat()
                if file.suffix != _LOCK and time.time() - status.st_mtime > _LEFT_AFTER_S:
                    file.unlink()
                elif file.suffix == _LOCK and time.time() - status.st_mtime > 24 * _LEFT_AFTER_S:
                    _remove_lock(file)
                elif file.suffix == _SCRIPT:
                    count += 1
                    size += status.st_size
        return count < MOST_FILES and size < MOST_BYTES

    def _file(self, id: str, suffix: str) -> Path:
        return self._folder / f"{id}{suffix}"


def _remove_lock(file: Path) -> None:
    """Remove the lock of a process that has ended; nothing can be kept in its name any more."""
    lock = paths.FileLock(file)
    if lock.try_acquire():
        lock.release()
        file.unlink()


def _split(name: str) -> tuple[str, bytes]:
    """Return the id and the key of a script. Raises StateRefused."""
    process, _, rest = name.partition("-")
    number, _, key = rest.partition("-")
    if not all(len(each) == 16 and each.isascii() and each.isalnum() for each in (process, number)):
        raise StateRefused("invalid")
    try:
        data = urlsafe_b64decode(key.encode())
    except ValueError:
        raise StateRefused("invalid") from None
    if len(data) != 32:
        raise StateRefused("invalid")
    return f"{process}-{number}", data


def _bound(id: str, binding: bytes) -> bytes:
    return sha256(id.encode() + binding).digest()
