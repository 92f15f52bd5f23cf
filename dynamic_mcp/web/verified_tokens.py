"""Caches tokens with verified signatures, by their hashes only."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from hashlib import sha256

from msgspec import Struct

from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.bounded import BoundedDict

_MAX_CACHED = 10_000


class VerifiedToken(Struct, frozen=True):
    """The authentication by a token, its audiences and its expiry; `login` is its login, if known."""

    authentication: Authentication
    audiences: tuple[str, ...]
    expires_at: float
    login: str = ""


class _Entry(Struct, frozen=True):
    token: VerifiedToken
    until: float


class VerifiedTokens:
    """The recently verified tokens, and the logins of authenticated clients.

    A token is cached for `kept_s`. The caller checks whether it has expired.
    """

    def __init__(self, now: Callable[[], float], kept_s: float = math.inf) -> None:
        self._now = now
        self._kept_s = kept_s
        self._entries: BoundedDict[bytes, _Entry] = BoundedDict(_MAX_CACHED)
        # with their expiry: a new token extends the streams of an old one
        self._logins: BoundedDict[Authentication, dict[str, float]] = BoundedDict(_MAX_CACHED)

    def __contains__(self, token: str) -> bool:
        return _hash(token) in self._entries

    def find(self, token: str) -> VerifiedToken | None:
        """Return a cached token, unless it must be verified again."""
        entry = self._entries.get(_hash(token))
        return entry.token if entry is not None and self._now() < entry.until else None

    def add(self, token: str, verified: VerifiedToken) -> None:
        digest = _hash(token)
        self._entries.pop(digest, None)  # so that it becomes the newest entry, as its login does
        self._entries[digest] = _Entry(verified, self._now() + self._kept_s)
        logins = self._logins.pop(verified.authentication, None)
        if logins is not None:
            self._logins[verified.authentication] = logins

    def accept(self, verified: VerifiedToken) -> Authentication:
        """Return the authentication by a token; its login is valid from now on, until the token expires."""
        logins = self._logins.get(verified.authentication)
        if logins is None:
            logins = self._logins[verified.authentication] = {}
        if logins.get(verified.login, 0.0) < verified.expires_at:
            now = self._now()
            for login in [each for each, until in logins.items() if until <= now]:
                del logins[login]
            logins[verified.login] = verified.expires_at
        return verified.authentication

    def is_valid(self, authentication: Authentication, revoked: Set[str] = frozenset()) -> bool:
        """Return whether one of the logins behind this authentication is still valid."""
        now = self._now()
        logins = self._logins.get(authentication) or {}
        return any(until > now and login not in revoked for login, until in logins.items())


def _hash(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
