"""Our own tokens: those created by `dynamic-mcp token`, and those in the config.

What is created is looked up with every request, in a file that has changed or in memory, so that a revoked token is
refused at once.
"""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Callable
from hmac import compare_digest
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial, Provider
from dynamic_mcp.face.auth.token_store import PREFIX, StoredToken, TokenStore, hash_of
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.file_store import Stamp, stamp_of

log = logging.getLogger(__name__)

_UNKNOWN = CredentialDenial("invalid_token", "unknown or revoked token")
_EXPIRED = CredentialDenial("invalid_token", "the token has expired")


class TokenReader(Protocol):
    """What has been created."""

    def read(self) -> tuple[StoredToken, ...]:
        """Return all tokens; the same object as long as nothing has changed."""
        ...


class TokenFile:
    """A `TokenReader` of the file of one config. If it cannot be read, none of its tokens is accepted."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._stamp: Stamp | str | None = "not read yet"
        self._tokens: tuple[StoredToken, ...] = ()

    def read(self) -> tuple[StoredToken, ...]:
        stamp = stamp_of(self._store.file)
        if stamp != self._stamp:
            try:
                self._tokens, self._stamp = self._store.load(), stamp
            except DynamicMcpError as exc:
                self._reject_all(str(exc))
        return self._tokens

    def _reject_all(self, why: str) -> None:
        if self._stamp != why:
            log.error("tokens created by `dynamic-mcp token` are not accepted: %s", why)
        self._tokens, self._stamp = (), why


class _CreatedToken(Struct, frozen=True):
    """A created token, and the authentication that it stands for."""

    token: StoredToken
    authentication: Authentication


class BearerProvider(Provider):
    """Finds tokens by their hashes. Each token has one `Authentication` object, by which streams notice its end."""

    name = "bearer"

    def __init__(self, config: BearerAuth, tokens: TokenReader, *, now: Callable[[], float] = time.time) -> None:
        self._configured = [
            (hash_of(each.token), _authentication(each.subject, each.roles)) for each in config.tokens
        ]
        self._reader = tokens
        self._tokens: tuple[StoredToken, ...] = ()
        self._now = now
        self._created: dict[str, _CreatedToken] = {}
        self._by_identity: dict[int, _CreatedToken] = {}

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Return whether a token has the prefix of created tokens, or is in the config."""
        return token is not None and (token.startswith(PREFIX) or self._find_configured(hash_of(token)) is not None)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        if token is None:
            return _UNKNOWN
        configured = self._find_configured(hash_of(token))
        return self._find_created(token) if configured is None else configured

    def _find_created(self, token: str) -> AuthResult:
        digest = hash_of(token)
        self._refresh()
        created = self._created.get(digest)
        if created is None or not compare_digest(created.token.hash, digest):
            return _UNKNOWN
        return _EXPIRED if created.token.has_expired(self._now()) else created.authentication

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether the token that this object was returned for is still valid."""
        if authentication.provider != "bearer":
            return False
        if any(each is authentication for _, each in self._configured):
            return True
        self._refresh()
        created = self._by_identity.get(id(authentication))
        return created is not None and not created.token.has_expired(self._now())

    def _find_configured(self, digest: str) -> Authentication | None:
        """Return the authentication of a token in the config; compares every token, in constant time."""
        found = None
        for known_digest, authentication in self._configured:
            if compare_digest(known_digest, digest):
                found = authentication
        return found

    def _refresh(self) -> None:
        tokens = self._reader.read()
        if tokens is not self._tokens:
            self._tokens = tokens
            self._set_tokens(tokens)

    def _set_tokens(self, tokens: tuple[StoredToken, ...]) -> None:
        before, self._created = self._created, {}
        for each in tokens:
            created = before.get(each.hash)
            if created is None or created.token != each:
                created = _CreatedToken(each, _authentication(each.subject, each.roles))
            self._created[each.hash] = created
        self._by_identity = {id(each.authentication): each for each in self._created.values()}


def _authentication(subject: str, roles: tuple[str, ...]) -> Authentication:
    return Authentication(Principal(TOKEN, subject), "bearer", roles=roles)
