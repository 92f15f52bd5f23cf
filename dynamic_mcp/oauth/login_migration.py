"""Takes the logins at the servers of a config from the disk into the store of replicas, and back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace as with_fields

from dynamic_mcp.config.resolved import Config, Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.oauth.credentials import Login
from dynamic_mcp.oauth.replica_logins import LOGINS, PERSONS, LoginPerson, UpstreamLogin, spent_mark
from dynamic_mcp.oauth.store import LoginStore, key, list_persons
from dynamic_mcp.oauth.user_logins import login_folder
from dynamic_mcp.system.migration import Migration
from dynamic_mcp.system.shared_store import ABSENT, LONGEST_S, SharedStore, Version


class _KeptLogin(Struct, frozen=True):
    """A login, or None after a user has ended it."""

    remote: Remote
    login: Login | None


def list_migrations(config: Config, store: SharedStore) -> list[Migration[_KeptLogin]]:
    """Return the logins at the servers of a config."""
    remotes = [each.upstream for each in config.groups if isinstance(each.upstream, Remote)]
    wanted = [each for each in remotes if not each.has_own_authorization]
    return [
        Migration(
            "logins at servers",
            _FileLogins(wanted, login_folder()),
            _StoreLogins(wanted, store),
            describe=lambda name, value: _describe(value.remote),
            is_same=lambda one, other: one.login == other.login,
        )
    ]


class _FileLogins:
    def __init__(self, remotes: list[Remote], folder: Path) -> None:
        self._remotes = remotes
        self._folder = folder

    async def load(self) -> dict[str, _KeptLogin]:
        found: dict[str, _KeptLogin] = {}
        for remote in self._remotes:
            persons = await asyncio.to_thread(list_persons, self._folder, remote)
            for each in _for_all(remote, persons):
                stored = LoginStore(self._folder, each)
                async with stored.lock():
                    login = await stored.read()
                if login is not None and login.token is not None:
                    found[key(each)] = _KeptLogin(each, replace(login, is_in_keyring=False))
        return found

    async def write(self, name: str, value: _KeptLogin, before: _KeptLogin | None) -> bool:
        stored = LoginStore(self._folder, value.remote)
        async with stored.lock():
            if value.login is not None:
                await stored.write(value.login)
            elif before is not None:
                await stored.remove()
        return value.login is not None or before is not None


class _StoreLogins:
    def __init__(self, remotes: list[Remote], store: SharedStore) -> None:
        self._remotes = remotes
        self._store = store
        self._entries: dict[str, tuple[UpstreamLogin, Version]] = {}

    async def load(self) -> dict[str, _KeptLogin]:
        listed = [each.read(LoginPerson) for each in await self._store.list_entries(PERSONS)]
        persons = [(each.server, each.person) for each in listed if each is not None]
        found: dict[str, _KeptLogin] = {}
        for remote in self._remotes:
            for each in _for_all(remote, [person for server, person in persons if server == remote.url]):
                entry = await self._store.get(LOGINS, key(each))
                known = None if entry is None else entry.read(UpstreamLogin)
                if entry is not None and known is not None:
                    self._entries[key(each)] = known, entry.version
                    found[key(each)] = _KeptLogin(each, _usable(known))
        return found

    async def write(self, name: str, value: _KeptLogin, before: _KeptLogin | None) -> bool:
        known, version = self._entries.get(name, (UpstreamLogin(None, 0), ABSENT))
        data = wire.encode(UpstreamLogin(value.login, known.number + 1))
        if await self._store.compare_and_set(LOGINS, name, data, LONGEST_S, expected=version) is None:
            return False
        if value.remote.login_of is not None:
            person = wire.encode(LoginPerson(value.remote.url, value.remote.login_of))
            await self._store.put(PERSONS, name, person, LONGEST_S)
        return True


def _for_all(remote: Remote, persons: list[Principal]) -> list[Remote]:
    return [remote, *(with_fields(remote, login_of=each) for each in persons)]


def _usable(known: UpstreamLogin) -> Login | None:
    """Return a login as another place may use it: without a refresh token that a replica may have sent."""
    login = known.login
    token = None if login is None else login.token
    if login is None or token is None or token.refresh is None or known.spent != spent_mark(token.refresh):
        return login
    return replace(login, token=replace(token, refresh=None))


def _describe(remote: Remote) -> str:
    return remote.url if remote.login_of is None else f"{remote.url} of `{remote.login_of.subject}`"
