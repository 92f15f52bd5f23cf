"""Scripts that wait for their modern clients: another process goes on with one when the first has ended.

Each is sealed with a key that only the client has, as part of the `requestState`, and bound to the principal and the
call. It is removed before the script goes on, and is used once. It is in the store that replicas share, or on disk
where there is none, or where the script is too long for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from dynamic_mcp.features.scripts.sandbox import Pending
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.proxy.parked_calls import PARKED_FOR_S
from dynamic_mcp.system.shared_store import SharedStore, StoreUnavailable

if TYPE_CHECKING:  # loaded with the first script that waits there
    from dynamic_mcp.features.scripts.suspended_entries import SuspendedEntries
    from dynamic_mcp.features.scripts.suspended_files import SuspendedFiles

_FORMAT = 1
_NONCE_BYTES = 12
# In the place of the process in a name: the script is in the store.
_SHARED = "shared"


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
    """The scripts of one process that wait. `find_store` returns what replicas share now, if they share something."""

    def __init__(self, files: SuspendedFiles | None, find_store: Callable[[], SharedStore | None]) -> None:
        self._files = files
        self._find_store = find_store
        self._entries: SuspendedEntries | None = None

    async def write(self, script: SuspendedScript, binding: bytes, name: str = "") -> str:
        """Keep a script; return its name for `take`, or nothing where it cannot be kept. Raises OSError.

        `name` is the one that its client has already, if it has. It may be kept by that even if this fails.
        """
        data = await asyncio.to_thread(msgspec.msgpack.encode, script)  # it may have many megabytes
        entries, files = self._find_entries(), self._files
        if entries is not None and (not name or _is_shared(name)):
            shared = _read_name(name or _make_name(_SHARED))
            with contextlib.suppress(StoreUnavailable):
                if entries.has_room(shared.id, len(data)) and await entries.write(
                    shared.id, shared.seal(data, binding)
                ):
                    return shared.text
        if files is None or _is_shared(name):
            return ""
        kept = _read_name(name or _make_name(files.process))
        is_kept = await asyncio.to_thread(lambda: files.write(kept.id, kept.seal(data, binding)))
        return kept.text if is_kept else ""

    async def forget(self, name: str) -> None:
        """Remove a script before it goes on, or as it has ended.

        Raises StoreUnavailable, after which another process may go on with it, and StateRefused if one does.
        """
        if not _is_shared(name):
            if self._files is not None:
                self._files.forget(_read_name(name).id)
        elif (entries := self._find_entries()) is not None:
            await entries.forget(_read_name(name).id)
        else:
            raise StateRefused("used")  # it is in a store that this process has no more

    async def take(self, name: str, binding: bytes) -> SuspendedScript:
        """Return a script of a process that has ended; only once. Raises StateRefused and StoreUnavailable."""
        found = _read_name(name)

        def read(sealed: bytes) -> SuspendedScript:
            return found.open(sealed, binding)

        if _is_shared(name):
            entries = self._find_entries()
            if entries is None:
                raise StateRefused("restarted")
            script = await entries.take(found.id, read)
        elif self._files is None:
            raise StateRefused("restarted")
        else:
            script = await asyncio.to_thread(self._files.take, found.id, read)
        if script.format != _FORMAT:
            raise StateRefused("restarted")
        if time.time() - script.saved_at > PARKED_FOR_S:
            raise StateRefused("expired")
        return script

    def close(self) -> None:
        """Let other processes have the scripts."""
        if self._files is not None:
            self._files.close()

    def _find_entries(self) -> SuspendedEntries | None:
        store = self._find_store()
        if store is None:
            return None
        if self._entries is None or self._entries.store is not store:
            from dynamic_mcp.features.scripts.suspended_entries import SuspendedEntries

            self._entries = SuspendedEntries(store)
        return self._entries


class _Name(NamedTuple):
    """The name of a script, which its client has: where it is, its id there, and its key."""

    text: str
    id: str
    key: bytes

    def seal(self, data: bytes, binding: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, data, self._bound(binding))

    def open(self, sealed: bytes, binding: bytes) -> SuspendedScript:
        """Return what was sealed. Raises StateRefused."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = AESGCM(self.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound(binding))
            return msgspec.msgpack.decode(data, type=SuspendedScript)
        except (ValueError, InvalidTag):
            raise StateRefused("invalid") from None

    def _bound(self, binding: bytes) -> bytes:
        return sha256(self.id.encode() + binding).digest()


def _make_name(process: str) -> str:
    return f"{process}-{secrets.token_hex(8)}-{urlsafe_b64encode(secrets.token_bytes(32)).decode()}"


def _is_shared(name: str) -> bool:
    return name.startswith(f"{_SHARED}-")


def _read_name(name: str) -> _Name:
    """Return the parts of a name. Raises StateRefused."""
    process, _, rest = name.partition("-")
    number, _, key = rest.partition("-")
    parts = [number] if process == _SHARED else [process, number]
    if not all(len(each) == 16 and each.isascii() and each.isalnum() for each in parts):
        raise StateRefused("invalid")
    try:
        data = urlsafe_b64decode(key.encode())
    except ValueError:
        raise StateRefused("invalid") from None
    if len(data) != 32:
        raise StateRefused("invalid")
    return _Name(name, f"{process}-{number}", data)
