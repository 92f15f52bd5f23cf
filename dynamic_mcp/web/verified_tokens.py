"""Tokens whose signatures were checked, so that each is checked once; they are kept by their hashes only."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from hashlib import sha256

from msgspec import Struct

from dynamic_mcp.identity import Authentication
from dynamic_mcp.system.bounded import BoundedDict

_MAX_KEPT = 10_000


class VerifiedToken(Struct, frozen=True):
    """What a token has shown, whom it is for, and when it expires; `login` is the one it came of, if it is known."""

    authentication: Authentication
    audiences: tuple[str, ...]
    expires_at: float
    login: str = ""


class _Entry(Struct, frozen=True):
    token: VerifiedToken
    until: float


class VerifiedTokens:
    """The tokens that were verified of late, and the logins by which clients were let in.

    A token counts as verified for `kept_s`. Whether it has expired is for its user to ask.
    """

    def __init__(self, now: Callable[[], float], kept_s: float = math.inf) -> None:
        self._now = now
        self._kept_s = kept_s
        self._entries: BoundedDict[bytes, _Entry] = BoundedDict(_MAX_KEPT)
        # with their ends: a new token prolongs a stream of an old one
        self._logins: BoundedDict[Authentication, dict[str, float]] = BoundedDict(_MAX_KEPT)

    def __contains__(self, token: str) -> bool:
        return _hash(token) in self._entries

    def find(self, token: str) -> VerifiedToken | None:
        """Return what a token has shown, unless that is too long ago."""
        entry = self._entries.get(_hash(token))
        return entry.token if entry is not None and self._now() < entry.until else None

    def add(self, token: str, verified: VerifiedToken) -> None:
        """Keep what a token has shown."""
        digest = _hash(token)
        self._entries.pop(digest, None)  # so that it counts as new, as its login does
        self._entries[digest] = _Entry(verified, self._now() + self._kept_s)
        logins = self._logins.pop(verified.authentication, None)
        if logins is not None:
            self._logins[verified.authentication] = logins

    def accept(self, verified: VerifiedToken) -> Authentication:
        """Let in who has shown a token: its login counts from now on, until it expires."""
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
        """Tell whether one of the logins by which this client was let in still counts."""
        now = self._now()
        logins = self._logins.get(authentication) or {}
        return any(until > now and login not in revoked for login, until in logins.items())


def _hash(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
