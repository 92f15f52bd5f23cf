"""Our client at an authorization server: from the config, a client id metadata document, or dynamic registration.

A registered client is stored with its issuer and never shown to another one. Imports the MCP SDK, as discovery does.
"""

from __future__ import annotations

from mcp.client.auth.utils import is_valid_client_metadata_url, should_use_client_metadata_url
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl, ValidationError

from dynamic_mcp.config.resolved import OAuth
from dynamic_mcp.oauth.credentials import ClientCredentials, Login
from dynamic_mcp.oauth.discovery import DiscoveryResult, LoginAborted
from dynamic_mcp.oauth.tokens import configured_client
from dynamic_mcp.web.documents import DocumentError, Documents

_JSON = {"Content-Type": "application/json"}
_METHODS = ("none", "client_secret_basic", "client_secret_post")
# Statuses of an authorization server that offers no registration.
_NOT_OFFERED = frozenset((401, 403, 404, 405, 501))


class NoClient(LoginAborted):
    """The authorization server offers no way to register a client."""


async def obtain_client(
    target: DiscoveryResult, config: OAuth, previous: Login | None, redirect_uri: str, web: Documents
) -> ClientCredentials:
    """Return the client to log in as; registers one if necessary. Raises LoginAborted and NoClient."""
    configured = _configured_client(target, config)
    if configured is not None:
        _check_issuer(configured, target, config, previous)
        return configured
    client = previous.client if previous is not None and previous.issuer == target.issuer else None
    if client is not None and client.source == "registered" and client.redirect_uri == redirect_uri:
        return client
    return await _register(target, redirect_uri, web)


def _check_issuer(client: ClientCredentials, target: DiscoveryResult, config: OAuth, previous: Login | None) -> None:
    """Use the config's client only at the authorization server where it was used first. Raises LoginAborted.

    A client metadata document is the same everywhere (MCP 2026-07-28, Authorization Server Binding).
    """
    previous_issuer = previous.issuer if previous is not None and previous.client is not None else None
    if client.source == "config" and config.issuer is None and previous_issuer not in (None, target.issuer):
        raise LoginAborted(
            f"the server names another authorization server than before, `{target.issuer}`; the configured client is"
            f" one of `{previous_issuer}`; if it is registered there, too, set `oauth.issuer`"
        )


def _configured_client(target: DiscoveryResult, config: OAuth) -> ClientCredentials | None:

    if config.client_id is not None:
        return configured_client(config, target.metadata.token_endpoint_auth_methods_supported)
    url = config.client_metadata_url
    if url is not None and should_use_client_metadata_url(target.metadata, url):
        if not is_valid_client_metadata_url(url):
            raise LoginAborted("the config's `client_metadata_url` is not an https URL with a path")
        return ClientCredentials(url, "document")
    return None


async def _register(target: DiscoveryResult, redirect_uri: str, web: Documents) -> ClientCredentials:
    """Register a client (RFC 7591)."""
    endpoint = target.endpoint("registration_endpoint")
    if endpoint is None:
        raise NoClient(f"`{target.issuer}` does not register clients")
    method = _choose_method(target.metadata.token_endpoint_auth_methods_supported)
    metadata = OAuthClientMetadata(
        client_name="dynamic-mcp",
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method=method,  # type: ignore[arg-type]
        scope=target.scope,
    )
    try:
        status, answer = await web.post(endpoint, metadata.model_dump_json(exclude_none=True), _JSON)
    except DocumentError as exc:
        raise LoginAborted(str(exc)) from exc
    if status in _NOT_OFFERED or (target.is_assumed and not 200 <= status < 300):
        raise NoClient(f"`{target.issuer}` does not let clients register themselves (HTTP {status})")
    try:
        registration = OAuthClientInformationFull.model_validate(answer if status in (200, 201) else None)
    except ValidationError:
        raise NoClient(f"`{target.issuer}` did not register a client (HTTP {status})") from None
    auth_method = registration.token_endpoint_auth_method or (
        method if registration.client_secret is None else "client_secret_basic"
    )
    if auth_method not in _METHODS:
        raise NoClient(
            f"`{target.issuer}` requires clients to authenticate by `{auth_method[:40]}`, which is not supported"
        )
    return ClientCredentials(
        registration.client_id,
        "registered",
        auth_method="none" if registration.client_secret is None else auth_method,
        secret=registration.client_secret,
        redirect_uri=redirect_uri,
    )


def _choose_method(supported: list[str] | None) -> str:
    """Return the authentication method: preferably none, because a program on a desktop cannot keep a secret."""
    return next((method for method in _METHODS if supported is None or method in supported), "none")
