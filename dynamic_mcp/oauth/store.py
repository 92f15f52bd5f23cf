"""Logins on disk: a private file for each server, client and account, written atomically.

A file that cannot be read is set aside and stops nothing; a valid file is never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace as with_fields

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth import keychain
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.system import file_reader, paths
from dynamic_mcp.system.file_store import FileStore, JsonCodec, Stamp, StoreError, stamp_of

log = logging.getLogger(__name__)

FORMAT = 1
MAX_BYTES = 1 << 20
# Renewing a token takes twenty seconds at most; a process that holds the lock for longer is stuck.
LOCK_S = 30.0
LOCK_POLL_S = 0.05
_CODEC = JsonCodec(Login, None)


class LoginUnavailable(OSError):
    """The store that replicas share cannot be used, or another replica does not end its renewal."""


class StoredLogin(Protocol):
    """Where one login is kept. All methods that wait raise OSError."""

    is_shared: bool
    """Whether several machines have it: then one that cannot be read is not the same as none."""

    def stamp(self) -> object:
        """Return a value that changes whenever the login does."""
        ...

    def is_old(self) -> bool:
        """Return whether it is to be read again, though no change is known."""
        ...

    async def read(self) -> Login | None: ...

    async def write(self, login: Login, *, is_new: bool = False) -> Login | None:
        """Replace the login, and return the one that counts now; one that `is_new` counts in any case."""
        ...

    async def remove(self) -> None: ...

    def lock(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Be the only task of all that renews this login."""
        ...

    async def begin_spending(self, token: Token) -> bool:
        """Called before a refresh token is sent; False if it may have been sent by one that cannot tell."""
        ...

    async def end_spending(self) -> None:
        """Called when the server has not answered with another token."""
        ...


class LoginStore:
    """The file of one login."""

    is_shared = False

    def __init__(self, folder: Path, remote: Remote) -> None:
        name = key(remote)
        self._folder = folder
        self._store = _file_store(folder / f"{name}.v{FORMAT}.json")
        self._file_lock = paths.FileLock(folder / f"{name}.lock")
        self._name = name
        self._to_keyring = remote.oauth.token_store == "keyring"  # noqa: S105
        self._local_lock = asyncio.Lock()

    def stamp(self) -> Stamp | None:
        """Return a value that changes whenever the file does; None if there is no file."""
        return stamp_of(self._store.file)

    def is_old(self) -> bool:
        return False

    async def read(self) -> Login | None:
        return await asyncio.to_thread(self.load)

    async def write(self, login: Login, *, is_new: bool = False) -> Login:
        await asyncio.to_thread(self.save, login)
        return login

    async def remove(self) -> None:
        await asyncio.to_thread(self.delete)

    async def begin_spending(self, token: Token) -> bool:
        return True

    async def end_spending(self) -> None:
        """Do nothing: a process that ends leaves its lock, and the next one tries again."""

    def load(self) -> Login | None:
        """Return the login; None if none is stored or it is invalid. Raises OSError if it cannot be read."""
        login = self._store.load_or_set_aside("the login in")
        return self._with_secrets(login) if login is not None and login.is_in_keyring else login

    def save(self, login: Login) -> None:
        """Replace the stored login. Raises OSError; the previous one is then still there."""
        if self._to_keyring:
            keychain.write(self._name, _secrets_of(login))
            login = replace(_without_secrets(login), is_in_keyring=True)
        else:
            login = replace(login, is_in_keyring=False)
        self._store.save(login)
        with contextlib.suppress(OSError):
            self._folder.chmod(0o700)
            paths.make_private(self._folder)

    def delete(self) -> None:
        """Delete the login. Raises OSError."""
        with contextlib.suppress(OSError):
            if (login := self.load()) is not None and login.is_in_keyring:
                keychain.delete(self._name)
        file_reader.retry(lambda: self._store.file.unlink(missing_ok=True))

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Be the only task of all processes that renews this login; the wait for a stuck process is bounded."""
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
        secrets = json.loads(keychain.read(self._name) or "null")
        if not isinstance(secrets, dict):
            return replace(login, token=None)
        token = login.token and replace(login.token, access=secrets["access"], refresh=secrets["refresh"])
        client = login.client and replace(login.client, secret=secrets["secret"])
        return replace(login, token=token, client=client)


def key(remote: Remote) -> str:
    """Return the name of a login's files: a hash of everything that distinguishes logins."""
    identity: list[object] = [remote.url, remote.oauth.client_id, remote.oauth.account]
    if remote.oauth.grant in ("jwt_bearer", "cross_app"):  # the owner of the token then depends on the assertion
        identity.append(remote.oauth.grant)
    if remote.login_of is not None:
        identity.append([remote.login_of.issuer, remote.login_of.subject])
    return sha256(json.dumps(identity).encode()).hexdigest()[:40]


def list_persons(folder: Path, remote: Remote) -> list[Principal]:
    """Return the users who have a separate login to a server. Unreadable files are skipped."""
    persons: list[Principal] = []
    for file in folder.glob(f"*.v{FORMAT}.json"):
        try:
            login = _file_store(file).load()
        except (OSError, StoreError):
            continue
        person = login.person if login is not None else None
        if person is not None and file.name == f"{key(with_fields(remote, login_of=person))}.v{FORMAT}.json":
            persons.append(person)
    return sorted(persons, key=lambda each: (each.subject, each.issuer))


def _file_store(file: Path) -> FileStore[Login]:
    return FileStore(file, _CODEC, most_bytes=MAX_BYTES)


def _without_secrets(login: Login) -> Login:
    token = login.token and replace(login.token, access="", refresh=None)
    client = login.client and replace(login.client, secret=None)
    return replace(login, token=token, client=client)


def _secrets_of(login: Login) -> str:
    token = login.token or Token("", 0)
    secret = login.client.secret if login.client else None
    return json.dumps({"access": token.access, "refresh": token.refresh, "secret": secret})
