"""Gets the token of a login: by its refresh token, or without a user, as `oauth.grant` in the config says.

Imports httpx2, through `tokens`: import this only when a token is needed, in a thread.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from dynamic_mcp.config.resolved import IdentityProvider, OAuth
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.oauth.tokens import (
    Assertion,
    TokenDenied,
    TokenEndpoint,
    TokenRequestFailed,
    configured_client,
    is_token,
)
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.web.address_policy import AddressPolicy

_MOST_BYTES = 1 << 20


class NoGrant(Exception):
    """There is nothing to exchange for a token; the message is for the user."""


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
    return await endpoint.exchange_assertion(assertion.value, assertion.scope)


async def _read_assertion(config: OAuth) -> str:
    """Return the config's assertion. A file is read each time, because what is in it expires. Raises NoGrant."""
    text, where = config.assertion or "", "`oauth.assertion`"
    if config.assertion_file is not None:
        where = f"`{config.assertion_file}`"
        try:
            data = await asyncio.to_thread(read_bytes, Path(config.assertion_file), most=_MOST_BYTES)
        except OSError as exc:
            raise NoGrant(f"{where} cannot be read: {os_reason(exc)}") from exc
        text = data.decode("ascii", errors="replace")
    if not is_token(text.strip()):
        raise NoGrant(f"{where} does not contain a token")
    return text.strip()


async def _ask_identity_provider(provider: IdentityProvider, login: Login, id_token: str) -> Assertion:
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
    endpoint = TokenEndpoint(AddressPolicy(provider.token_endpoint), at_provider, client)
    try:
        return await endpoint.exchange_id_token(id_token, login.issuer or "", login.wanted_scope)
    except TokenDenied as exc:
        hint = "; the assertion may have expired" if exc.code == "invalid_grant" else ""
        raise NoGrant(f"the identity provider, `{provider.token_endpoint}`, {exc}{hint}") from exc
    except TokenRequestFailed as exc:
        raise NoGrant(f"the identity provider, `{provider.token_endpoint}`, {exc}") from exc
