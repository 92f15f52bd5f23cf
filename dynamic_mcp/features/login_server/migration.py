"""Takes what the login server keeps from the file of one machine into the store of replicas, and back.

Requests in progress and codes are left: they last for minutes. Clients go first, since a login needs its client.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from dynamic_mcp.config.auth import LoginAuth
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.section import Private
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.login_server import grants, store
from dynamic_mcp.features.login_server.clients import OAuthClient
from dynamic_mcp.features.login_server.database import Database, DatabaseError, file_for
from dynamic_mcp.features.login_server.grants import MAX_LIFETIMES, Lifetimes
from dynamic_mcp.features.login_server.records import AccessGrant
from dynamic_mcp.features.login_server.revocations import REVOKED
from dynamic_mcp.features.login_server.shared_keys import KEYS, NAME, StoredKey, StoredKeys
from dynamic_mcp.features.login_server.shared_state import (
    ANSWERS,
    LOGINS,
    SharedClient,
    SharedLogin,
    client_tables,
    name_of,
)
from dynamic_mcp.features.login_server.stored_table import Found
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.migration import Migration
from dynamic_mcp.system.shared_store import ABSENT, LONGEST_S, SharedStore, Version

T = TypeVar("T")


def list_migrations(config: Config, store: SharedStore) -> list[Migration[Any]]:  # Any: each kind has its own
    """Return what the login server keeps, if the config has one."""
    auth = () if config.http is None else config.http.auth
    login = next((each for each in auth if isinstance(each, LoginAuth)), None)
    if login is None:
        return []
    return migrations_of(file_for(config.file), store, Lifetimes(login.access_ttl_s, login.refresh_ttl_s))


def migrations_of(path: Path, store: SharedStore, lifetimes: Lifetimes) -> list[Migration[Any]]:  # Any: as above
    """Return what there is between a file and a store."""
    file = _File(path)
    clients: Migration[_Client] = Migration(
        "clients of the login server",
        _FileClients(file),
        _StoreClients(store),
        describe=lambda id, value: value.client.name or id,
        is_same=lambda one, other: one.client == other.client,
    )
    keys: Migration[StoredKey] = Migration(
        "keys of the login server",
        _FileKeys(file),
        _StoreKeys(store),
        describe=lambda id, value: id,
        is_same=lambda one, other: one.id == other.id,
    )
    logins: Migration[_Login] = Migration(
        "logins of clients",
        _FileLogins(file),
        _StoreLogins(store, lifetimes),
        describe=lambda id, value: f"{id[:8]} of `{value.subject}`",
        is_same=lambda one, other: (one.number, one.newest) == (other.number, other.newest),
        has_ended=lambda value: value.grant is None,
    )
    return [clients, keys, logins]


class _File:
    """The file of the login server, opened for each use."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def exists(self) -> bool:
        return self._file.exists()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in a transaction. Raises DynamicMcpError."""
        database = Database(self._file)
        try:
            return await database.run(work)
        except DatabaseError as exc:
            raise DynamicMcpError(f"could not use the logins of clients in `{self._file}`: {exc}") from exc
        finally:
            await database.close()


# --- clients -------------------------------------------------------------------------------------------


class _Client(Struct, frozen=True):
    client: OAuthClient
    used: float
    has_logged_in: bool

    @property
    def left_s(self) -> float:
        lasts_s = LONGEST_S if self.has_logged_in else store.UNUSED_S
        return min(self.used + lasts_s - time.time(), LONGEST_S)


class _FileClients:
    def __init__(self, file: _File) -> None:
        self._file = file

    async def load(self) -> dict[str, _Client]:
        def work(connection: sqlite3.Connection) -> list[_Client]:
            rows = connection.execute("SELECT data, used, has_logged_in FROM clients").fetchall()
            return [_Client(decode_as(data, OAuthClient), used, bool(known)) for data, used, known in rows]

        found = await self._file.run(work) if self._file.exists else []
        return {each.client.id: each for each in found if each.left_s > 0}

    async def write(self, name: str, value: _Client, before: _Client | None) -> bool:
        row = (name, msgspec.json.encode(value.client), value.used, int(value.has_logged_in))
        change = "INSERT OR REPLACE INTO clients (id, data, used, has_logged_in) VALUES (?, ?, ?, ?)"
        await self._file.run(lambda connection: connection.execute(change, row))
        return True


class _StoreClients:
    def __init__(self, store: SharedStore) -> None:
        self._new, self._known = client_tables(store)
        self._found: dict[str, Found[SharedClient]] = {}

    async def load(self) -> dict[str, _Client]:
        new, known = await self._new.list_all(SharedClient), await self._known.list_all(SharedClient)
        self._found = known
        listed = ((new, False), (known, True))
        return {
            id: _Client(found.value.client, found.value.used, has_logged_in)
            for table, has_logged_in in listed
            for id, found in table.items()
        }

    async def write(self, name: str, value: _Client, before: _Client | None) -> bool:
        shared = SharedClient(value.client, value.used)
        if name in self._found:
            return await self._known.replace(self._found[name], name, shared, value.left_s)
        table = self._known if value.has_logged_in else self._new
        await table.add(name, shared, value.left_s)
        return True


# --- keys ----------------------------------------------------------------------------------------------


class _FileKeys:
    def __init__(self, file: _File) -> None:
        self._file = file

    async def load(self) -> dict[str, StoredKey]:
        query = "SELECT id, private, made FROM keys"
        if not self._file.exists:
            return {}
        rows = await self._file.run(lambda connection: connection.execute(query).fetchall())
        return {id: StoredKey(id, private, made) for id, private, made in rows}

    async def write(self, name: str, value: StoredKey, before: StoredKey | None) -> bool:
        row = (value.id, value.private, value.made)
        await self._file.run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", row)
        )
        return True


class _StoreKeys:
    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._keys: tuple[StoredKey, ...] = ()
        self._version: Version = ABSENT

    async def load(self) -> dict[str, StoredKey]:
        entry = await self._store.get(KEYS, NAME)
        if entry is not None:
            found = entry.read(StoredKeys)
            if found is None:
                raise DynamicMcpError("the keys of the login server in the store are of another version")
            self._keys, self._version = found.keys, entry.version
        return {each.id: each for each in self._keys}

    async def write(self, name: str, value: StoredKey, before: StoredKey | None) -> bool:
        others = [each for each in self._keys if each.id != name]
        keys = tuple(sorted((*others, value), key=lambda each: (-each.made, each.id)))
        data = msgspec.json.encode(StoredKeys(keys))
        version = await self._store.compare_and_set(KEYS, NAME, data, LONGEST_S, expected=self._version)
        if version is None:
            raise DynamicMcpError("a replica has changed the keys of the login server", hint="do it again")
        self._keys, self._version = keys, version
        return True


# --- logins --------------------------------------------------------------------------------------------


class _Login(Private, frozen=True):
    """A login, as both places have it; without a grant, it was revoked, and its access tokens are valid `until`."""

    shown: ClassVar = ("number",)
    grant: AccessGrant | None = None
    secret: bytes = b""
    number: int = 0
    newest: str = ""
    created: float = 0.0
    renewed: float = 0.0
    until: float = 0.0
    answer: bytes | None = None

    @property
    def subject(self) -> str:
        return "" if self.grant is None else self.grant.user.subject

    def is_answer_repeated(self) -> bool:
        return self.answer is not None and time.time() <= self.renewed + grants.GRACE_S


class _FileLogins:
    def __init__(self, file: _File) -> None:
        self._file = file

    async def load(self) -> dict[str, _Login]:
        def work(connection: sqlite3.Connection) -> dict[str, _Login]:
            now = time.time()
            query = (
                "SELECT id, data, secret, number, newest, made, renewed, until, answer FROM families WHERE until > ?"
            )
            found = {
                row[0]: _Login(decode_as(row[1], AccessGrant), *row[2:]) for row in connection.execute(query, (now,))
            }
            query = "SELECT family, until FROM revoked WHERE until > ?"
            return found | {id: _Login(until=until) for id, until in connection.execute(query, (now,))}

        return await self._file.run(work) if self._file.exists else {}

    async def write(self, name: str, value: _Login, before: _Login | None) -> bool:
        def work(connection: sqlite3.Connection) -> None:
            grant = value.grant
            if grant is None:
                connection.execute("DELETE FROM families WHERE id = ?", (name,))
                connection.execute("INSERT OR REPLACE INTO revoked VALUES (?, ?)", (name, value.until))
                return
            answer = value.answer if value.is_answer_repeated() else None
            owner = (grant.client_id, grant.user.subject)
            state = (value.secret, value.number, value.newest, value.created, value.renewed, value.until, answer)
            row = (name, *owner, msgspec.json.encode(grant), *state)
            connection.execute("INSERT OR REPLACE INTO families VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

        await self._file.run(work)
        return True


class _StoreLogins:
    def __init__(self, store: SharedStore, lifetimes: Lifetimes) -> None:
        self._store = store
        self._lifetimes = lifetimes
        self._versions: dict[str, Version] = {}

    async def load(self) -> dict[str, _Login]:
        found: dict[str, _Login] = {}
        async for entry in self._store.scan(LOGINS):
            login = entry.read(SharedLogin)
            if login is not None:
                self._versions[login.id] = entry.version
                found[login.id] = await self._to_login(login)
        for entry in await self._store.list_entries(REVOKED):
            found[entry.name] = _Login(until=float(entry.value))
        return found

    async def _to_login(self, login: SharedLogin) -> _Login:
        lifetimes = self._lifetimes
        lasts_s = lifetimes.refresh_s if login.grant.may_refresh else lifetimes.access_s
        until = min(login.renewed + lasts_s, login.created + MAX_LIFETIMES * lifetimes.refresh_s)
        answer = await self._store.get(ANSWERS, login.answer) if login.answer else None
        sealed = None if answer is None else answer.value
        times = (login.created, login.renewed, until)
        return _Login(login.grant, login.secret, login.number, login.newest, *times, sealed)

    async def write(self, name: str, value: _Login, before: _Login | None) -> bool:
        left_s = min(value.until - time.time(), LONGEST_S)
        if left_s <= 0:
            return False
        if value.grant is None:
            await self._store.put(REVOKED, name, b"%.0f" % value.until, left_s)
            if name in self._versions:
                await self._store.delete(LOGINS, name_of(name))
            return True
        answer = ""
        if value.answer is not None and value.is_answer_repeated():
            answer = secrets.token_urlsafe(16)
            await self._store.put(ANSWERS, answer, value.answer, grants.GRACE_S)
        login = SharedLogin(
            id=name,
            grant=value.grant,
            secret=value.secret,
            number=value.number,
            newest=value.newest,
            created=value.created,
            renewed=value.renewed,
            access_s=self._lifetimes.access_s,
            answer=answer,
        )
        expected = self._versions.get(name, ABSENT)
        data = msgspec.json.encode(login)
        return await self._store.compare_and_set(LOGINS, name_of(name), data, left_s, expected=expected) is not None
