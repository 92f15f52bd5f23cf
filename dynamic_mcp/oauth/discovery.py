"""Discovers where and how to log in: RFC 9728, then RFC 8414 or OpenID, else the defaults of MCP 2025-03-26.

Imports the MCP SDK, which takes a second: import this only when a login begins, in a thread. What the server says is
checked before anything is opened or sent, and each document must name the server, or the issuer, that was asked for.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from dynamic_mcp.config.resolved import OAuth, Remote
from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl, is_same_host, split_url
from dynamic_mcp.web.guarded_client import TIMEOUT_S, explain

# The characters of a URL to log in at; all others have a meaning in one shell or another.
_HARMLESS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!&*+,=%]+")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")

Document = dict[str, object]


class LoginAborted(Exception):
    """The login cannot continue; the message is for the user."""


class NoLogin(LoginAborted):
    """The server says what it is, and names nowhere to log in: it takes tokens that were made otherwise."""


@dataclass(frozen=True)
class DiscoveryResult:
    """Where and how to log in to one server; `is_assumed` if no metadata names its endpoints."""

    server: str
    issuer: str
    resource: str
    scope: str | None
    metadata: OAuthMetadata
    is_assumed: bool = False

    def endpoint(self, name: str) -> str | None:
        """Return an endpoint's URL."""
        url = getattr(self.metadata, name)
        return None if url is None else str(url)


@dataclass(frozen=True)
class _Resource:
    """The metadata of the server, and its identifier as the metadata spells it, which is sent as it is (RFC 8707)."""

    identifier: str
    metadata: ProtectedResourceMetadata


