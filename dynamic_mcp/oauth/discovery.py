"""Discovers how to log in: RFC 9728, then RFC 8414 or OpenID, else the defaults of MCP 2025-03-26.

Imports the MCP SDK, which takes a second: import this only when a login begins, in a thread. Metadata is checked
before anything is opened or sent, and each document must name the server, or the issuer, that it was requested for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from dynamic_mcp.config.resolved import OAuth, Remote
from dynamic_mcp.mcp import revisions
from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl, is_same_host, split_url
from dynamic_mcp.web.documents import Document, DocumentError, Documents
from dynamic_mcp.web.metadata import MetadataError, check_endpoints, check_url, fetch_metadata, quote_url

_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
_HEADERS = {"MCP-Protocol-Version": revisions.NEWEST.name}


class LoginAborted(Exception):
    """The login cannot continue; the message is for the user."""


class NoLogin(LoginAborted):
    """The metadata of the server names no authorization server: its tokens are created in another way."""


@dataclass(frozen=True)
class DiscoveryResult:
    """The endpoints and the issuer for a login to one server; `is_assumed` if no metadata names the endpoints."""

    issuer: str
    resource: str
    scope: str | None
    metadata: OAuthMetadata
    is_assumed: bool = False

    def endpoint(self, name: str) -> str | None:
        url = getattr(self.metadata, name)
        return None if url is None else str(url)


@dataclass(frozen=True)
class _Resource:
    """The metadata of the server, and its identifier, which is sent exactly as the metadata spells it (RFC 8707)."""

    identifier: str
    metadata: ProtectedResourceMetadata


class Discovery:
    """The discovery for one server."""

    def __init__(self, web: Documents, policy: AddressPolicy, remote: Remote) -> None:
        self._web = web
        self._policy = policy
        self._url = remote.url
        self._config: OAuth = remote.oauth
        self._without_servers = ""  # metadata of the server that names no authorization server

    async def run(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Fetch the metadata of the server, then of the authorization server that it names. Raises LoginAborted."""
        try:
            if self._config.metadata_url:
                return await self._use_metadata_url(self._config.metadata_url, challenge)
            resource, issuers = await self._fetch_resource_metadata(challenge)
            issuer = self._choose_issuer(issuers)
            if issuer is not None:
                return self._build_result(await self._fetch_server_metadata(issuer), issuer, resource, challenge)
            return await self._assume_server(challenge)
        except (MetadataError, DocumentError) as exc:
            raise LoginAborted(str(exc)) from exc

    # --- the resource (RFC 9728) -----------------------------------------------------------------------

    async def _fetch_resource_metadata(self, challenge: BearerChallenge) -> tuple[_Resource | None, list[str]]:
        for url in build_protected_resource_metadata_discovery_urls(challenge.resource_metadata, self._url):
            document = await self._fetch_document(url)
            if document is None:
                continue
            issuers = document.get("authorization_servers")
            if not issuers and "resource" in document:
                self._without_servers = url
            for each in issuers if isinstance(issuers, list) else ():
                check_url(self._policy, str(each), f"the authorization server that {quote_url(url)} names")
            try:
                metadata = ProtectedResourceMetadata.model_validate(document)
            except ValidationError:
                continue
            identifier = str(document["resource"])
            if not check_resource_allowed(resource_url_from_server_url(self._url), identifier):
                resource = quote_url(identifier)
                raise LoginAborted(f"{quote_url(url)} is about another server, {resource}; no login was started")
            assert isinstance(issuers, list)
            return _Resource(identifier, metadata), [str(each) for each in issuers]
        return None, []

    def _choose_issuer(self, issuers: list[str]) -> str | None:
        """Return the issuer to use: the config's, else the first one that the server names."""
        wanted = self._config.issuer
        if wanted is None or not issuers:
            return wanted or (issuers[0] if issuers else None)
        for each in issuers:
            if issuers_match(each, wanted):
                return each
        raise LoginAborted(
            f"the server names {quote_url(issuers[0])} for its logins, but the config has a different `issuer`"
        )

    # --- the authorization server (RFC 8414) -----------------------------------------------------------

    async def _fetch_server_metadata(self, issuer: str) -> Document:
        urls = build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url)
        try:
            return await fetch_metadata(self._web, issuer, urls, _HEADERS)
        except DocumentError as exc:
            if not exc.is_missing:
                raise
            raise LoginAborted(f"the authorization server {quote_url(issuer)} does not say how to log in") from exc

    async def _use_metadata_url(self, url: str, challenge: BearerChallenge) -> DiscoveryResult:
        document = await self._fetch_document(url)
        if document is None:
            raise LoginAborted(f"there is no metadata at the config's `metadata_url`, {quote_url(url)}")
        issuer = str(document.get("issuer"))
        if self._config.issuer is not None and not issuers_match(issuer, self._config.issuer):
            raise LoginAborted(
                f"{quote_url(url)} is about {quote_url(issuer)}, but the config has a different `issuer`"
            )
        return self._build_result(document, issuer, None, challenge)

    async def _assume_server(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Treat the server as its own authorization server, with metadata at its root or the default endpoints."""
        split = urlsplit(self._url)
        origin = f"{split.scheme}://{split.netloc}"
        (url,) = build_oauth_authorization_server_metadata_discovery_urls(None, self._url)
        document = await self._fetch_document(url)
        if document is not None:
            if not _is_same_origin(str(document.get("issuer")), origin):  # its path does not matter here
                raise LoginAborted(f"{quote_url(url)} is not about {quote_url(origin)}, but names another issuer")
            return self._build_result(document, str(document["issuer"]), None, challenge)
        if self._without_servers:
            raise NoLogin(f"{quote_url(self._without_servers)} names no authorization server")
        defaults = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "registration_endpoint": "/register",
        }
        document = {"issuer": origin, **{name: urljoin(origin, path) for name, path in defaults.items()}}
        document["code_challenge_methods_supported"] = ["S256"]
        return self._build_result(document, origin, None, challenge, is_assumed=True)

    def _build_result(
        self,
        document: Document,
        issuer: str,
        resource: _Resource | None,
        challenge: BearerChallenge,
        *,
        is_assumed: bool = False,
    ) -> DiscoveryResult:
        check_endpoints(self._policy, document, _ENDPOINTS)
        if self._config.client_secret or self._config.private_key_file or not self._config.needs_user:
            self._check_secret_recipient(issuer)
        try:
            metadata = OAuthMetadata.model_validate(document)
        except ValidationError as exc:
            names = ", ".join(sorted({f"`{error['loc'][0]}`" for error in exc.errors() if error["loc"]}))
            raise LoginAborted(f"the metadata of {quote_url(issuer)} is wrong or incomplete: {names}") from None
        if self._config.needs_user and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginAborted(
                f"{quote_url(issuer)} does not say that it supports PKCE (S256), so a login there is not safe"
            )
        return DiscoveryResult(
            issuer=issuer,
            resource=resource.identifier if resource else resource_url_from_server_url(self._url),
            scope=self._scope(challenge, resource.metadata if resource else None, metadata),
            metadata=metadata,
            is_assumed=is_assumed,
        )

    def _scope(
        self, challenge: BearerChallenge, resource: ProtectedResourceMetadata | None, metadata: OAuthMetadata
    ) -> str | None:
        if self._config.scopes:
            return " ".join(self._config.scopes)
        if challenge.scope is None and (resource is None or resource.scopes_supported is None):
            return None  # the authorization server offers its scopes to all clients; this server does not need them
        grants = ["refresh_token"] if self._config.needs_user else []
        return get_client_metadata_scopes(challenge.scope, resource, metadata, grants) or None

    def _check_secret_recipient(self, issuer: str) -> None:
        """Keep the config's secret from an authorization server that only the server names. Raises LoginAborted."""
        trusted: Iterable[str] = filter(None, (self._config.issuer, self._config.metadata_url, self._url))
        if not any(is_same_host(issuer, each) for each in trusted):
            raise LoginAborted(
                f"the server names {quote_url(issuer)} for its logins, which is on another host; to let it have the"
                " secret, set `oauth.issuer` in the config"
            )

    async def _fetch_document(self, url: str) -> Document | None:
        """Return the JSON object at a URL; None if there is none. Raises DocumentError."""
        try:
            return await self._web.fetch(url, _HEADERS)
        except DocumentError as exc:
            if not exc.is_missing:
                raise
            return None


def _is_same_origin(url: str, other: str) -> bool:
    try:
        return split_url(url) == split_url(other)
    except ForbiddenUrl:
        return False
