"""Our own tokens: those created by `dynamic-mcp token`, and those in the config.

The token file is checked with every request, so that a revoked token is refused at once.
"""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Callable
from hmac import compare_digest

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


class _CreatedToken(Struct, frozen=True):
    """A created token, and the authentication that it stands for."""

    token: StoredToken
    authentication: Authentication


class BearerProvider(Provider):
    """Finds tokens by their hashes. Each token has one `Authentication` object, by which streams notice its end."""

    name = "bearer"

    def __init__(self, config: BearerAuth, store: TokenStore, *, now: Callable[[], float] = time.time) -> None:
        self._configured = [
            (hash_of(each.token), _authentication(each.subject, each.roles)) for each in config.tokens
        ]
        self._store = store
        self._now = now
        self._stamp: Stamp | str | None = "not read yet"
        self._created: dict[str, _CreatedToken] = {}
        self._by_identity: dict[int, _CreatedToken] = {}

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Return whether a token has the prefix of created tokens, or is in the config."""
        return token is not None and (token.startswith(PREFIX) or self._find_configured(hash_of(token)) is not None)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        if token is None:
            return _UNKNOWN
        digest = hash_of(token)
        authentication = self._find_configured(digest)
        if authentication is not None:
            return authentication
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
        """Read the file if it has changed. If it cannot be read, none of its tokens is accepted."""
        stamp = stamp_of(self._store.file)
        if stamp == self._stamp:
            return
        try:
            tokens = self._store.load()
        except DynamicMcpError as exc:
            self._reject_all(str(exc))
            return
        self._stamp = stamp
        self._set_tokens(tokens)

    def _reject_all(self, why: str) -> None:
        if self._stamp != why:
            log.error("tokens created by `dynamic-mcp token` are not accepted: %s", why)
        self._stamp = why
        self._set_tokens(())

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
