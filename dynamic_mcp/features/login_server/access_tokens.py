"""Our own access tokens, as they come back: whose they are, as long as they count."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dynamic_mcp.face.auth.provider import Denial
from dynamic_mcp.features.login_server import grants
from dynamic_mcp.features.login_server.addresses import Addresses, is_within
from dynamic_mcp.features.login_server.database import Database, DatabaseError
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:
    from dynamic_mcp.features.login_server.keys import Key

_MAX_CHARS = 16 << 10
_MAX_REMEMBERED = 10_000
# How late this process may learn that another one has revoked a login, or made a key.
_FRESH_S = 5.0
_EXPIRED = Denial("invalid_token", "the access token has expired")
_REVOKED = Denial("invalid_token", "the login was revoked")
_INVALID = Denial("invalid_token", "the access token is not valid")
_ELSEWHERE = Denial("invalid_token", "the access token is for another part of this server")


class Unsigned(Struct, frozen=True):
    """What a token says of itself, before anybody has looked at its signature."""

    key_id: str
    issuer: str


class _Header(Struct):
    alg: str
    kid: str


class _Issuer(Struct):
    iss: str


def peek(token: str) -> Unsigned | None:
    """Return who a token claims to be from; None if it is no signed token."""
    parts = token.split(".") if len(token) <= _MAX_CHARS else []
    if len(parts) != 3:
        return None
    try:
        header = decode_as(_decode(parts[0]), _Header)
        issuer = decode_as(_decode(parts[1]), _Issuer)
    except (ValueError, RecursionError):
        return None
    return Unsigned(header.kid, issuer.iss)


class _Verified(Struct, frozen=True):
    """A token whose signature, issuer and audience are ours."""

    authentication: Authentication
    family: str
    parts: tuple[str, ...]
    until: float


class AccessTokens:
    """Checks access tokens. Each signature is checked once, and in a thread where the database has to be asked."""

    def __init__(self, at: Addresses, database: Database, now: Callable[[], float]) -> None:
        self._at = at
        self._database = database
        self._now = now
        self._tasks = TaskSet()
        self._keys: Mapping[str, Key] = {}
        self._revoked: frozenset[str] = frozenset()
        self._read_at = self._tried_at = -_FRESH_S
        self._known: BoundedDict[bytes, _Verified] = BoundedDict(_MAX_REMEMBERED)
        # the logins by which somebody was let in, with their ends: a new token prolongs a stream of an old one
        self._seen: BoundedDict[Authentication, dict[str, float]] = BoundedDict(_MAX_REMEMBERED)

    def recognises(self, token: str) -> bool:
        """Tell whether a token claims to be one of ours."""
        if _hash(token) in self._known:
            return True
        unsigned = peek(token)
        return unsigned is not None and unsigned.issuer == self._at.issuer

    def authenticate(self, token: str, target: bytes) -> Authentication | Denial | Future[Authentication | Denial]:
        """Tell whose token this is, for a request with this target."""
        verified = self._known.get(_hash(token))
        if verified is not None and self._is_fresh():
            return self._judge(verified, target)
        return self._tasks.create(self._look_up(token, target), name="check of an access token")

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether one of the logins by which somebody was let in still counts."""
        if authentication.provider != "login":
            return False
        if not 0 <= self._now() - self._tried_at < _FRESH_S:
            self._tried_at = self._now()
            self._tasks.create(self._read_again(), name="read revoked logins")
        seen = self._seen.get(authentication) or {}
        now = self._now()
        return any(until > now and family not in self._revoked for family, until in seen.items())

    def forget(self) -> None:
        """Ask the database before the next answer: a login has ended."""
        self._read_at = -_FRESH_S

    async def close(self) -> None:
        """End what is under way."""
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _is_fresh(self) -> bool:
        return 0 <= self._now() - self._read_at < _FRESH_S

    async def _look_up(self, token: str, target: bytes) -> Authentication | Denial:
        unsigned = peek(token)
        try:
            if not self._is_fresh() or (unsigned is not None and unsigned.key_id not in self._keys):
                await self._read()
            verified = self._known.get(_hash(token)) or await self._database.run(lambda _: self._verify(token))
        except DatabaseError:
            return Denial("temporarily_unavailable", "the access token cannot be checked now")
        if verified is None:
            return _INVALID
        self._known[_hash(token)] = verified
        return self._judge(verified, target)

    async def _read_again(self) -> None:
        try:
            await self._read()
        except DatabaseError:
            return  # it was logged; what is known stays

    async def _read(self) -> None:
        now = self._now()

        def work(connection: sqlite3.Connection) -> tuple[Mapping[str, Key], frozenset[str]]:
            from dynamic_mcp.features.login_server import keys

            return keys.all_keys(connection), grants.revoked(connection, now)

        self._keys, self._revoked = await self._database.run(work)
        self._read_at = now

    def _verify(self, token: str) -> _Verified | None:
        """Check the signature; called in the thread of the database."""
        from dynamic_mcp.features.login_server import keys

        unsigned = peek(token)
        claims = None if unsigned is None else keys.read_claims(token, self._keys, unsigned.key_id)
        if claims is None or claims.get("iss") != self._at.issuer:
            return None
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        parts = tuple(part for each in audience if (part := self._at.find_part(str(each))) is not None)
        if not parts or not isinstance(claims.get("exp"), int):
            return None
        return _Verified(_to_authentication(claims), str(claims["sid"]), parts, float(claims["exp"]))

    def _judge(self, verified: _Verified, target: bytes) -> Authentication | Denial:
        now = self._now()
        if verified.until <= now:
            return _EXPIRED
        if verified.family in self._revoked:
            return _REVOKED
        part = self._at.part_of_request(target)
        if not any(is_within(part, each) for each in verified.parts):
            return _ELSEWHERE
        seen = self._seen.get(verified.authentication)
        if seen is None:
            self._seen[verified.authentication] = {verified.family: verified.until}
        elif seen.get(verified.family, 0.0) < verified.until:
            for family in [each for each, until in seen.items() if until <= now]:
                del seen[family]
            seen[verified.family] = verified.until
        return verified.authentication


def _to_authentication(claims: Mapping[str, Any]) -> Authentication:  # Any: JSON that we have written ourselves
    return Authentication(
        principal=Principal(claims["iss"], claims["sub"]),
        provider="login",
        roles=tuple(claims["roles"]),
        claims=tuple(sorted((name, tuple(texts)) for name, texts in claims["claims"].items())),
        scopes=frozenset(claims["scope"].split()),
    )


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _decode(segment: str) -> bytes:
    return urlsafe_b64decode(segment.encode("ascii") + b"=" * (-len(segment) % 4))