class Discovery:
    """The discovery for one server."""

    def __init__(self, web: httpx2.AsyncClient, policy: AddressPolicy, remote: Remote) -> None:
        self._web = web
        self._policy = policy
        self._url = remote.url
        self._config: OAuth = remote.oauth
        self._without_servers = ""  # metadata of the server that names no authorization server

    async def run(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Ask the server, then the authorization server that it names. Raises LoginAborted."""
        if self._config.metadata_url:
            return await self._use_metadata_url(self._config.metadata_url, challenge)
        resource, issuers = await self._fetch_resource_metadata(challenge)
        issuer = self._choose_issuer(issuers)
        if issuer is not None:
            document = await self._fetch_server_metadata(issuer)
            return self._build_result(document, issuer, resource, challenge)
        return await self._assume_server(challenge)

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
                self._check_url(str(each), f"the authorization server that {_quote(url)} names")
            try:
                metadata = ProtectedResourceMetadata.model_validate(document)
            except ValidationError:
                continue
            identifier = str(document["resource"])
            self._check_resource(identifier, url)
            assert isinstance(issuers, list)
            return _Resource(identifier, metadata), [str(each) for each in issuers]
        return None, []

    def _check_resource(self, resource: str, where: str) -> None:
        if not check_resource_allowed(resource_url_from_server_url(self._url), resource):
            raise LoginAborted(f"{_quote(where)} is about another server, {_quote(resource)}; no login was started")

    def _choose_issuer(self, issuers: list[str]) -> str | None:
        """Return the issuer to use: the config's, else the first one that the server names."""
        wanted = self._config.issuer
        if wanted is None or not issuers:
            return wanted or (issuers[0] if issuers else None)
        for each in issuers:
            if issuers_match(each, wanted):
                return each
        raise LoginAborted(
            f"the server names {_quote(issuers[0])} for its logins, but the config has a different `issuer`"
        )

    # --- the authorization server (RFC 8414) -----------------------------------------------------------

    async def _fetch_server_metadata(self, issuer: str) -> Document:
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url):
            if (document := await self._fetch_document(url)) is not None:
                if document.get("issuer") != issuer:
                    raise LoginAborted(f"{_quote(url)} is not about {_quote(issuer)}, but names another issuer")
                return document
        raise LoginAborted(f"the authorization server {_quote(issuer)} does not say how to log in")

    async def _use_metadata_url(self, url: str, challenge: BearerChallenge) -> DiscoveryResult:
        document = await self._fetch_document(url)
        if document is None:
            raise LoginAborted(f"there is no metadata at the config's `metadata_url`, {_quote(url)}")
        issuer = str(document.get("issuer"))
        if self._config.issuer is not None and not issuers_match(issuer, self._config.issuer):
            raise LoginAborted(f"{_quote(url)} is about {_quote(issuer)}, but the config has a different `issuer`")
        return self._build_result(document, issuer, None, challenge)

    async def _assume_server(self, challenge: BearerChallenge) -> DiscoveryResult:
        """Treat the server as its own authorization server, with metadata at its root or the default endpoints."""
        split = urlsplit(self._url)
        origin = f"{split.scheme}://{split.netloc}"
        (url,) = build_oauth_authorization_server_metadata_discovery_urls(None, self._url)
        document = await self._fetch_document(url)
        if document is not None:
            if not _is_same_origin(str(document.get("issuer")), origin):  # its path does not matter here
                raise LoginAborted(f"{_quote(url)} is not about {_quote(origin)}, but names another issuer")
            return self._build_result(document, str(document["issuer"]), None, challenge)
        if self._without_servers:
            raise NoLogin(f"{_quote(self._without_servers)} names no authorization server")
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
        self._check_endpoints(document, issuer)
        try:
            metadata = OAuthMetadata.model_validate(document)
        except ValidationError as exc:
            names = ", ".join(sorted({f"`{error['loc'][0]}`" for error in exc.errors() if error["loc"]}))
            raise LoginAborted(f"the metadata of {_quote(issuer)} is wrong or incomplete: {names}") from None
        if self._config.needs_user and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginAborted(
                f"{_quote(issuer)} does not say that it supports PKCE (S256), so a login there is not safe"
            )
        return DiscoveryResult(
            server=self._url,
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

    def _check_endpoints(self, document: Document, issuer: str) -> None:
        for name in _ENDPOINTS:
            url = document.get(name)
            if isinstance(url, str):
                self._check_url(url, f"the `{name}` of {_quote(issuer)}")
        if self._config.client_secret or self._config.private_key_file or not self._config.needs_user:
            self._check_secret_recipient(issuer)

    def _check_secret_recipient(self, issuer: str) -> None:
        """Protect the config's secret from an authorization server that a server names. Raises LoginAborted."""
        trusted: Iterable[str] = filter(None, (self._config.issuer, self._config.metadata_url, self._url))
        if not any(is_same_host(issuer, each) for each in trusted):
            raise LoginAborted(
                f"the server names {_quote(issuer)} for its logins, which is on another host; to let it have the"
                " secret, set `oauth.issuer` in the config"
            )

    # --- requests --------------------------------------------------------------------------------------

    def _check_url(self, url: str, what: str) -> None:
        try:
            self._policy.check(url)
        except ForbiddenUrl as exc:
            raise LoginAborted(f"{what} {exc}: {_quote(url)}; nothing was opened") from None
        if not _HARMLESS.fullmatch(url):
            raise LoginAborted(f"{what} contains characters that no URL may have: {_quote(url)}; nothing was opened")
        if "@" in urlsplit(url).netloc:
            raise LoginAborted(f"{what} has a user name in front of its host: {_quote(url)}; nothing was opened")

    async def _fetch_document(self, url: str) -> Document | None:
        """Return the JSON object at a URL; None if there is none. Raises LoginAborted."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._web.send(create_oauth_metadata_request(url))
        except (ForbiddenUrl, httpx2.HTTPError, TimeoutError) as exc:
            raise LoginAborted(f"{_quote(url)} {explain(exc)}") from exc
        if answer.status_code >= 500 or answer.status_code == 429:
            raise LoginAborted(f"{_quote(url)} answered with HTTP {answer.status_code}; try again later")
        if answer.status_code != 200:
            return None
        try:
            document = json.loads(answer.content)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None


def printable(text: str, limit: int = 100) -> str:
    """Return the beginning of text from a server in a form that is safe to show between backticks."""
    return replace_unprintable(text[:limit]).replace("`", "\ufffd")


def _quote(url: str) -> str:
    return f"`{printable(url, 200)}`"


def _is_same_origin(url: str, origin: str) -> bool:
    try:
        return split_url(url) == split_url(origin)
    except ForbiddenUrl:
        return False
