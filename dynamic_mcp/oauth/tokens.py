"""Gets tokens from an authorization server, and revokes them. Imports authlib: only for a login or a renewal.

`resource` is part of every request (RFC 8707), so a token is valid for one server only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from authlib.common.security import generate_token
from authlib.common.urls import add_params_to_qs
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from dynamic_mcp.config.resolved import OAuth
from dynamic_mcp.oauth.credentials import Client, Login, Token
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl
from dynamic_mcp.web.guarded_client import TIMEOUT_S, GuardedTransport, explain

ASSERTION_S = 300
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN, _ID_JAG = (f"urn:ietf:params:oauth:token-type:{name}" for name in ("id_token", "id-jag"))
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_LONGEST_S = 10 * 365 * 24 * 3600.0
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}

# Any: the answer of a token endpoint, of which `_parse_token` reads what it knows.
Answer = dict[str, Any]


class TokenDenied(Exception):
    """The authorization server has refused; `code` is the error code of RFC 6749, section 5.2."""

    def __init__(self, code: str) -> None:
        super().__init__(f"answered with the error `{code}`")
        self.code = code


class TokenRequestFailed(Exception):
    """There was no usable answer; the message is the rest of a sentence that begins with the endpoint."""


@dataclass(frozen=True)
class Assertion:
    """A JWT that an authorization server exchanges for a token, and the scope to request with it."""

    value: str = field(repr=False)
    scope: str | None


class TokenEndpoint:
    """The token endpoint of one login, for one client."""

    def __init__(self, policy: AddressPolicy, login: Login, config: OAuth) -> None:
        assert login.client is not None
        self._policy = policy
        self._login = login
        self._client = login.client
        self._config = config

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Token:
        """Exchange an authorization code for a token. Raises TokenDenied and TokenRequestFailed."""
        return await self._fetch(
            "authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect_uri, **self._resource()
        )

    async def fetch_client_token(self, scope: str | None) -> Token:
        """Return a token for the client itself (RFC 6749, section 4.4). Raises TokenDenied and TokenRequestFailed."""
        params = {"scope": scope} if scope else {}
        return await self._fetch("client_credentials", **params, **self._resource())

    async def exchange_assertion(self, assertion: str, scope: str | None) -> Token:
        """Exchange an assertion for a token (RFC 7523, section 2.1). Raises TokenDenied and TokenRequestFailed."""
        params = {"scope": scope} if scope else {}
        return await self._fetch(_JWT_BEARER, assertion=assertion, **params, **self._resource())

    async def exchange_id_token(self, id_token: str, audience: str, scope: str | None) -> Assertion:
        """Exchange an ID token for an assertion that another authorization server, the audience, accepts.

        This is a token exchange (RFC 8693), and the assertion an Identity Assertion JWT Authorization Grant (ID-JAG).
        Raises TokenDenied and TokenRequestFailed.
        """
        params = {"scope": scope} if scope else {}
        answer = await self._ask(
            _EXCHANGE,
            subject_token=id_token,
            subject_token_type=_ID_TOKEN,
            requested_token_type=_ID_JAG,
            audience=audience,
            **params,
            **self._resource(),
        )
        return _parse_assertion(answer, scope)

    async def refresh(self, token: Token) -> Token:
        """Return a new token; the old refresh token may be invalid afterwards.

        Raises TokenDenied and TokenRequestFailed.
        """

        async def refresh(session: AsyncOAuth2Client) -> Answer:
            answer: Answer = await session.refresh_token(
                self._login.token_endpoint, refresh_token=token.refresh, **self._resource()
            )
            return answer

        return _parse_token(await self._request(refresh), previous=token)

    async def revoke(self, token: Token) -> None:
        """Revoke both tokens (RFC 7009). Raises TokenDenied and TokenRequestFailed."""

        async def revoke(session: AsyncOAuth2Client) -> Answer:
            endpoint = self._login.revocation_endpoint
            for kind, value in (("refresh_token", token.refresh), ("access_token", token.access)):
                if value:
                    answer = await session.revoke_token(  # type: ignore[no-untyped-call]
                        endpoint, token=value, token_type_hint=kind
                    )
                    answer.raise_for_status()
            return {}

        await self._request(revoke)

    async def _fetch(self, grant: str, **params: str) -> Token:
        return _parse_token(await self._ask(grant, **params))

    async def _ask(self, grant: str, **params: str) -> Answer:
        async def fetch(session: AsyncOAuth2Client) -> Answer:
            answer: Answer = await session.fetch_token(self._login.token_endpoint, grant_type=grant, **params)
            return answer

        return await self._request(fetch)

    async def _request(self, ask: Callable[[AsyncOAuth2Client], Awaitable[Answer]]) -> Answer:
        import asyncio

        with _translate_errors():
            async with self._session() as session, asyncio.timeout(TIMEOUT_S):
                return await ask(session)

    def _session(self) -> AsyncOAuth2Client:
        method = self._client.auth_method
        session = AsyncOAuth2Client(
            client_id=self._client.id,
            client_secret=self._secret(),
            token_endpoint_auth_method=method,
            revocation_endpoint_auth_method=method,
            transport=GuardedTransport(self._policy),
            timeout=TIMEOUT_S,
            follow_redirects=False,
        )
        session.register_client_auth_method(("client_secret_basic", _authenticate_basic))
        if method == "private_key_jwt":
            session.register_client_auth_method(self._assertion(session.client_secret))
        return session

    def _secret(self) -> object:
        if self._client.auth_method == "private_key_jwt":
            return _load_private_key(self._config.private_key_file)
        return self._config.client_secret if self._client.source == "config" else self._client.secret

    def _assertion(self, key: object) -> PrivateKeyJWT:
        claims = {"exp": int(time.time()) + ASSERTION_S, "jti": generate_token(36)}
        audience = self._login.issuer or self._login.token_endpoint
        return PrivateKeyJWT(audience, claims=claims, alg=self._config.private_key_alg or _algorithm(key))

    def _resource(self) -> dict[str, str]:
        return {"resource": self._login.resource} if self._login.resource else {}


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn every error of a token endpoint into TokenDenied or TokenRequestFailed."""
    try:
        yield
    except OAuthError as exc:
        raise TokenDenied(_sanitize_code(exc.error)) from None  # without the text, which is the server's
    except httpx2.HTTPStatusError as exc:
        status = exc.response.status_code
        redirect = ", a redirect that is not followed" if exc.response.is_redirect else ""
        raise TokenRequestFailed(f"answered with HTTP {status}{redirect}") from None
    except (ForbiddenUrl, httpx2.HTTPError, TimeoutError) as exc:
        raise TokenRequestFailed(explain(exc)) from exc
    except (ValueError, RecursionError) as exc:
        raise TokenRequestFailed("sent something that is not a token") from exc


