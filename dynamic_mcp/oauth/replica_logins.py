"""Logins at servers where replicas share a store: done once, known to all, and renewed by one replica at a time.

A refresh token that the server may have replaced is not sent again by another replica. So a replica writes which one
it is about to send; if it then ends without an answer, its login ends with the access token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from weakref import WeakSet

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace as with_fields

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.oauth.store import LoginUnavailable, key
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    Lease,
    SharedStore,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
    Version,
)
from dynamic_mcp.system.store_copies import Refill

log = logging.getLogger(__name__)

_MAX_LOGINS = 10_000
LOGINS = StoreSpace("upstream-logins", most_listed=_MAX_LOGINS)
# Whose logins there are, so that commands find them: small, since all are listed.
PERSONS = StoreSpace("upstream-persons", most_listed=_MAX_LOGINS)
RENEWALS = StoreSpace("upstream-renewals")
# Messages tell of changes at once. They may be lost, so a login is read again after so long.
_READ_EVERY_S = 30.0
_READ_AGAIN_S = 5.0
# A replica that is killed while it renews a login keeps the others waiting for so long.
HELD_S = 15.0
_RENEW_EVERY_S = 5.0
# How long to wait for another replica's renewal, and how often to look if no message says that it has ended.
_WAIT_S = 60.0
_LOOK_EVERY_S = 1.0
# After a store was emptied, replicas write what they know before any login is renewed.
_SETTLE_S = 2.0
_MAX_TRIES = 10


class UpstreamLogin(Struct, frozen=True):
    """An entry: a login, or None once it has ended. The one with the highest `number` is the latest.

    `spent` is the hash of the refresh token that the replica `spender` is sending. With `is_kept`, the server has
    not replaced the refresh token when it was sent.
    """

    login: Login | None
    number: int
    spent: str = ""
    spender: str = ""
    is_kept: bool = False


class LoginPerson(Struct, frozen=True):
    """A user with a login to a server."""

    server: str
    person: Principal


class ReplicaLogins:
    """The logins in a store, for this replica."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self.holder = secrets.token_hex(8)
        self.released = asyncio.Event()
        """Replaced, and then set, when a replica may have ended a renewal."""
        self.settled_at = float("-inf")
        self._changes: BoundedDict[str, int] = BoundedDict(_MAX_LOGINS)
        self._losses = 0
        self._opened: WeakSet[ReplicaLogin] = WeakSet()
        self._refill = Refill(store, self._fill, what="logins at servers")
        self._ends: list[Callable[[], None]] = [
            store.subscribe(LOGINS, self._on_change),
            store.subscribe(RENEWALS, self._on_release),
            store.on_reset(self._on_reset),
        ]

    def open(self, remote: Remote) -> ReplicaLogin:
        """Return the login to a server."""
        login = ReplicaLogin(self, remote)
        self._opened.add(login)
        return login

    async def list_persons(self, remote: Remote) -> list[Principal]:
        """Return the users who have a separate login to a server. Raises LoginUnavailable."""
        with _explained():
            entries = await self.store.list_entries(PERSONS)
        found: list[Principal] = []
        for each in entries:
            listed = each.read(LoginPerson)
            if listed is not None and each.name == key(with_fields(remote, login_of=listed.person)):
                found.append(listed.person)
        return sorted(found, key=lambda each: (each.subject, each.issuer))

    def stamp(self, name: str) -> tuple[int, int]:
        return self._losses, self._changes.get(name, 0)

    async def close(self) -> None:
        """Write what could not be written before, and hear of changes no more."""
        for each in [*self._opened]:
            with contextlib.suppress(OSError):
                await each.write_unsaved()
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        await self._refill.close()

    def _on_change(self, message: bytes | None) -> None:
        if message is None:
            self._losses += 1
        else:
            name = message.decode("utf-8", "replace")
            self._changes[name] = self._changes.pop(name, 0) + 1

    def _on_release(self, message: bytes | None) -> None:
        released, self.released = self.released, asyncio.Event()
        released.set()

    def _on_reset(self) -> None:
        """Called when the store may have been emptied."""
        self.settled_at = time.monotonic() + _SETTLE_S

    async def _fill(self) -> None:
        """Write the logins that are known here. Raises StoreUnavailable."""
        for each in [*self._opened]:
            await each.restore()


