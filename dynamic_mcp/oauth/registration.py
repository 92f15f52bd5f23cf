"""Who we are to an authorization server: the config's client, a client id metadata document, or a registered one.

A registered client is kept with its issuer and never shown to another one. Imports the MCP SDK, as discovery does.
"""

from __future__ import annotations

import asyncio

import httpx2
from mcp.client.auth import OAuthRegistrationError
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    is_valid_client_metadata_url,
    should_use_client_metadata_url,
)
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from dynamic_mcp.config.resolved import OAuth
from dynamic_mcp.oauth.discovery import Found, Stopped
from dynamic_mcp.oauth.reach import Forbidden
from dynamic_mcp.oauth.records import Client, Login
from dynamic_mcp.oauth.web import TIMEOUT_S, explained

_METHODS = ("none", "client_secret_basic", "client_secret_post")


class NoClient(Stopped):
    """The authorization server has no way to become its client by oneself."""


async def client_for(
    found: Found, config: OAuth, known: Login | None, redirect_uri: str, web: httpx2.AsyncClient
) -> Client:
    """Return the client to log in as, registering one if need be. Raises Stopped and NoClient."""
    configured = _configured(found, config)
    if configured is not None:
        return configured
    client = known.client if known is not None and known.issuer == found.issuer else None
    if client is not None and client.source == "registered" and client.redirect_uri == redirect_uri:
        return client
    return await _registered(found, redirect_uri, web)


def _configured(found: Found, config: OAuth) -> Client | None:
    from dynamic_mcp.oauth.tokens import client_of

    if config.client_id is not None:
        return client_of(config, found.metadata.token_endpoint_auth_methods_supported)
    url = config.client_metadata_url
    if url is not None and should_use_client_metadata_url(found.metadata, url):
        if not is_valid_client_metadata_url(url):
            raise Stopped("the config's `client_metadata_url` is not an https URL with a path")
        return Client(url, "document")
    return None


async def _registered(found: Found, redirect_uri: str, web: httpx2.AsyncClient) -> Client:
    """Register as RFC 7591 says."""
    if found.metadata.registration_endpoint is None:
        raise NoClient(f"`{found.issuer}` does not register clients")
    method = _method(found.metadata.token_endpoint_auth_methods_supported)
    wanted = OAuthClientMetadata(
        client_name="dynamic-mcp",
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method=method,  # type: ignore[arg-type]
        scope=found.scope,
    )
    request = create_client_registration_request(found.metadata, wanted, found.issuer)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await web.send(request)
        if answer.status_code in (401, 403, 404, 405, 501) or (found.assumed and not answer.is_success):
            raise NoClient(f"`{found.issuer}` does not let clients register themselves (HTTP {answer.status_code})")
        made = await handle_registration_response(answer)
    except OAuthRegistrationError:
        raise NoClient(f"`{found.issuer}` did not register a client (HTTP {answer.status_code})") from None
    except (Forbidden, httpx2.HTTPError, TimeoutError) as exc:
        raise Stopped(f"`{request.url}` {explained(exc)}") from exc
    given = made.token_endpoint_auth_method or (method if made.client_secret is None else "client_secret_basic")
    if given not in _METHODS:
        raise NoClient(f"`{found.issuer}` requires clients to authenticate by `{given[:40]}`, which is not supported")
    return Client(
        made.client_id,
        "registered",
        auth_method="none" if made.client_secret is None else given,
        secret=made.client_secret,
        redirect_uri=redirect_uri,
    )


def _method(supported: list[str] | None) -> str:
    """Return how to prove who we are: not at all where that will do, since a program on a desk keeps no secret."""
    return next((method for method in _METHODS if supported is None or method in supported), "none")