def _parse_token(answer: Answer, previous: Token | None = None) -> Token:
    access, refresh, scope = (answer.get(name) for name in ("access_token", "refresh_token", "scope"))
    if not isinstance(access, str) or not is_token(access):
        raise TokenRequestFailed("sent an answer without a token")
    token_type = answer.get("token_type", "bearer")
    if not isinstance(token_type, str) or token_type.lower() != "bearer":
        raise TokenRequestFailed("sent a token of another type than `Bearer`")
    if not isinstance(refresh, str) or not refresh:
        refresh = previous.refresh if previous else None
    if not isinstance(scope, str):
        scope = previous.scope if previous else None
    now = time.time()
    seconds = _parse_seconds(answer.get("expires_in"))
    return Token(access, now, None if seconds is None else now + seconds, refresh, scope)


def _parse_assertion(answer: Answer, scope: str | None) -> Assertion:
    """Return the assertion, and the scope that it is good for: the requested one unless the answer says otherwise."""
    token, granted = answer.get("access_token"), answer.get("scope")
    if not isinstance(token, str) or not is_token(token):
        raise TokenRequestFailed("sent an answer without a token")
    if answer.get("issued_token_type") != _ID_JAG:
        raise TokenRequestFailed("sent a token of another type than the requested one")
    return Assertion(token, granted if isinstance(granted, str) else scope)


def is_token(text: str) -> bool:
    """Tell whether a text can be a token: visible ASCII, and of a sensible length."""
    return _TOKEN.fullmatch(text) is not None


def _parse_seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        return None
    return seconds if 0 < seconds <= _LONGEST_S else None


def _sanitize_code(code: object) -> str:
    """Return an error code without characters that no code has."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "", str(code))[:60]


def _authenticate_basic(
    auth: ClientAuth, method: str, uri: str, headers: Any, body: str
) -> tuple[str, Any, str]:  # Any: httpx2's
    """Authenticate with HTTP Basic, both parts encoded (RFC 6749, section 2.3.1)."""
    from base64 import b64encode

    pair = f"{quote(auth.client_id, safe='')}:{quote(auth.client_secret or '', safe='')}"
    headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    # the MCP SDK's authorization server looks for the client id only in the body
    return uri, headers, add_params_to_qs(body or "", [("client_id", auth.client_id)])


def _load_private_key(file: str | None) -> RSAKey | ECKey | OKPKey:
    """Return the key in a file. Raises TokenRequestFailed."""
    try:
        data = read_bytes(Path(file or ""))
    except OSError as exc:
        raise TokenRequestFailed(f"was not asked: the key `{file}` cannot be read: {os_reason(exc)}") from exc
    for kind in ("RSA", "EC", "OKP"):
        try:
            return import_key(data, kind)
        except (JoseError, ValueError, TypeError):
            continue
    raise TokenRequestFailed(f"was not asked: `{file}` is not a private key in PEM format")


def _algorithm(key: object) -> str:
    match key:
        case ECKey():
            return _CURVES.get(key.curve_name, "ES256")
        case OKPKey():
            return "EdDSA"
    return "RS256"


def configured_client(config: OAuth, methods: list[str] | None) -> Client | None:
    """Return the config's client, with one of the authentication methods that the server supports."""
    if config.client_id is None:
        return None
    if config.private_key_file:
        method = "private_key_jwt"
    elif config.client_secret:
        only_post = methods is not None and "client_secret_basic" not in methods and "client_secret_post" in methods
        method = "client_secret_post" if only_post else "client_secret_basic"
    else:
        method = "none"
    return Client(config.client_id, "config", method)