class ReplicaLogin:
    """One login. All methods that wait raise LoginUnavailable."""

    def __init__(self, logins: ReplicaLogins, remote: Remote) -> None:
        self._logins = logins
        self._store = logins.store
        self._remote = remote
        self._name = key(remote)
        self.known = UpstreamLogin(None, 0)
        """The entry as it was last read or written here, or a later one that the store has lost."""
        self._version: Version = ABSENT
        self._unsaved: tuple[Login | None, bool] | None = None  # and whether it is new
        self._read_at = float("-inf")
        self._local_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ReplicaLogin to {self._remote.url}, {self.known.number}>"

    is_shared = True

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes once a replica has written the login."""
        return self._logins.stamp(self._name)

    def is_old(self) -> bool:
        return time.monotonic() - self._read_at > _READ_EVERY_S

    async def read(self) -> Login | None:
        """Return the login; None if there is none."""
        self._read_later()
        if self._unsaved is not None:
            login = await self.write_unsaved()
        else:
            with _explained():
                await self._read()
            login = self.known.login
        self._read_at = time.monotonic()
        return login

    async def write(self, login: Login | None, *, is_new: bool = False) -> Login | None:
        """Write a login, and return the one that counts now.

        Unless it `is_new`, what another replica has written meanwhile about another login of the user counts instead.
        """
        before = self.known
        self._unsaved = login, is_new
        self._read_later()
        for _ in range(_MAX_TRIES):
            with _explained():
                if await self._put(self._following(login)):
                    self._unsaved = None
                    if is_new:
                        await self._write_person(login)
                    return login
                await self._read()
            if not is_new and not _is_same_login(before.login, self.known.login):
                self._unsaved = None
                return self.known.login
        raise LoginUnavailable("other replicas change it again and again")

    async def remove(self) -> None:
        """End the login at all replicas."""
        try:
            await self.write(None, is_new=True)
        finally:
            self._unsaved = None

    async def write_unsaved(self) -> Login | None:
        """Write what could not be written, and return what counts now."""
        if self._unsaved is None:
            return self.known.login
        login, is_new = self._unsaved
        return await self.write(login, is_new=is_new)

    async def restore(self) -> None:
        """Write what is known again, unless a replica knows a later login. Raises StoreUnavailable."""
        for _ in range(_MAX_TRIES):
            known = self.known
            entry = await self._store.get(LOGINS, self._name)
            there = None if entry is None else entry.read(UpstreamLogin)
            if not known.number or (there is not None and there.number >= known.number):
                return
            self._version = ABSENT if entry is None else entry.version
            try:
                if await self._put(known):
                    await self._write_person(known.login)
                    return
            except StoreUnavailable as exc:
                if exc.failure is not StoreFailure.FULL:
                    raise
                log.warning("the login to %s is not kept in the shared store: %s", self._remote.url, exc)
                return

    # --- renewal ---------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Be the only task of all replicas that renews this login; one that was killed frees it after 15 s."""
        async with self._local_lock:
            holder = secrets.token_hex(8)
            try:
                await self._acquire(holder)
            except LoginUnavailable as exc:
                # a client that logs in by itself spends no refresh token, so two replicas may do so at once
                if self._remote.oauth.needs_user:
                    raise
                log.debug("the login to %s is renewed without the others: %s", self._remote.url, exc)
            self._read_at = float("-inf")  # what another replica has just written counts
            keeping = asyncio.create_task(self._keep(holder), name="lease of a login's renewal")
            try:
                yield
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
                await self._release(holder)

    async def begin_spending(self, token: Token) -> bool:
        """Write that a refresh token is about to be sent; return False if another replica may have sent it."""
        if token.refresh is None or self.known.is_kept or not self._remote.oauth.needs_user:
            return True
        spent, holder = spent_mark(token.refresh), self._logins.holder
        if self.known.spent == spent:
            return self.known.spender == holder
        marked = structs.replace(self.known, spent=spent, spender=holder)
        with _explained():
            if not await self._put(marked):
                raise LoginUnavailable("another replica changes it")
        return True

    async def end_spending(self) -> None:
        """Write that a refresh token is still the latest, since the server has not answered with another."""
        if self.known.spender == self._logins.holder:
            with contextlib.suppress(StoreUnavailable):  # then this replica alone may send it again
                await self._put(structs.replace(self.known, spent="", spender=""))

    async def _acquire(self, holder: str) -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                await asyncio.sleep(max(0.0, self._logins.settled_at - time.monotonic()))
                while True:
                    released = self._logins.released
                    with _explained():
                        wait = await self._store.acquire(RENEWALS, [self._lease], holder, HELD_S)
                    if wait is None:
                        return
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(wait.wait_s, _LOOK_EVERY_S)):
                            await released.wait()
        except TimeoutError:
            raise LoginUnavailable("another replica has been renewing it for too long") from None

    async def _keep(self, holder: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            with contextlib.suppress(StoreUnavailable):
                await self._store.renew(RENEWALS, [self._lease], holder, HELD_S)

    async def _release(self, holder: str) -> None:
        try:
            await self._store.release(RENEWALS, [self._lease], holder)
        except StoreUnavailable as exc:  # it expires
            log.debug("the lease of a login's renewal is not released: %s", exc)

    @property
    def _lease(self) -> Lease:
        return Lease(self._name, 1)

    # --- the entry --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        entry = await self._store.get(LOGINS, self._name)
        if entry is None:  # one that has ended is there, so that this one was lost
            self._version = ABSENT
            return
        found = entry.read(UpstreamLogin)
        if found is None:
            raise LoginUnavailable("it was written by another version")
        self._version = entry.version
        if found.number >= self.known.number:  # else the store has lost the latest one
            self.known = found

    def _read_later(self) -> None:
        """Read the login again soon, should what follows fail."""
        self._read_at = time.monotonic() - _READ_EVERY_S + _READ_AGAIN_S

    async def _put(self, wanted: UpstreamLogin) -> bool:
        """Write an entry unless another replica has changed it."""
        value = msgspec.json.encode(wanted)
        version = await self._store.compare_and_set(LOGINS, self._name, value, LONGEST_S, expected=self._version)
        if version is not None:
            self.known, self._version = wanted, version
        return version is not None

    def _following(self, login: Login | None) -> UpstreamLogin:
        before, after = _refresh_token(self.known.login), _refresh_token(login)
        is_renewal = before is not None and self.known.spent == spent_mark(before)
        is_kept = before == after and (self.known.is_kept or is_renewal)
        return UpstreamLogin(login, self.known.number + 1, is_kept=after is not None and is_kept)

    async def _write_person(self, login: Login | None) -> None:
        person = self._remote.login_of
        if person is None:
            return
        try:
            if login is None:
                await self._store.delete(PERSONS, self._name)
            else:
                value = msgspec.json.encode(LoginPerson(self._remote.url, person))
                await self._store.put(PERSONS, self._name, value, LONGEST_S)
        except StoreUnavailable as exc:
            log.warning("commands do not show the login of `%s` to %s: %s", person.subject, self._remote.url, exc)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as exc:
        raise LoginUnavailable(str(exc)) from exc


def _is_same_login(one: Login | None, other: Login | None) -> bool:
    """Return whether two logins have the same access token, so that a renewal of one is one of the other."""
    tokens = [None if each is None or each.token is None else each.token.access for each in (one, other)]
    return tokens[0] == tokens[1] and (one is None) == (other is None)


def _refresh_token(login: Login | None) -> str | None:
    return None if login is None or login.token is None else login.token.refresh


def spent_mark(refresh_token: str) -> str:
    """Return what is written of a refresh token that is being sent."""
    return sha256(json.dumps(refresh_token).encode()).hexdigest()
