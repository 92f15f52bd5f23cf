"""Logins on disk, one file for a server and the client that the config names; private, and written whole.

What cannot be read is set aside and never stops anything; what is whole is never thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.records import Login, Token
from dynamic_mcp.system import paths

log = logging.getLogger(__name__)

FORM = 1
MAX_BYTES = 1 << 20
# Renewing a token takes at most some twenty seconds; whoever holds the lock for longer is stuck.
LOCK_S = 30.0
LOCK_POLL_S = 0.05

Stamp = tuple[int, int, int]


class Store:
    """Where one login is kept."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        name = key(remote)
        self._folder = folder
        self._file = folder / f"{name}.v{FORM}.json"
        self._lock = paths.FileLock(folder / f"{name}.lock")
        self._name = name
        self._to_keyring = remote.oauth.token_store == "keyring"  # noqa: S105
        self._turn = asyncio.Lock()

    def stamp(self) -> Stamp | None:
        """Return what is another one whenever the file is; None where there is no file."""
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def load(self) -> Login | None:
        """Return the login; None where there is none that can be read. Raises OSError when it cannot be told."""
        try:
            data = _private_bytes(self._file)
            login = msgspec.json.decode(data, type=Login)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as exc:
            self._set_aside(exc)
            return None
        return self._with_secrets(login) if login.is_in_keyring else login

    def save(self, login: Login) -> None:
        """Keep a login in the place of the one before. Raises OSError; then that is still there."""
        if self._to_keyring:
            _keyring("set_password", self._name, _secrets_of(login))
            login = replace(_without_secrets(login), is_in_keyring=True)
        else:
            login = replace(login, is_in_keyring=False)
        paths.write_private(self._file, msgspec.json.format(msgspec.json.encode(login)))
        with contextlib.suppress(OSError):
            self._folder.chmod(0o700)

    def delete(self) -> None:
        """Forget the login. Raises OSError."""
        with contextlib.suppress(OSError):
            if (login := self.load()) is not None and login.is_in_keyring:
                _keyring("delete_password", self._name)
        self._file.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Be the only one of all processes to renew this login; who waits too long for a stuck one goes on."""
        async with self._turn:
            await self._wait_for_lock()
            try:
                yield
            finally:
                self._lock.release()

    async def _wait_for_lock(self) -> None:
        until = time.monotonic() + LOCK_S
        try:
            while not self._lock.try_acquire():
                if time.monotonic() > until:
                    log.warning("%s is locked by another process for too long: continuing without it", self._folder)
                    return
                await asyncio.sleep(LOCK_POLL_S)
        except OSError as exc:
            log.warning("logins cannot be locked against other processes: %s", exc)

    def _with_secrets(self, login: Login) -> Login | None:
        found = json.loads(_keyring("get_password", self._name) or "null")
        if not isinstance(found, dict):
            return replace(login, token=None)
        token = login.token and replace(login.token, access=found["access"], refresh=found["refresh"])
        client = login.client and replace(login.client, secret=found["secret"])
        return replace(login, token=token, client=client)

    def _set_aside(self, exc: Exception) -> None:
        log.warning("the login in %s cannot be read and is set aside: %s", self._file.name, exc)
        try:
            self._file.replace(self._file.with_suffix(".bad"))
        except OSError as error:
            log.warning("it cannot be set aside: %s", error.strerror or error)


def key(remote: Remote) -> str:
    """Return the name that a login is kept by: what decides whose login it is."""
    what = [remote.url, remote.oauth.client_id, remote.oauth.account]
    return sha256(json.dumps(what).encode()).hexdigest()[:40]


def _private_bytes(file: Path) -> bytes:
    """Read a file that must be ours alone; a link is not followed. Raises OSError, and ValueError when too large."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a regular file")
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            log.warning(
                "%s was readable by others; it is private now, but log in again if they may have read it", file
            )
            os.fchmod(descriptor, 0o600)
        if found.st_size > MAX_BYTES:
            raise ValueError("too large")
        return opened.read(MAX_BYTES)


def _without_secrets(login: Login) -> Login:
    token = login.token and replace(login.token, access="", refresh=None)
    client = login.client and replace(login.client, secret=None)
    return replace(login, token=token, client=client)


def _secrets_of(login: Login) -> str:
    token = login.token or Token("", 0)
    secret = login.client.secret if login.client else None
    return json.dumps({"access": token.access, "refresh": token.refresh, "secret": secret})


def _keyring(action: str, name: str, *secret: str) -> str | None:
    """Use the system's keychain. Raises OSError."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise OSError("the keychain needs a package: `pip install 'dynamic-mcp-proxy[keyring]'`") from None
    try:
        found: str | None = getattr(keyring, action)("dynamic-mcp", name, *secret)
        return found
    except KeyringError as exc:
        raise OSError(f"the keychain did not work: {str(exc) or type(exc).__name__}") from exc
