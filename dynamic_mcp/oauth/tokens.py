"""Asking an authorization server for tokens, and giving them back. Imports authlib: only for a login or a renewal.

`resource` is part of every request (RFC 8707), so that a token is good for one server only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
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
from dynamic_mcp.oauth.reach import Forbidden, Reach
from dynamic_mcp.oauth.records import Client, Login, Token
from dynamic_mcp.oauth.web import TIMEOUT_S, GuardedTransport, explained
from dynamic_mcp.system.file_reader import read_bytes

ASSERTION_S = 300
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_LONGEST_S = 10 * 365 * 24 * 3600.0
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}

# Any: what a token endpoint answers, of which `_token` takes what it knows.
Answer = dict[str, Any]


class Denied(Exception):
    """The authorization server said no: `code` is the error of RFC 6749, section 5.2."""

    def __init__(self, code: str) -> None:
        super().__init__(f"answered with the error `{code}`")
        self.code = code


class Failed(Exception):
    """There was no usable answer; why, in words that follow the endpoint."""


class Tokens:
    """The token endpoint of one login, as one client."""

    def __init__(self, reach: Reach, login: Login, config: OAuth) -> None:
        assert login.client is not None
        self._reach = reach
        self._login = login
        self._client = login.client
        self._config = config

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Token:
        """Return the token that an authorization code is worth. Raises Denied and Failed."""
        return await self._fetched(
            "authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect_uri, **self._resource()
        )

    async def as_client(self, scope: str | None) -> Token:
        """Return a token for the client itself. Raises Denied and Failed."""
        asked = {"scope": scope} if scope else {}
        return await self._fetched("client_credentials", **asked, **self._resource())

    async def refreshed(self, token: Token) -> Token:
        """Return the successor of a token; the old refresh token may be dead afterwards. Raises Denied and Failed."""

        async def refresh(session: AsyncOAuth2Client) -> Answer:
            found: Answer = await session.refresh_token(
                self._login.token_endpoint, refresh_token=token.refresh, **self._resource()
            )
            return found

        return _token(await self._asked(refresh), before=token)

    async def revoke(self, token: Token) -> None:
        """Give both tokens back, if the server takes them (RFC 7009). Raises Denied and Failed."""

        async def revoke(session: AsyncOAuth2Client) -> Answer:
            endpoint = self._login.revocation_endpoint
            for kind, value in (("refresh_token", token.refresh), ("access_token", token.access)):
                if value:
                    answer = await session.revoke_token(  # type: ignore[no-untyped-call]
                        endpoint, token=value, token_type_hint=kind
                    )
                    answer.raise_for_status()
            return {}

        await self._asked(revoke)

    async def _fetched(self, grant: str, **params: str) -> Token:
        async def fetch(session: AsyncOAuth2Client) -> Answer:
            found: Answer = await session.fetch_token(self._login.token_endpoint, grant_type=grant, **params)
            return found

        return _token(await self._asked(fetch))

    async def _asked(self, ask: Callable[[AsyncOAuth2Client], Awaitable[Answer]]) -> Answer:
        import asyncio

        with _failures():
            async with self._session() as session, asyncio.timeout(TIMEOUT_S):
                return await ask(session)

    def _session(self) -> AsyncOAuth2Client:
        method = self._client.auth_method
        session = AsyncOAuth2Client(
            client_id=self._client.id,
            client_secret=self._secret(),
            token_endpoint_auth_method=method,
            revocation_endpoint_auth_method=method,
            transport=GuardedTransport(self._reach),
            timeout=TIMEOUT_S,
            follow_redirects=False,
        )
        session.register_client_auth_method(("client_secret_basic", _basic))
        if method == "private_key_jwt":
            session.register_client_auth_method(self._assertion(session.client_secret))
        return session

    def _secret(self) -> object:
        if self._client.auth_method == "private_key_jwt":
            return _private_key(self._config.private_key_file)
        return self._config.client_secret if self._client.source == "config" else self._client.secret

    def _assertion(self, key: object) -> PrivateKeyJWT:
        claims = {"exp": int(time.time()) + ASSERTION_S, "jti": generate_token(36)}
        audience = self._login.issuer or self._login.token_endpoint
        return PrivateKeyJWT(audience, claims=claims, alg=self._config.private_key_alg or _algorithm(key))

    def _resource(self) -> dict[str, str]:
        return {"resource": self._login.resource} if self._login.resource else {}


@contextmanager
def _failures() -> Iterator[None]:
    """Let everything that can go wrong with a token endpoint out as Denied or Failed."""
    try:
        yield
    except OAuthError as exc:
        raise Denied(_plain(exc.error)) from None  # its words are the server's, and stay there
    except httpx2.HTTPStatusError as exc:
        status = exc.response.status_code
        redirect = ", a redirect that is not followed" if exc.response.is_redirect else ""
        raise Failed(f"answered with HTTP {status}{redirect}") from None
    except (Forbidden, httpx2.HTTPError, TimeoutError) as exc:
        raise Failed(explained(exc)) from exc
    except (ValueError, RecursionError) as exc:
        raise Failed("answered with something that is not a token") from exc


def _token(answer: Answer, before: Token | None = None) -> Token:
    access, refresh, scope = (answer.get(name) for name in ("access_token", "refresh_token", "scope"))
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise Failed("answered without a token")
    kind = answer.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise Failed("gave a token of a kind other than `Bearer`")
    if not isinstance(refresh, str) or not refresh:
        refresh = before.refresh if before else None
    if not isinstance(scope, str):
        scope = before.scope if before else None
    now = time.time()
    seconds = _seconds(answer.get("expires_in"))
    return Token(access, now, None if seconds is None else now + seconds, refresh, scope)


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        return None
    return seconds if 0 < seconds <= _LONGEST_S else None


def _plain(code: object) -> str:
    """Return an error's code as far as it can be one."""
    return re.sub(r"[^A-Za-z0-9_.:-]", "", str(code))[:60]


def _basic(auth: ClientAuth, method: str, uri: str, headers: Any, body: str) -> tuple[str, Any, str]:  # Any: httpx2's
    """Authenticate by HTTP Basic with both parts encoded first, as RFC 6749, section 2.3.1 says."""
    from base64 import b64encode

    pair = f"{quote(auth.client_id, safe='')}:{quote(auth.client_secret or '', safe='')}"
    headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    # the MCP SDK's authorization server finds the client by the body alone
    return uri, headers, add_params_to_qs(body or "", [("client_id", auth.client_id)])


def _private_key(file: str | None) -> RSAKey | ECKey | OKPKey:
    """Return the key in a file. Raises Failed."""
    try:
        data = read_bytes(Path(file or ""))
    except OSError as exc:
        raise Failed(f"was not asked: the key `{file}` cannot be read: {(exc.strerror or str(exc)).lower()}") from exc
    for kind in ("RSA", "EC", "OKP"):
        try:
            return import_key(data, kind)
        except (JoseError, ValueError, TypeError):
            continue
    raise Failed(f"was not asked: `{file}` holds no private key in PEM form")


def _algorithm(key: object) -> str:
    match key:
        case ECKey():
            return _CURVES.get(key.curve_name, "ES256")
        case OKPKey():
            return "EdDSA"
    return "RS256"


def client_of(config: OAuth, methods: list[str] | None) -> Client | None:
    """Return the client that the config names, as an authorization server with these methods takes it."""
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
