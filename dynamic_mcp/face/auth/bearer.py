"""Tokens of our own: those that `dynamic-mcp token` has made, and those of the config.

The file of the former is looked at with every request, so that a token counts no more as soon as it is revoked.
"""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Callable
from hmac import compare_digest

from msgspec import Struct

from dynamic_mcp.config.auth import Bearer
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.auth.provider import Denial
from dynamic_mcp.face.auth.token_store import PREFIX, StoredToken, TokenStore, hash_of
from dynamic_mcp.face.http.authenticator import Page
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.file_store import Stamp, stamp_of

log = logging.getLogger(__name__)

_UNKNOWN = Denial("invalid_token", "the token is not known here, or was revoked")
_EXPIRED = Denial("invalid_token", "the token has expired")


class _Known(Struct, frozen=True):
    """A token that was made, and what it shows of whoever has it."""

    token: StoredToken
    authentication: Authentication


class BearerProvider:
    """Knows tokens by their hashes. Each token has one `Authentication` object, by which streams know its end."""

    name = "bearer"

    def __init__(self, config: Bearer, store: TokenStore, *, now: Callable[[], float] = time.time) -> None:
        self._own = [(hash_of(each.token), _authentication(each.subject, each.roles)) for each in config.tokens]
        self._store = store
        self._now = now
        self._stamp: Stamp | str | None = "not read yet"
        self._stored: dict[str, _Known] = {}
        self._by_identity: dict[int, _Known] = {}

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Tell whether a token is like those that commands make, or is one of the config."""
        return token is not None and (token.startswith(PREFIX) or self._find_own(hash_of(token)) is not None)

    def authenticate(
        self, head: RequestHead, token: str | None
    ) -> Authentication | Denial | Future[Authentication | Denial]:
        """Return who has a token."""
        if token is None:
            return _UNKNOWN
        digest = hash_of(token)
        own = self._find_own(digest)
        if own is not None:
            return own
        self._refresh()
        known = self._stored.get(digest)
        if known is None or not compare_digest(known.token.hash, digest):
            return _UNKNOWN
        return _EXPIRED if known.token.has_expired(self._now()) else known.authentication

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether the very token that this was returned for still counts."""
        if authentication.provider != "bearer":
            return False
        if any(own is authentication for _, own in self._own):
            return True
        self._refresh()
        known = self._by_identity.get(id(authentication))
        return known is not None and not known.token.has_expired(self._now())

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return None."""
        return None

    async def close(self) -> None:
        """Do nothing."""

    def _find_own(self, digest: str) -> Authentication | None:
        """Return whose token of the config it is; every one is compared, in constant time."""
        found = None
        for own, authentication in self._own:
            if compare_digest(own, digest):
                found = authentication
        return found

    def _refresh(self) -> None:
        """Read the file if it has changed. Where it cannot be read, no token of it counts."""
        stamp = stamp_of(self._store.file)
        if stamp == self._stamp:
            return
        try:
            tokens = self._store.load()
        except DynamicMcpError as exc:
            self._forget_all(str(exc))
            return
        self._stamp = stamp
        self._keep(tokens)

    def _forget_all(self, why: str) -> None:
        if self._stamp != why:
            log.error("no token of a command is accepted: %s", why)
        self._stamp = why
        self._keep(())

    def _keep(self, tokens: tuple[StoredToken, ...]) -> None:
        before = self._stored
        self._stored = {}
        for each in tokens:
            known = before.get(each.hash)
            same = known is not None and known.token == each
            self._stored[each.hash] = (
                known if same and known is not None else _Known(each, _authentication(each.subject, each.roles))
            )
        self._by_identity = {id(each.authentication): each for each in self._stored.values()}


def _authentication(subject: str, roles: tuple[str, ...]) -> Authentication:
    return Authentication(Principal(TOKEN, subject), "bearer", roles=roles)
