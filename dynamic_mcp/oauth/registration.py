"""Our client at an authorization server: from the config, a client id metadata document, or dynamic registration.

A registered client is stored with its issuer and never shown to another one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dynamic_mcp.config.resolved import OAuth
from dynamic_mcp.oauth.credentials import Client, Login
from dynamic_mcp.oauth.discovery import DiscoveryResult, LoginAborted
from dynamic_mcp.oauth.tokens import configured_client
from dynamic_mcp.web.documents import DocumentError, Documents

_METHODS = ("none", "client_secret_basic", "client_secret_post")
# The statuses by which an authorization server says that it offers no registration.
_NOT_OFFERED = frozenset((401, 403, 404, 405, 501))


class NoClient(LoginAborted):
    """The authorization server offers no way to register a client."""


class _Registration(Struct, frozen=True):
    """What is read of the answer to a registration (RFC 7591, section 3.2.1)."""

    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


async def obtain_client(
    target: DiscoveryResult, config: OAuth, known: Login | None, redirect_uri: str, web: Documents
) -> Client:
    """Return the client to log in as; registers one if necessary. Raises LoginAborted and NoClient."""
    configured = _configured_client(target, config)
    if configured is not None:
        _check_issuer(configured, target, config, known)
        return configured
    client = known.client if known is not None and known.issuer == target.issuer else None
    if client is not None and client.source == "registered" and client.redirect_uri == redirect_uri:
        return client
    return await _register(target, redirect_uri, web)


def _check_issuer(client: Client, target: DiscoveryResult, config: OAuth, known: Login | None) -> None:
    """Use the config's client only at the authorization server where it was used first. Raises LoginAborted.

    A client metadata document is the same everywhere (MCP 2026-07-28, Authorization Server Binding).
    """
    before = known.issuer if known is not None and known.client is not None else None
    if client.source == "config" and config.issuer is None and before not in (None, target.issuer):
        raise LoginAborted(
            f"the server names another authorization server than before, `{target.issuer}`; the configured client is"
            f" one of `{before}`; if it is registered there, too, set `oauth.issuer`"
        )


def _configured_client(target: DiscoveryResult, config: OAuth) -> Client | None:
    if config.client_id is not None:
        return configured_client(config, target.metadata.token_endpoint_auth_methods_supported)
    url = config.client_metadata_url
    if url is not None and target.metadata.client_id_metadata_document_supported:
        parts = urlsplit(url)
        if parts.scheme != "https" or parts.path in ("", "/"):
            raise LoginAborted("the config's `client_metadata_url` is not an https URL with a path")
        return Client(url, "document")
    return None


async def _register(target: DiscoveryResult, redirect_uri: str, web: Documents) -> Client:
    """Register a client (RFC 7591)."""
    endpoint = target.metadata.registration_endpoint
    if endpoint is None:
        raise NoClient(f"`{target.issuer}` does not register clients")
    method = _choose_method(target.metadata.token_endpoint_auth_methods_supported)
    metadata = {
        "client_name": "dynamic-mcp",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        **({} if target.scope is None else {"scope": target.scope}),
    }
    try:
        status, answer = await web.post(endpoint, json=metadata)
    except DocumentError as exc:
        raise LoginAborted(str(exc)) from exc
    if status in _NOT_OFFERED or (target.is_assumed and not 200 <= status < 300):
        raise NoClient(f"`{target.issuer}` does not let clients register themselves (HTTP {status})")
    try:
        # some answer with null or an empty text for what they leave out
        known = {name: value for name, value in (answer or {}).items() if value not in (None, "")}
        registration = msgspec.convert(known, _Registration)
    except msgspec.ValidationError:
        registration = None
    if registration is None or status not in (200, 201):
        raise NoClient(f"`{target.issuer}` did not register a client (HTTP {status})")
    auth_method = registration.token_endpoint_auth_method or (
        method if registration.client_secret is None else "client_secret_basic"
    )
    if auth_method not in _METHODS:
        raise NoClient(
            f"`{target.issuer}` requires clients to authenticate by `{auth_method[:40]}`, which is not supported"
        )
    return Client(
        registration.client_id,
        "registered",
        auth_method="none" if registration.client_secret is None else auth_method,
        secret=registration.client_secret,
        redirect_uri=redirect_uri,
    )


def _choose_method(supported: tuple[str, ...] | None) -> str:
    """Return how to authenticate: preferably not at all, because a program on a desktop cannot keep a secret."""
    return next((method for method in _METHODS if supported is None or method in supported), "none")
