"""Accepts tokens that are signed by an authorization server of the config (RFC 7519, RFC 9068).

A token is valid if it is signed by a current key of the issuer, with an algorithm of the config, for our audience,
and not expired. The result is cached for a minute, under the hash of the token only.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from dynamic_mcp.config.auth import Jwt
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial, Provider
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.web.jwks import KeyDirectory, KeysUnavailable
from dynamic_mcp.web.signed_token import (
    EDDSA,
    SignedToken,
    TokenError,
    check_claims,
    find_claim,
    pair_claims,
    parse_token,
    read_name,
    read_texts,
)
from dynamic_mcp.web.verified_tokens import VerifiedToken, VerifiedTokens

CACHED_FOR_S = 60.0
_MAX_ROLES = 200
# `JWT` is the type of ID tokens and of many access tokens; the audience tells them apart.
_KINDS = frozenset({None, "jwt", "at+jwt"})
_FOR_OTHERS = CredentialDenial("invalid_token", "the token is for another audience")


def make_jwt(config: Jwt, http: Http) -> JwtProvider:
    """Return the provider of an issuer, for the endpoint of a config."""
    paths = (http.path, f"{http.root_path}{http.path}")
    return JwtProvider(config, Audiences(config.audience, http.public_url, paths))


class JwtProvider(Provider):
    """One issuer. The first token waits for the issuer's keys, later ones only if they are signed by a new key."""

    name = "jwt"

    def __init__(
        self,
        config: Jwt,
        audiences: Audiences,
        *,
        keys: KeyDirectory | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._algorithms = frozenset(config.algorithms) | (EDDSA if "EdDSA" in config.algorithms else set())
        self._audiences = audiences
        self._keys = keys or KeyDirectory(config.issuer, config.jwks_url)
        self._now = now
        self._verified = VerifiedTokens(now, CACHED_FOR_S)
        self._tasks = TaskSet()

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Return whether a token names this issuer."""
        if token is None:
            return False
        if token in self._verified:
            return True
        try:
            return parse_token(token).issuer == self._config.issuer
        except TokenError:
            return False

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        assert token is not None
        verified = self._verified.find(token)
        if verified is not None and self._now() < verified.expires_at:
            return verified.authentication if self._audiences.accept(verified.audiences, head) else _FOR_OTHERS
        try:
            signed = parse_token(token)
            self._check(signed)
        except TokenError as exc:
            return CredentialDenial("invalid_token", str(exc))
        if not self._audiences.accept(read_texts(signed.claims.get("aud")), head):
            return _FOR_OTHERS
        is_signed = self._keys.has_signed(signed)
        if is_signed is None and (self._keys.may_fetch() or not self._keys.has_keys()):
            return self._tasks.create(self._verify(token, signed), name=f"keys for a token of {self._config.issuer}")
        return self._conclude(token, signed, is_signed=is_signed is True)

    def is_valid(self, authentication: Authentication) -> bool:
        return self._verified.is_valid(authentication)

    async def close(self) -> None:
        self._tasks.cancel_all()
        await self._keys.close()
        await self._tasks.wait()

    # --- judging a token -------------------------------------------------------------------------------

    def _check(self, token: SignedToken) -> float:
        """Check everything that needs no key; return when the token expires. Raises TokenError."""
        if token.algorithm not in self._algorithms:
            raise TokenError("the token's signature algorithm is not accepted")
        if token.kind not in _KINDS:
            raise TokenError("the token is not an access token")
        if read_name(token.claims, self._config.claims.subject) is None:
            raise TokenError("the token has no subject")
        config = self._config
        return check_claims(token.claims, issuer=config.issuer, now=self._now(), leeway_s=config.leeway_s)

    async def _verify(self, token: str, signed: SignedToken) -> AuthResult:
        try:
            is_signed = await self._keys.verify(signed)
        except KeysUnavailable:
            return CredentialDenial("temporarily_unavailable", "could not fetch the issuer's keys; retry")
        return self._conclude(token, signed, is_signed=is_signed)

    def _conclude(self, token: str, signed: SignedToken, *, is_signed: bool) -> AuthResult:
        if not is_signed:
            return CredentialDenial("invalid_token", "the token is not signed by a key of its issuer")
        try:
            expires_at = self._check(signed)  # again: it may have expired while the keys were fetched
        except TokenError as exc:
            return CredentialDenial("invalid_token", str(exc))
        authentication = read_authentication(self._config, signed.claims)
        required = self._config.required_scopes
        if authentication.scopes is not None and not authentication.scopes.issuperset(required):
            return CredentialDenial("insufficient_scope", "the token lacks a required scope", required)
        verified = VerifiedToken(authentication, read_texts(signed.claims.get("aud")), expires_at)
        self._verified.add(token, verified)
        return self._verified.accept(verified)


def read_authentication(config: Jwt, claims: Mapping[str, object]) -> Authentication:
    """Return the authentication that a token's claims describe; its subject is checked already."""
    subject = read_name(claims, config.claims.subject)
    assert subject is not None
    roles = () if config.claims.roles is None else read_texts(find_claim(claims, config.claims.roles))[:_MAX_ROLES]
    return Authentication(
        principal=Principal(config.issuer, subject),
        provider="jwt",
        roles=roles,
        claims=pair_claims(claims),
        scopes=_read_scopes(claims, config.claims.scopes),
    )


def _read_scopes(claims: Mapping[str, object], claim: str | None) -> frozenset[str]:
    """Return the scopes of a token (RFC 9068, section 2.2.3); some issuers use `scp`, or a list."""
    names = ("scope", "scp") if claim is None else (claim,)
    value = next((each for name in names if (each := find_claim(claims, name)) is not None), None)
    return frozenset(scope for text in read_texts(value) for scope in text.split())


class Audiences:
    """The audiences that this server accepts (RFC 8707; RFC 9068, section 4).

    These are the audiences of the config, if it has any. Otherwise they are `public_url`, with and without a trailing
    slash, and its origin, which some clients request; and the URL of a group or a profile, for requests to that URL
    only. `paths` are the paths of the MCP endpoint as they appear in requests.
    """

    def __init__(self, configured: Sequence[str], public_url: str | None, paths: Sequence[str] = ()) -> None:
        self._public_url = None if configured or public_url is None else public_url.rstrip("/")
        self._paths = tuple(paths)
        self._everywhere = frozenset(configured)
        if self._public_url is not None:
            parts = urlsplit(self._public_url)
            origin = f"{parts.scheme}://{parts.netloc}"
            self._everywhere |= {self._public_url, f"{self._public_url}/", origin, f"{origin}/"}

    def accept(self, audiences: Sequence[str], head: RequestHead) -> bool:
        """Return whether one of the audiences of a token is accepted for this request."""
        if not self._everywhere.isdisjoint(audiences):
            return True
        below = self._below(head)
        return bool(below) and f"{self._public_url}{below}" in (each.rstrip("/") for each in audiences)

    def _below(self, head: RequestHead) -> str:
        """Return the part of the request's path after the endpoint: nothing, or `/` and more."""
        if self._public_url is None:
            return ""
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        for each in self._paths:
            for endpoint in (each, f"{head.root_path.rstrip('/')}{each}"):
                if path.startswith(f"{endpoint}/"):
                    return path[len(endpoint) :].rstrip("/")
        return ""
