"""Gets tokens from an authorization server: for a code, by a refresh token, or without a user, as `oauth.grant` says.

`resource` is part of every request (RFC 8707), so a token is valid for one server only. Imports httpx2 and authlib:
import this only for a login or a renewal, in a thread.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dynamic_mcp.config.resolved import IdentityProviderConfig, OAuth, TokenExchange
from dynamic_mcp.oauth.credentials import ClientCredentials, Login, Token
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web import endpoints
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.documents import Document, Documents, open_documents
from dynamic_mcp.web.endpoints import TokenDenied, TokenRequestFailed

if TYPE_CHECKING:
    from authlib.oauth2.auth import ClientAuth

    from dynamic_mcp.web.jwk import SigningKey

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPE = "urn:ietf:params:oauth:token-type:"
_ID_TOKEN, _ID_JAG = f"{_TYPE}id_token", f"{_TYPE}id-jag"
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
_MOST_BYTES = 1 << 20
_LONGEST_S = 10 * 365 * 24 * 3600.0


class NoGrant(Exception):
    """No grant is available to exchange for a token; the message is for the user."""


@dataclass(frozen=True)
class Assertion:
    """A JWT that an authorization server exchanges for a token, and the scope to request with it."""

    value: str = field(repr=False)
    scope: str | None


class TokenEndpoint:
    """The token endpoint of one login, for one client, over an open connection."""

    def __init__(self, web: Documents, login: Login, config: OAuth) -> None:
        assert login.client is not None
        self._web = web
        self._login = login
        self._client = login.client
        self._config = config

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Token:
        """Exchange an authorization code for a token. Raises TokenDenied and TokenRequestFailed."""
        return await self._fetch("authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect_uri)

    async def fetch_client_token(self, scope: str | None) -> Token:
        """Return a token for the client itself (RFC 6749, section 4.4). Raises TokenDenied and TokenRequestFailed."""
        return await self._fetch("client_credentials", scope=scope)

    async def exchange_assertion(self, assertion: str, scope: str | None) -> Token:
        """Exchange an assertion for a token (RFC 7523, section 2.1). Raises TokenDenied and TokenRequestFailed."""
        return await self._fetch(_JWT_BEARER, assertion=assertion, scope=scope)

    async def exchange_id_token(self, id_token: str, audience: str, scope: str | None) -> Assertion:
        """Exchange an ID token for an assertion that another authorization server, the audience, accepts.

        This is a token exchange (RFC 8693), and the assertion an Identity Assertion JWT Authorization Grant (ID-JAG).
        Raises TokenDenied and TokenRequestFailed.
        """
        answer = await self._ask(
            _EXCHANGE,
            subject_token=id_token,
            subject_token_type=_ID_TOKEN,
            requested_token_type=_ID_JAG,
            audience=audience,
            scope=scope,
        )
        return _parse_assertion(answer, scope)

    async def exchange_token(self, token: str, config: TokenExchange, scope: str | None) -> Token:
        """Exchange the token of a caller for one that a server accepts (RFC 8693).

        Raises NoGrant, TokenDenied and TokenRequestFailed.
        """
        file, actor = config.actor_token_file, None
        if file is not None:
            actor = await _read_token(Path(file))
        wanted = f"{_TYPE}{config.requested_token_type}"
        answer = await self._ask(
            _EXCHANGE,
            subject_token=token,
            subject_token_type=f"{_TYPE}{config.subject_token_type}",
            actor_token=actor,
            actor_token_type=None if actor is None else f"{_TYPE}jwt",
            requested_token_type=wanted,
            audience=config.audience,
            scope=scope,
        )
        if answer.get("issued_token_type") != wanted:
            raise TokenRequestFailed("sent a token of another type than the requested one")
        return _parse_issued(answer)

    async def act_on_behalf(self, token: str, scope: str | None) -> Token:
        """Exchange the token of a caller as Entra ID does it. Raises TokenDenied and TokenRequestFailed.

        https://learn.microsoft.com/entra/identity-platform/v2-oauth2-on-behalf-of-flow
        """
        use = "on_behalf_of"
        return _parse_issued(await self._ask(_JWT_BEARER, assertion=token, requested_token_use=use, scope=scope))

    async def refresh(self, token: Token) -> Token:
        """Return a new token; the old refresh token may be invalid afterwards.

        Raises TokenDenied and TokenRequestFailed.
        """
        answer = await self._ask("refresh_token", refresh_token=token.refresh)
        return _parse_token(answer, previous=token)

    async def revoke(self, token: Token) -> None:
        """Revoke both tokens (RFC 7009). Raises TokenRequestFailed."""
        endpoint = self._login.revocation_endpoint
        assert endpoint is not None
        client = await self._authenticate()
        for kind, value in (("refresh_token", token.refresh), ("access_token", token.access)):
            if value:
                await endpoints.revoke_token(self._web, endpoint, client, value, kind)

    async def _fetch(self, grant: str, **params: str | None) -> Token:
        return _parse_token(await self._ask(grant, **params))

    async def _ask(self, grant: str, **params: str | None) -> Document:
        endpoint = self._login.token_endpoint
        assert endpoint is not None
        client = await self._authenticate()
        # some, such as the authorization server of the MCP SDK, look for the client in the form only
        own_id = self._client.id if self._client.auth_method == "client_secret_basic" else None
        return await endpoints.request_tokens(
            self._web, endpoint, client, grant, client_id=own_id, resource=self._login.resource, **params
        )

    async def _authenticate(self) -> ClientAuth:
        client = self._client
        if client.auth_method == "private_key_jwt":
            audience = self._login.issuer or self._login.token_endpoint or ""
            return endpoints.authenticate_by_key(client.id, await _load_key(self._config), audience)
        secret = self._config.client_secret if client.source == "config" else client.secret
        return endpoints.authenticate(client.id, client.auth_method, secret)


async def fetch_token(endpoint: TokenEndpoint, login: Login, config: OAuth) -> Token:
    """Return a new token for a login. Raises NoGrant, TokenDenied and TokenRequestFailed."""
    match config.grant:
        case "authorization_code":
            assert login.token is not None
            return await endpoint.refresh(login.token)
        case "client_credentials":
            return await endpoint.fetch_client_token(login.wanted_scope)
        case "jwt_bearer":
            assertion = Assertion(await _read_assertion(config), login.wanted_scope)
        case "cross_app":
            assert config.identity_provider is not None
            assertion = await _ask_identity_provider(config.identity_provider, login, await _read_assertion(config))
        case "token_exchange" | "on_behalf_of":
            raise AssertionError("the token of each caller is exchanged, and no login is needed")
    return await endpoint.exchange_assertion(assertion.value, assertion.scope)


async def _read_assertion(config: OAuth) -> str:
    """Return the config's assertion. A file is read each time, because its content expires. Raises NoGrant."""
    if config.assertion_file is not None:
        return await _read_token(Path(config.assertion_file))
    return _check_token(config.assertion or "", "`oauth.assertion`")


