"""Discovers where and how to log in: RFC 9728, then RFC 8414 or OpenID, else the defaults of MCP 2025-03-26.

Imports httpx2: import this only when a login begins, in a thread. What the server says is checked before anything is
opened or sent, and each document must name the server, or the issuer, that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urljoin, urlsplit, urlunsplit

import msgspec
from msgspec import Meta, Struct

from dynamic_mcp.config.resolved import OAuth, Remote
from dynamic_mcp.mcp import revisions
from dynamic_mcp.mcp.well_known import PROTECTED_RESOURCE
from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl, is_same_host, split_url
from dynamic_mcp.web.documents import Document, DocumentError, Documents
from dynamic_mcp.web.metadata import (
    MetadataError,
    ServerMetadata,
    check_url,
    fetch_metadata,
    parse_metadata,
    quote_url,
)

_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
_HEADERS = {"MCP-Protocol-Version": revisions.NEWEST.name}
_OFFLINE = "offline_access"


class LoginAborted(Exception):
    """The login cannot continue; the message is for the user."""


class NoLogin(LoginAborted):
    """The server says what it is, and names nowhere to log in: it takes tokens that were made otherwise."""


@dataclass(frozen=True)
class DiscoveryResult:
    """Where and how to log in to one server; `is_assumed` if no metadata names its endpoints.

    `resource` is its identifier as its metadata spells it, which is sent as it is (RFC 8707).
    """

    server: str
    issuer: str
    resource: str
    scope: str | None
    metadata: ServerMetadata
    is_assumed: bool = False


class _ResourceMetadata(Struct, frozen=True):
    """What is read of the metadata of the server (RFC 9728, section 2)."""

    resource: str
    authorization_servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    scopes_supported: tuple[str, ...] | None = None


class Discovery:
    """The discovery for one server."""

    def __init__(self, web: Documents, policy: AddressPolicy, remote: Remote) -> None:
        self._web = web
        self._policy = policy
        self._url = remote.url
        self._config: OAuth = remote.oauth
        self._without_servers = ""  # metadata of the server that names no authorization server

    async def run(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Ask the server, then the authorization server that it names. Raises LoginAborted."""
        try:
            if self._config.metadata_url:
                return await self._use_metadata_url(self._config.metadata_url, challenge)
            resource = await self._fetch_resource_metadata(challenge)
            issuer = self._choose_issuer(() if resource is None else resource.authorization_servers)
            if issuer is not None:
                return self._build_result(await self._fetch_server_metadata(issuer), issuer, resource, challenge)
            return await self._assume_server(challenge)
        except (MetadataError, DocumentError) as exc:
            raise LoginAborted(str(exc)) from exc

    # --- the resource (RFC 9728) -----------------------------------------------------------------------

    async def _fetch_resource_metadata(self, challenge: BearerChallenge) -> _ResourceMetadata | None:
        for url in _resource_metadata_urls(challenge.resource_metadata, self._url):
            document = await self._fetch_document(url)
            if document is None:
                continue
            issuers = document.get("authorization_servers")
            if not issuers and "resource" in document:
                self._without_servers = url
            for each in issuers if isinstance(issuers, list) else ():
                check_url(self._policy, str(each), f"the authorization server that {quote_url(url)} names")
            try:
                metadata = msgspec.convert(document, _ResourceMetadata)
                scheme, _, _ = split_url(metadata.resource)
            except (msgspec.ValidationError, ForbiddenUrl):
                continue
            if scheme not in ("http", "https"):  # a name of another kind, by which nothing can be checked
                continue
            if not _is_part(self._url, metadata.resource):
                resource = quote_url(metadata.resource)
                raise LoginAborted(f"{quote_url(url)} is about another server, {resource}; no login was started")
            return metadata
        return None

    def _choose_issuer(self, issuers: tuple[str, ...]) -> str | None:
        """Return the issuer to use: the config's, else the first one that the server names."""
        wanted = self._config.issuer
        if wanted is None or not issuers:
            return wanted or (issuers[0] if issuers else None)
        for each in issuers:
            if _is_same_issuer(each, wanted):
                return each
        raise LoginAborted(
            f"the server names {quote_url(issuers[0])} for its logins, but the config has a different `issuer`"
        )

    # --- the authorization server (RFC 8414) -----------------------------------------------------------

    async def _fetch_server_metadata(self, issuer: str) -> Document:
        try:
            return await fetch_metadata(self._web, issuer, headers=_HEADERS)
        except DocumentError as exc:
            if not exc.is_missing:
                raise
            raise LoginAborted(f"the authorization server {quote_url(issuer)} does not say how to log in") from exc

    async def _use_metadata_url(self, url: str, challenge: BearerChallenge) -> DiscoveryResult:
        document = await self._fetch_document(url)
        if document is None:
            raise LoginAborted(f"there is no metadata at the config's `metadata_url`, {quote_url(url)}")
        issuer = str(document.get("issuer"))
        if self._config.issuer is not None and not _is_same_issuer(issuer, self._config.issuer):
            raise LoginAborted(
                f"{quote_url(url)} is about {quote_url(issuer)}, but the config has a different `issuer`"
            )
        return self._build_result(document, issuer, None, challenge)

    async def _assume_server(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Treat the server as its own authorization server, with metadata at its root or the default endpoints."""
        origin = _origin(self._url)
        url = f"{origin}/.well-known/oauth-authorization-server"
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
        resource: _ResourceMetadata | None,
        challenge: BearerChallenge,
        *,
        is_assumed: bool = False,
    ) -> DiscoveryResult:
        metadata = parse_metadata(document, self._policy, _ENDPOINTS)
        if self._config.client_secret or self._config.private_key_file or not self._config.needs_user:
            self._check_secret_recipient(issuer)
        if self._config.needs_user and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginAborted(
                f"{quote_url(issuer)} does not say that it supports PKCE (S256), so a login there is not safe"
            )
        return DiscoveryResult(
            server=self._url,
            issuer=issuer,
            resource=resource.resource if resource else _identify(self._url),
            scope=self._scope(challenge, resource, metadata),
            metadata=metadata,
            is_assumed=is_assumed,
        )

    def _scope(
        self, challenge: BearerChallenge, resource: _ResourceMetadata | None, metadata: ServerMetadata
    ) -> str | None:
        """Return the scope that the server needs, and what lets us renew its tokens (MCP, Scope Selection Strategy).

        The authorization server offers its scopes to all clients; this server does not need them.
        """
        if self._config.scopes:
            return " ".join(self._config.scopes)
        scopes = (challenge.scope or "").split()
        if challenge.scope is None:
            if resource is None or resource.scopes_supported is None:
                return None
            scopes = [*resource.scopes_supported]
        if self._config.needs_user and _OFFLINE in (metadata.scopes_supported or ()):
            scopes.append(_OFFLINE)
        return " ".join(dict.fromkeys(scopes)) or None

    def _check_secret_recipient(self, issuer: str) -> None:
        """Protect the config's secret from an authorization server that a server names. Raises LoginAborted."""
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


def _resource_metadata_urls(named: str | None, server: str) -> list[str]:
    """Return where the metadata of a server may be: where it says, for its path, or at the root (RFC 9728, 3.1)."""
    origin, path = _origin(server), urlsplit(server).path
    with_path = [f"{origin}{PROTECTED_RESOURCE}{path}"] if path.strip("/") else []
    return [*([named] if named else []), *with_path, f"{origin}{PROTECTED_RESOURCE}"]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _identify(url: str) -> str:
    """Return the identifier of the server at a URL, where no metadata says it (RFC 8707, section 2)."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower(), fragment=""))


def _is_part(url: str, resource: str) -> bool:
    """Tell whether a URL is a resource, or below it."""
    path, above = (f"{urlsplit(each).path.rstrip('/')}/" for each in (url, resource))
    return _is_same_origin(url, resource) and path.startswith(above)


def _is_same_issuer(issuer: str, other: str) -> bool:
    """Tell whether two issuers are one; only at the root of a host does the slash at the end not count."""
    longer = max(issuer, other, key=len)
    return issuer == other or {issuer, other} == {_origin(longer), f"{_origin(longer)}/"}


def _is_same_origin(url: str, other: str) -> bool:
    try:
        return split_url(url) == split_url(other)
    except ForbiddenUrl:
        return False
