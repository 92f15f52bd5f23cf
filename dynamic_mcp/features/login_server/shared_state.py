"""What the login server keeps where replicas share a store, so that a login begun at one is finished at another.

One compare-and-set decides: that of a code when it is redeemed, and that of a login when it is renewed or ends. Times
are those of the store, by which entries expire, so that clocks of replicas may differ.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib
import random
import re
import secrets
from collections.abc import Callable, Set
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import Struct, structs

from dynamic_mcp.config.section import Private
from dynamic_mcp.features.login_server import grants, sealing, store
from dynamic_mcp.features.login_server.access_tokens import AccessTokens
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.clients import OAuthClient
from dynamic_mcp.features.login_server.grants import Family, GrantError, Lifetimes
from dynamic_mcp.features.login_server.records import AccessGrant
from dynamic_mcp.features.login_server.revocations import Revocations
from dynamic_mcp.features.login_server.state import UNKNOWN_CLIENT, UNPROVEN, R, TokenRequest, read_access_token
from dynamic_mcp.features.login_server.store import hash_of
from dynamic_mcp.features.login_server.stored_table import StoredTable
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    SharedStore,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
    Version,
)
from dynamic_mcp.web.signed_token import SignedToken
from dynamic_mcp.web.verified_tokens import VerifiedToken

if TYPE_CHECKING:
    from dynamic_mcp.features.login_server.shared_keys import SharedKeys
    from dynamic_mcp.web.jwk import SigningKey

LOGINS = StoreSpace("logins")
ANSWERS = StoreSpace("login-answers")
# A table with many more places than entries.
_PLACES, _DOCUMENTS = 1 << 14, 1 << 12
# The logins of one user with one client: the first characters of an id are the entry's name.
_MAX_PER_OWNER = 128
_NAME = re.compile(r"[0-9a-f]{18}|[0-9A-Za-z_-]{22}")
# The length of an id of a login that began in the file of one machine, whose entry has it as its name.
_FILE_ID_CHARS = 22
_LOOKS = 4
_MAX_TRIES = 8
# A client is in use if it has logged in, or renewed a login, since then.
_TOUCH_EVERY_S = 86_400.0
# Clocks of replicas may differ.
_SKEW_S = 120.0


class SharedClient(Struct, frozen=True):
    """A registered client, and when it was last used."""

    client: OAuthClient
    used: float


class SharedCode(Struct, frozen=True):
    """The grant of a code, and the login that it was redeemed for."""

    grant: AccessGrant
    login: str | None = None


class SharedLogin(Private, frozen=True):
    """A login; `number` and the hash `newest` are those of its newest refresh token.

    `answer` names the last answer while that is repeated, and access tokens are valid for `access_s` at most.
    """

    shown: ClassVar = ("id", "number")
    id: str
    grant: AccessGrant
    secret: bytes
    number: int
    newest: str
    created: float
    renewed: float
    access_s: float
    answer: str = ""


def client_tables(store: SharedStore) -> tuple[StoredTable, StoredTable]:
    """Return the tables of clients that have not logged in yet, and of those that have."""
    return StoredTable(store, "login-new-clients", _PLACES), StoredTable(store, "login-clients", _PLACES)


class SharedState:
    """The state that the login servers of all replicas have in common."""

    def __init__(self, shared_store: SharedStore, now: Callable[[], float]) -> None:
        self._store = shared_store
        self._now = now
        self._keys: SharedKeys | None = None
        self._access_s = 0.0
        self._new_clients, self._clients = client_tables(shared_store)
        self._documents = StoredTable(shared_store, "login-documents", _DOCUMENTS)
        self._requests = StoredTable(shared_store, "login-requests", _PLACES)
        self._codes = StoredTable(shared_store, "login-codes", _PLACES)
        self.revocations = Revocations(shared_store, now, self._restore)

    # --- clients ---------------------------------------------------------------------------------------

    async def add_client(self, client: OAuthClient, now: float) -> None:
        await self._new_clients.add(client.id, SharedClient(client, now), store.UNUSED_S)

    async def find_client(self, id: str) -> OAuthClient | None:
        for table in (self._clients, self._new_clients):
            found = await table.find(id, SharedClient)
            if found is not None:
                return found.value.client
        return None

    async def keep_document(self, client: OAuthClient, kept_s: float, now: float) -> None:
        await self._documents.add(client.id, SharedClient(client, now), kept_s)

    async def find_document(self, url: str, now: float) -> OAuthClient | None:
        found = await self._documents.find(url, SharedClient)
        return None if found is None else found.value.client

    async def _touch_client(self, id: str, now: float) -> None:
        """Record a login with a client, so that it is kept for longer."""
        found = await self._clients.find(id, SharedClient)
        if found is not None:
            if now - found.value.used > _TOUCH_EVERY_S:
                await self._clients.replace(found, id, SharedClient(found.value.client, now), LONGEST_S)
            return
        new = await self._new_clients.find(id, SharedClient)
        if new is not None:
            await self._clients.add(id, SharedClient(new.value.client, now), LONGEST_S)
            await self._new_clients.remove(new)

    # --- requests and codes ----------------------------------------------------------------------------

    async def add_request(self, pending: Struct, now: float, *, secret: str | None = None) -> str:
        secret = secret or secrets.token_urlsafe(32)
        await self._requests.add(_request_key(secret, type(pending)), pending, store.REQUEST_S)
        return secret

    async def take_request(self, secret: str, kind: type[R], now: float, may_take: Callable[[R], bool]) -> R | None:
        found = await self._requests.find(_request_key(secret, kind), kind)
        if found is None or not may_take(found.value) or not await self._requests.remove(found):
            return None
        return found.value

    async def add_code(self, grant: AccessGrant, now: float) -> str:
        await self._touch_client(grant.client_id, now)
        code = secrets.token_urlsafe(32)
        await self._codes.add(hash_of(code), SharedCode(grant), grants.CODE_S)
        return code

    async def redeem_code(
        self, code: str, fits: Callable[[AccessGrant], bool], request: TokenRequest
    ) -> bytes | GrantError:
        if not request.has_document and await self.find_client(request.client_id) is None:
            return UNKNOWN_CLIENT
        key = hash_of(code)
        for _ in range(_MAX_TRIES):
            found = await self._codes.find(key, SharedCode)
            if found is None:
                return GrantError("unknown code, or it has expired")
            grant, used_by = found.value.grant, found.value.login
            if grant.client_id != request.client_id:
                return GrantError("the code was issued to another client")
            if not fits(grant):
                if used_by is not None or await self._codes.remove(found):
                    return UNPROVEN
                continue
            if used_by is not None:
                await self._revoke(used_by, request.lifetimes.access_s)
                return GrantError("the code was already used: its login is revoked", was_reused=True)
            # the login comes first: whoever finds the code used can revoke it
            login, answer = await self._add_login(grant, request)
            if await self._codes.replace(found, key, SharedCode(grant, login), grants.REMEMBERED_S):
                return answer
            await self._delete(login)  # its tokens are known to no one
        raise _busy()

    # --- logins ----------------------------------------------------------------------------------------

    async def _add_login(self, grant: AccessGrant, request: TokenRequest) -> tuple[str, bytes]:
        """Start a login; return its id and the answer with its first tokens."""
        lifetimes, now = request.lifetimes, request.now
        owner = sha256(f"{grant.client_id}\0{grant.user.subject}".encode()).hexdigest()[:16]
        for _ in range(_MAX_TRIES):
            name, expected = await self._find_place(owner)
            id, secret = name + secrets.token_urlsafe(16), secrets.token_bytes(32)
            token = grants.new_token(id, secret, 1) if grant.may_refresh else None
            answer = await self._issue(request, Family(id, grant), token)
            newest = "" if token is None else hash_of(token)
            login = SharedLogin(id, grant, secret, 1, newest, now, now, lifetimes.access_s)
            lasts_s = lifetimes.refresh_s if grant.may_refresh else lifetimes.access_s
            if await self._write(login, lasts_s, expected) is not None:
                return id, answer
        raise _busy()

    async def _find_place(self, owner: str) -> tuple[str, Version]:
        """Return where a login may be written: a free place, or that of a login that was not renewed for long."""
        oldest: tuple[float, str, Version] | None = None
        for number in random.sample(range(_MAX_PER_OWNER), _LOOKS):
            name = f"{owner}{number:02x}"
            entry = await self._store.get(LOGINS, name)
            if entry is None:
                return name, ABSENT
            login = entry.read(SharedLogin)
            candidate = (0.0 if login is None else login.renewed, name, entry.version)
            oldest = candidate if oldest is None else min(oldest, candidate)
        assert oldest is not None, "there is more than one place"
        return oldest[1:]

    async def refresh(self, token: str, request: TokenRequest) -> bytes | GrantError:
        if not request.has_document and await self.find_client(request.client_id) is None:
            return UNKNOWN_CLIENT
        await self._touch_client(request.client_id, request.now)
        for _ in range(_MAX_TRIES):
            found = await self._find_login(token)
            if found is None or await self.revocations.has(found[0].id):
                return GrantError("unknown refresh token")
            login, number, version = found
            if login.grant.client_id != request.client_id:
                return GrantError("the refresh token was issued to another client")
            repeated = await self._find_answer(login, number, token)
            if repeated is not None:
                return repeated
            # one with a higher number is ours too: the store has lost the latest writes
            is_newest = number == login.number and hmac.compare_digest(hash_of(token), login.newest)
            if not is_newest and number <= login.number:
                await self._revoke(login.id, max(login.access_s, request.lifetimes.access_s))
                return GrantError("the refresh token was already used: the login is revoked", was_reused=True)
            answer = await self._renew(login, number, token, version, request)
            if answer is not None:
                return answer
        raise _busy()

    async def _renew(
        self, login: SharedLogin, number: int, token: str, version: Version, request: TokenRequest
    ) -> bytes | GrantError | None:
        """Return the answer with the next tokens; None if the login has changed meanwhile."""
        lifetimes, now = request.lifetimes, request.now
        ends_s = login.created + grants.MAX_LIFETIMES * lifetimes.refresh_s - now
        if ends_s <= 0:
            return GrantError("the login has expired")
        successor = grants.new_token(login.id, login.secret, number + 1)
        answer = await self._issue(request, Family(login.id, login.grant), successor)
        answer_name = secrets.token_urlsafe(16)
        await self._store.put(ANSWERS, answer_name, sealing.seal(answer, token), max(grants.GRACE_S, 0.001))
        renewed = structs.replace(
            login,
            number=number + 1,
            newest=hash_of(successor),
            renewed=now,
            access_s=max(login.access_s, lifetimes.access_s),
            answer=answer_name,
        )
        written = await self._write(renewed, min(lifetimes.refresh_s, ends_s), version)
        return None if written is None else answer

    async def _find_answer(self, login: SharedLogin, number: int, token: str) -> bytes | None:
        """Return the last answer, if this token has got it a moment ago."""
        if number != login.number - 1 or not login.answer:
            return None
        sealed = await self._store.get(ANSWERS, login.answer)
        return None if sealed is None else sealing.open_sealed(sealed.value, token)

    async def revoke(self, token: str, client_id: str, lifetimes: Lifetimes, now: float) -> None:
        found = await self._find_login(token)
        access_s = lifetimes.access_s
        if found is not None:
            login: tuple[str, str] | None = (found[0].id, found[0].grant.client_id)
            access_s = max(access_s, found[0].access_s)
        else:
            keys = await self.load_keys()
            if not keys.known:
                await keys.read()
            login = read_access_token(token, keys.known)
        if login is not None and login[1] == client_id:
            await self._revoke(login[0], access_s)

    async def _revoke(self, id: str, access_s: float) -> None:
        await self.revocations.add(id, access_s + _SKEW_S)
        await self._delete(id)

    async def _delete(self, id: str) -> None:
        for _ in range(_MAX_TRIES):
            entry = await self._store.get(LOGINS, name_of(id))
            login = None if entry is None else entry.read(SharedLogin)
            if entry is None or login is None or login.id != id:
                return
            if await self._store.delete(LOGINS, entry.name, expected=entry.version):
                return
        raise _busy()

    async def _find_login(self, token: str) -> tuple[SharedLogin, int, Version] | None:
        """Return the login of a refresh token that we have issued, the token's number, and the entry's version."""
        parsed = grants.RefreshToken.parse(token)
        name = "" if parsed is None else name_of(parsed.family)
        if parsed is None or not _NAME.fullmatch(name):
            return None
        entry = await self._store.get(LOGINS, name)
        login = None if entry is None else entry.read(SharedLogin)
        if entry is None or login is None or login.id != parsed.family:
            return None
        return (login, parsed.number, entry.version) if parsed.is_signed_with(login.secret) else None

    async def _write(self, login: SharedLogin, ttl_s: float, expected: Version) -> Version | None:
        data = msgspec.json.encode(login)
        return await self._store.compare_and_set(
            LOGINS, name_of(login.id), data, min(ttl_s, LONGEST_S), expected=expected
        )

    async def forget_answers(self, now: float) -> bool:
        return False  # they expire

    # --- keys ------------------------------------------------------------------------------------------

    async def load_keys(self) -> SharedKeys:
        """Return the keys as they are known here."""
        if self._keys is None:
            await asyncio.to_thread(importlib.import_module, "dynamic_mcp.features.login_server.shared_keys")
            from dynamic_mcp.features.login_server.shared_keys import SharedKeys

            self._keys = self._keys or SharedKeys(self._store)
        return self._keys

    async def list_keys(self, now: float, tokens_last_s: float) -> list[SigningKey]:
        keys = await self.load_keys()
        await keys.read()
        await keys.current(now, tokens_last_s)
        return [*keys.known.values()]

    async def _issue(self, request: TokenRequest, family: Family, refresh_token: str | None) -> bytes:
        keys = await self.load_keys()
        self._access_s = max(self._access_s, request.lifetimes.access_s)
        key = await keys.current(request.now, request.lifetimes.access_s)
        return await asyncio.to_thread(request.issue, key, family, refresh_token)

    # --- the store ---------------------------------------------------------------------------------------

    async def _restore(self, revoked: Set[str]) -> None:
        """Write the keys again, and delete what was revoked, in a store that may have lost its latest writes."""
        if self._keys is not None:
            await self._keys.restore(self._now(), self._access_s)
        for each in revoked:
            await self._delete(each)

    async def close(self) -> None:
        await self.revocations.close()


class SharedAccessTokens(AccessTokens):
    """Checks access tokens of all replicas. What was revoked is known by a copy."""

    def __init__(self, at: Addresses, state: SharedState, now: Callable[[], float]) -> None:
        super().__init__(at, now)
        self._state = state

    def forget(self) -> None:
        """Do nothing: what was revoked here is known already."""

    def _is_fresh(self) -> bool:
        return self._state.revocations.is_fresh

    def _list_revoked(self) -> Set[str]:
        return self._state.revocations.known

    async def _read(self) -> None:
        await self._state.revocations.refresh()
        keys = await self._state.load_keys()
        await keys.read()
        self._keys = keys.known

    async def _check_signature(self, signed: SignedToken) -> VerifiedToken | None:
        return await asyncio.to_thread(self._verify, signed)


def _request_key(secret: str, kind: type) -> str:
    return f"{kind.__name__}:{hash_of(secret)}"


def name_of(id: str) -> str:
    """Return the name of a login's entry."""
    return id if len(id) == _FILE_ID_CHARS else id[:18]


def _busy() -> StoreUnavailable:
    return StoreUnavailable(StoreFailure.BUSY, "an entry of the login server changes again and again")