async def _read_token(file: Path) -> str:
    """Return the token in a file. Raises NoGrant."""
    try:
        data = await asyncio.to_thread(read_bytes, file, most=_MOST_BYTES)
    except OSError as exc:
        raise NoGrant(f"`{file}` cannot be read: {os_reason(exc)}") from exc
    return _check_token(data.decode("ascii", errors="replace"), f"`{file}`")


def _check_token(text: str, source: str) -> str:
    if not is_token(text.strip()):
        raise NoGrant(f"{source} does not contain a token")
    return text.strip()


async def _ask_identity_provider(provider: IdentityProviderConfig, login: Login, id_token: str) -> Assertion:
    """Exchange the user's ID token for a grant for the login's authorization server. Raises NoGrant.

    The config names the identity provider, so it may be in another network than the server.
    """
    client = OAuth(client_id=provider.client_id, client_secret=provider.client_secret)
    at_provider = Login(
        login.server,
        token_endpoint=provider.token_endpoint,
        resource=login.resource,
        client=configured_client(client, None),
    )
    try:
        async with open_documents(AddressPolicy(provider.token_endpoint)) as web:
            endpoint = TokenEndpoint(web, at_provider, client)
            return await endpoint.exchange_id_token(id_token, login.issuer or "", login.wanted_scope)
    except TokenDenied as exc:
        hint = "; the assertion may have expired" if exc.code == "invalid_grant" else ""
        raise NoGrant(f"the identity provider, `{provider.token_endpoint}`, {exc}{hint}") from exc
    except TokenRequestFailed as exc:
        raise NoGrant(f"the identity provider, `{provider.token_endpoint}`, {exc}") from exc


async def _load_key(config: OAuth) -> SigningKey:
    """Return the private key of the config. Raises TokenRequestFailed."""
    file = config.private_key_file or ""
    jwk = await asyncio.to_thread(import_module, "dynamic_mcp.web.jwk")
    await asyncio.to_thread(import_module, "authlib.oauth2.rfc7523")  # signs with the key
    try:
        data = await asyncio.to_thread(read_bytes, Path(file))
        key: SigningKey = jwk.SigningKey.from_pem(data, config.private_key_alg)
    except OSError as exc:
        raise TokenRequestFailed(f"was not contacted: the key `{file}` cannot be read: {os_reason(exc)}") from exc
    except ValueError as exc:
        raise TokenRequestFailed(f"was not contacted: the key `{file}` {exc}") from exc
    return key


def _parse_token(answer: Document, previous: Token | None = None) -> Token:
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


def _parse_issued(answer: Document) -> Token:
    """Return a token that was got for another one, which is exchanged again and never refreshed."""
    if "token_type" not in answer:  # which may be `N_A` for what is no access token (RFC 8693, section 2.2.1)
        raise TokenRequestFailed("sent a token without a type")
    return replace(_parse_token(answer), refresh=None)


def _parse_assertion(answer: Document, scope: str | None) -> Assertion:
    """Return the assertion and its scope: the requested one unless the answer names another."""
    token, granted = answer.get("access_token"), answer.get("scope")
    if not isinstance(token, str) or not is_token(token):
        raise TokenRequestFailed("sent an answer without a token")
    if answer.get("issued_token_type") != _ID_JAG:
        raise TokenRequestFailed("sent a token of another type than the requested one")
    return Assertion(token, granted if isinstance(granted, str) else scope)


def is_token(text: str) -> bool:
    """Return whether a text can be a token: visible ASCII, and of a sensible length."""
    return _TOKEN.fullmatch(text) is not None


def _parse_seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        return None
    return seconds if 0 < seconds <= _LONGEST_S else None


def configured_client(config: OAuth, methods: Collection[str] | None) -> ClientCredentials | None:
    """Return the config's client, with one of the authentication methods that the server supports."""
    if config.client_id is None:
        return None
    method = "private_key_jwt" if config.private_key_file else endpoints.choose_method(config.client_secret, methods)
    return ClientCredentials(config.client_id, "config", method)
