"""Logins on disk: a private file for each server, client and account, written atomically.

A file that cannot be read is set aside and stops nothing; a valid file is never lost.
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
from msgspec.structs import replace as with_fields

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.system import paths
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.text import os_reason

log = logging.getLogger(__name__)

FORMAT = 1
MAX_BYTES = 1 << 20
# Renewing a token takes twenty seconds at most; a process that holds the lock for longer is stuck.
LOCK_S = 30.0
LOCK_POLL_S = 0.05

Stamp = tuple[int, int, int]


class Store:
    """The file of one login."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        name = key(remote)
        self._folder = folder
        self._file = folder / f"{name}.v{FORMAT}.json"
        self._file_lock = paths.FileLock(folder / f"{name}.lock")
        self._name = name
        self._to_keyring = remote.oauth.token_store == "keyring"  # noqa: S105
        self._local_lock = asyncio.Lock()

    def stamp(self) -> Stamp | None:
        """Return a value that changes whenever the file does; None if there is no file."""
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def load(self) -> Login | None:
        """Return the login; None if there is none, or none that is valid. Raises OSError if it cannot be read."""
        try:
            data = _read_private(self._file)
            login = decode_as(data, Login)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as exc:
            self._set_aside(exc)
            return None
        return self._with_secrets(login) if login.is_in_keyring else login

    def save(self, login: Login) -> None:
        """Replace the stored login. Raises OSError; the previous one is then still there."""
        if self._to_keyring:
            _keyring("set_password", self._name, _secrets_of(login))
            login = replace(_without_secrets(login), is_in_keyring=True)
        else:
            login = replace(login, is_in_keyring=False)
        paths.write_private(self._file, msgspec.json.format(msgspec.json.encode(login)))
        with contextlib.suppress(OSError):
            self._folder.chmod(0o700)

    def delete(self) -> None:
        """Delete the login. Raises OSError."""
        with contextlib.suppress(OSError):
            if (login := self.load()) is not None and login.is_in_keyring:
                _keyring("delete_password", self._name)
        self._file.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Be the only task of all processes that renews this login; does not wait for a stuck process for ever."""
        async with self._local_lock:
            await self._wait_for_lock()
            try:
                yield
            finally:
                self._file_lock.release()

    async def _wait_for_lock(self) -> None:
        until = time.monotonic() + LOCK_S
        try:
            while not self._file_lock.try_acquire():
                if time.monotonic() > until:
                    log.warning(
                        "%s has been locked by another process for too long: continuing without the lock",
                        self._folder,
                    )
                    return
                await asyncio.sleep(LOCK_POLL_S)
        except OSError as exc:
            log.warning("logins cannot be protected from other processes by a lock: %s", exc)

    def _with_secrets(self, login: Login) -> Login | None:
        secrets = json.loads(_keyring("get_password", self._name) or "null")
        if not isinstance(secrets, dict):
            return replace(login, token=None)
        token = login.token and replace(login.token, access=secrets["access"], refresh=secrets["refresh"])
        client = login.client and replace(login.client, secret=secrets["secret"])
        return replace(login, token=token, client=client)

    def _set_aside(self, exc: Exception) -> None:
        log.warning("the login in %s cannot be read and is set aside: %s", self._file.name, exc)
        try:
            self._file.replace(self._file.with_suffix(".bad"))
        except OSError as error:
            log.warning("it cannot be set aside: %s", os_reason(error))


def key(remote: Remote) -> str:
    """Return the name of a login's files: a hash of what tells one login from another."""
    identity: list[object] = [remote.url, remote.oauth.client_id, remote.oauth.account]
    if remote.oauth.grant in ("jwt_bearer", "cross_app"):  # whose token it is then depends on the assertion
        identity.append(remote.oauth.grant)
    if remote.login_of is not None:
        identity.append([remote.login_of.issuer, remote.login_of.subject])
    return sha256(json.dumps(identity).encode()).hexdigest()[:40]


def list_persons(folder: Path, remote: Remote) -> list[Principal]:
    """Return the persons who have a login of their own to a server. What cannot be read is left out."""
    found: list[Principal] = []
    for file in folder.glob(f"*.v{FORMAT}.json"):
        try:
            person = decode_as(_read_private(file), Login).person
        except (OSError, ValueError, RecursionError):
            continue
        if person is not None and file.name == f"{key(with_fields(remote, login_of=person))}.v{FORMAT}.json":
            found.append(person)
    return sorted(found, key=lambda each: (each.subject, each.issuer))


def _read_private(file: Path) -> bytes:
    """Read a private file, without following a link. Raises OSError, and ValueError if the file is not usable."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file_object:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
            log.warning(
                "%s was readable by others and is now private; log in again if somebody may have read it", file
            )
            os.fchmod(descriptor, 0o600)
        if status.st_size > MAX_BYTES:
            raise ValueError("too large")
        return file_object.read(MAX_BYTES)


def _without_secrets(login: Login) -> Login:
    token = login.token and replace(login.token, access="", refresh=None)
    client = login.client and replace(login.client, secret=None)
    return replace(login, token=token, client=client)


def _secrets_of(login: Login) -> str:
    token = login.token or Token("", 0)
    secret = login.client.secret if login.client else None
    return json.dumps({"access": token.access, "refresh": token.refresh, "secret": secret})


def _keyring(action: str, name: str, *secret: str) -> str | None:
    """Call a function of the system's keychain. Raises OSError."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        from dynamic_mcp.system.extras import install_hint

        raise OSError(f"the keychain requires a package; {install_hint('keyring')}") from None
    try:
        password: str | None = getattr(keyring, action)("dynamic-mcp", name, *secret)
        return password
    except KeyringError as exc:
        raise OSError(f"the keychain did not work: {str(exc) or type(exc).__name__}") from exc
