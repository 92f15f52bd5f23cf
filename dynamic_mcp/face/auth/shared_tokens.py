"""Tokens created by `dynamic-mcp token` where replicas share a store: each replica looks them up in a copy.

A revoked token is refused everywhere within a second. A replica whose copy is older, because the store cannot be
used, accepts none of these tokens until it can.
"""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Callable, Iterable

from msgspec import Struct

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.face.auth.bearer import BearerProvider
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.auth.token_store import MAX_TOKENS, PREFIX, StoredToken, find_token, hash_of, make_token
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    SharedStore,
    StoredEntry,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)
from dynamic_mcp.system.store_copies import Mirror, Refill
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# Revoked tokens stay until they would have expired, so that a store that was emptied is filled without them.
TOKENS = StoreSpace("tokens", most_listed=MAX_TOKENS)
_UNAVAILABLE = CredentialDenial("temporarily_unavailable", "the token could not be checked; retry")


class SharedToken(Struct, frozen=True):
    """An entry, whose name is the token's hash."""

    token: StoredToken
    is_revoked: bool = False


class SharedTokenStore:
    """The tokens as commands change them."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def load(self) -> tuple[StoredToken, ...]:
        """Return all tokens. Raises DynamicMcpError."""
        try:
            entries = await self._store.list_entries(TOKENS)
        except StoreUnavailable as exc:
            raise _failure(exc, "could not read the tokens") from exc
        return _list_valid(each for each in map(decode_token, entries) if each is not None)

    async def create(
        self, subject: str, roles: tuple[str, ...], *, lifetime_s: float | None, now: float
    ) -> tuple[str, StoredToken]:
        """Create a token; return it and its stored form. Raises DynamicMcpError."""
        if lifetime_s is None or lifetime_s > LONGEST_S:
            days = int(LONGEST_S / 86_400)
            raise InvalidArguments(f"a token that replicas share expires in {days} days at most", hint="`--expires`")
        token, stored = make_token(subject, roles, await self.load(), lifetime_s=lifetime_s, now=now)
        try:
            await self._store.put(TOKENS, stored.hash, wire.encode(SharedToken(stored)), lifetime_s)
        except StoreUnavailable as exc:
            raise _failure(exc, "could not save the token") from exc
        return token, stored

    async def revoke(self, id: str, *, now: float) -> StoredToken:
        """Mark a token as revoked, and return it. Raises NotFound, InvalidArguments and DynamicMcpError."""
        token = find_token(await self.load(), id)
        value = wire.encode(SharedToken(token, is_revoked=True))
        try:
            await self._store.put(TOKENS, token.hash, value, left_s(token, now))
        except StoreUnavailable as exc:
            raise _failure(exc, "could not revoke the token") from exc
        return token


class SharedTokens:
    """The tokens as this replica knows them: a copy, which a task keeps up to date until `close`.

    A token that was revoked stays so here, whatever the store says later.
    """

    def __init__(self, store: SharedStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._mirror = Mirror(store, TOKENS)
        self._tokens: tuple[StoredToken, ...] = ()
        self._known: list[SharedToken] = []
        self._revoked: dict[str, SharedToken] = {}  # by their hashes, until they would have expired
        self._refill = Refill(store, self._fill, what="tokens", on_filled=self._read)
        self._tasks = TaskSet(log)
        self._mirror.on_change(self._read)
        self._tasks.create(self._mirror.run(), name="tokens that replicas share")

    @property
    def is_fresh(self) -> bool:
        """Return whether a token that was revoked more than a second ago is known to be."""
        return self._mirror.is_fresh and not self._refill.is_running

    def read(self) -> tuple[StoredToken, ...]:
        return self._tokens

    async def refresh(self) -> None:
        """Read what is new. Raises StoreUnavailable."""
        await self._mirror.refresh()

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self._refill.close()

    def _read(self) -> None:
        if not self._refill.is_running:
            found = [each for each in map(decode_token, self._mirror.entries) if each is not None]
            revoked = {**self._revoked, **{each.token.hash: each for each in found if each.is_revoked}}
            now = self._now()
            self._revoked = {key: each for key, each in revoked.items() if not each.token.has_expired(now)}
            self._known = [*self._revoked.values(), *(each for each in found if each.token.hash not in revoked)]
            self._tokens = _list_valid(self._known)

    async def _fill(self) -> None:
        """Write what the store lacks, first what was revoked. Raises StoreUnavailable."""
        there = {each.name: decode_token(each) for each in await self._store.list_entries(TOKENS)}
        for each in self._known:
            found = there.get(each.token.hash)
            is_there = found is not None and (found.is_revoked or not each.is_revoked)
            if is_there or each.token.has_expired(self._now()):
                continue
            try:
                await self._write(each, left_s(each.token, self._now()))
            except StoreUnavailable as exc:
                if exc.failure is not StoreFailure.FULL or found is not None:
                    raise
                log.warning("the token `%s` is not kept in the shared store: %s", each.token.id, exc)
        await self._mirror.refresh()

    async def _write(self, shared: SharedToken, left_s: float) -> None:
        value = wire.encode(shared)
        if shared.is_revoked:
            await self._store.put(TOKENS, shared.token.hash, value, left_s)
        else:
            await self._store.compare_and_set(TOKENS, shared.token.hash, value, left_s, expected=ABSENT)


class SharedBearerProvider(BearerProvider):
    """Accepts tokens of the config, and those that all replicas know. It asks the store where its copy is old."""

    def __init__(self, config: BearerAuth, tokens: SharedTokens, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(config, tokens, now=now)
        self._shared = tokens
        self._tasks = TaskSet(log)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        if token is None or not token.startswith(PREFIX) or self._shared.is_fresh:
            return super().authenticate(head, token)
        return self._tasks.create(self._authenticate_later(token), name="check of a token")

    async def _authenticate_later(self, token: str) -> AuthResult:
        configured = self._find_configured(hash_of(token))
        if configured is not None:
            return configured
        try:
            await self._shared.refresh()
        except StoreUnavailable:
            return _UNAVAILABLE
        return self._find_created(token) if self._shared.is_fresh else _UNAVAILABLE

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self._shared.close()


def _list_valid(known: Iterable[SharedToken]) -> tuple[StoredToken, ...]:
    valid = [each.token for each in known if not each.is_revoked]
    return tuple(sorted(valid, key=lambda token: (token.created_at, token.hash)))


def decode_token(entry: StoredEntry) -> SharedToken | None:
    """Return the token of an entry; None if it is of another version."""
    shared = entry.read(SharedToken)
    return shared if shared is not None and shared.token.hash == entry.name else None


def left_s(token: StoredToken, now: float) -> float:
    """Return for how long an entry is kept: at least a second, also where a token has just expired."""
    ends_at = token.created_at + LONGEST_S if token.expires_at is None else token.expires_at
    return min(max(ends_at - now, 1.0), LONGEST_S)


def _failure(exc: StoreUnavailable, what: str) -> DynamicMcpError:
    return DynamicMcpError(f"{what}: {exc}", hint="try again; `dynamic-mcp cluster check` tries the store")
