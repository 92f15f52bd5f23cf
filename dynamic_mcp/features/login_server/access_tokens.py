"""Checks the access tokens that this server has issued."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.features.login_server import grants
from dynamic_mcp.features.login_server.addresses import Addresses, is_within
from dynamic_mcp.features.login_server.database import Database
from dynamic_mcp.features.login_server.state import UNAVAILABLE
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.web.signed_token import SignedToken, TokenError, parse_token, read_texts
from dynamic_mcp.web.verified_tokens import VerifiedToken, VerifiedTokens

if TYPE_CHECKING:
    from dynamic_mcp.web.jwk import SigningKey

# How long revoked logins and keys are cached, which other processes may change.
_FRESH_S = 5.0
_EXPIRED = CredentialDenial("invalid_token", "the access token has expired")
_REVOKED = CredentialDenial("invalid_token", "the login was revoked")
_INVALID = CredentialDenial("invalid_token", "invalid access token")
_OTHER_PART = CredentialDenial("invalid_token", "the access token is for another part of this server")


class AccessTokens(ABC):
    """Checks access tokens. Each signature is verified once, in a thread."""

    def __init__(self, at: Addresses, now: Callable[[], float]) -> None:
        self._at = at
        self._now = now
        self._tasks = TaskSet()
        self._keys: Mapping[str, SigningKey] = {}
        self._verified = VerifiedTokens(now)

    def recognises(self, token: str) -> bool:
        """Return whether a token names us as its issuer."""
        if token in self._verified:
            return True
        signed = _parse(token)
        return signed is not None and signed.issuer == self._at.issuer

    def authenticate(self, token: str, target: bytes) -> AuthResult | Future[AuthResult]:
        """Return the authentication by a token for a request with this target."""
        verified = self._verified.find(token)
        if verified is not None and self._is_fresh():
            return self._judge(verified, target)
        return self._tasks.create(self._look_up(token, target), name="check of an access token")

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether one of the logins behind an authentication is still valid."""
        is_ours = authentication.provider == "login"
        return is_ours and self._verified.is_valid(authentication, self._list_revoked())

    @abstractmethod
    def forget(self) -> None:
        """Called when a login was revoked here."""

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._tasks.wait()

    @abstractmethod
    def _is_fresh(self) -> bool:
        """Return whether what was read lately may decide."""

    @abstractmethod
    def _list_revoked(self) -> Set[str]:
        """Return the revoked logins that are known."""

    @abstractmethod
    async def _read(self) -> None:
        """Read the keys and what was revoked. Raises one of UNAVAILABLE."""

    @abstractmethod
    async def _check_signature(self, signed: SignedToken) -> VerifiedToken | None:
        """Call `_verify` in a thread. Raises one of UNAVAILABLE."""

    async def _look_up(self, token: str, target: bytes) -> AuthResult:
        signed = _parse(token)
        try:
            if not self._is_fresh() or (signed is not None and signed.kid not in self._keys):
                await self._read()
            verified = self._verified.find(token)
            if verified is None and signed is not None:
                verified = await self._check_signature(signed)
        except UNAVAILABLE:
            return CredentialDenial("temporarily_unavailable", "the access token could not be checked; retry")
        if verified is None:
            return _INVALID
        self._verified.add(token, verified)
        return self._judge(verified, target)

    def _verify(self, token: SignedToken) -> VerifiedToken | None:
        """Verify the signature; called in a thread."""
        from dynamic_mcp.features.login_server import keys

        claims = keys.read_claims(token, self._keys)
        if claims is None or claims.get("iss") != self._at.issuer:
            return None
        audiences = (self._at.find_part(each) for each in read_texts(claims["aud"]))
        parts = tuple(part for part in audiences if part is not None)
        if not parts or not isinstance(claims.get("exp"), int):
            return None
        return VerifiedToken(_to_authentication(claims), parts, float(claims["exp"]), str(claims["sid"]))

    def _judge(self, verified: VerifiedToken, target: bytes) -> AuthResult:
        if verified.expires_at <= self._now():
            return _EXPIRED
        if verified.login in self._list_revoked():
            return _REVOKED
        part = self._at.part_of_request(target)
        if not any(is_within(part, each) for each in verified.audiences):
            return _OTHER_PART
        return self._verified.accept(verified)


class DatabaseAccessTokens(AccessTokens):
    """Checks access tokens by the database of this machine."""

    def __init__(self, at: Addresses, database: Database, now: Callable[[], float]) -> None:
        super().__init__(at, now)
        self._database = database
        self._revoked: frozenset[str] = frozenset()
        self._read_at = self._tried_at = -_FRESH_S

    def is_valid(self, authentication: Authentication) -> bool:
        if authentication.provider == "login" and not 0 <= self._now() - self._tried_at < _FRESH_S:
            self._tried_at = self._now()
            self._tasks.create(self._read_again(), name="read revoked logins")
        return super().is_valid(authentication)

    def forget(self) -> None:
        """Query the database before the next answer, because a login was revoked."""
        self._read_at = -_FRESH_S

    def _is_fresh(self) -> bool:
        return 0 <= self._now() - self._read_at < _FRESH_S

    def _list_revoked(self) -> Set[str]:
        return self._revoked

    async def _read_again(self) -> None:
        try:
            await self._read()
        except UNAVAILABLE:
            return  # it was logged; keep the cached state

    async def _read(self) -> None:
        now = self._now()

        def work(connection: sqlite3.Connection) -> tuple[Mapping[str, SigningKey], frozenset[str]]:
            from dynamic_mcp.features.login_server import keys

            return keys.all_keys(connection), grants.revoked(connection, now)

        self._keys, self._revoked = await self._database.run(work)
        self._read_at = now

    async def _check_signature(self, signed: SignedToken) -> VerifiedToken | None:
        return await self._database.run(lambda _: self._verify(signed))


def _to_authentication(claims: Mapping[str, Any]) -> Authentication:  # Any: JSON that we have written ourselves
    return Authentication(
        principal=Principal(claims["iss"], claims["sub"]),
        provider="login",
        roles=tuple(claims["roles"]),
        claims=tuple(sorted((name, tuple(texts)) for name, texts in claims["claims"].items())),
        scopes=frozenset(claims["scope"].split()),
    )


def _parse(token: str) -> SignedToken | None:
    try:
        return parse_token(token)
    except TokenError:
        return None
