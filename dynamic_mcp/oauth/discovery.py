"""Finding out where and how to log in: RFC 9728, then RFC 8414 or OpenID, else what MCP 2025-03-26 assumed.

Imports the MCP SDK, which costs a second: only when a login begins, in a thread. What the server says is looked at
before anything is opened or sent, and the document must name the server, or the issuer, that was asked for.
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
from dynamic_mcp.oauth.challenges import Demand
from dynamic_mcp.oauth.reach import Forbidden, Reach, is_same_host, parts
from dynamic_mcp.oauth.web import TIMEOUT_S, explained
from dynamic_mcp.system.text import replace_unprintable

# What a URL to log in at is made of; anything else means something to one shell or another.
_HARMLESS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!&*+,=%]+")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")

Document = dict[str, object]


class Stopped(Exception):
    """The login cannot go on, and why in words for a person."""


@dataclass(frozen=True)
class Found:
    """Where and how to log in to one server; `assumed` when its endpoints are nowhere written down."""

    server: str
    issuer: str
    resource: str
    scope: str | None
    metadata: OAuthMetadata
    assumed: bool = False

    def endpoint(self, name: str) -> str | None:
        """Return an endpoint's URL."""
        url = getattr(self.metadata, name)
        return None if url is None else str(url)


class Discovery:
    """The cascade for one server."""

    def __init__(self, web: httpx2.AsyncClient, reach: Reach, remote: Remote) -> None:
        self._web = web
        self._reach = reach
        self._url = remote.url
        self._config: OAuth = remote.oauth

    async def run(self, demand: Demand) -> Found:
        """Ask the server, and then the authorization server that it names. Raises Stopped."""
        if self._config.metadata_url:
            return await self._configured(self._config.metadata_url, demand)
        resource, named = await self._resource_metadata(demand)
        issuer = self._chosen(named)
        if issuer is not None:
            document = await self._server_metadata(issuer)
            return self._found(document, issuer, resource, demand)
        return await self._as_in_2025_03(demand)

    # --- the resource (RFC 9728) -----------------------------------------------------------------------

    async def _resource_metadata(self, demand: Demand) -> tuple[ProtectedResourceMetadata | None, list[str]]:
        for url in build_protected_resource_metadata_discovery_urls(demand.resource_metadata, self._url):
            document = await self._document(url)
            if document is None:
                continue
            named = document.get("authorization_servers")
            for each in named if isinstance(named, list) else ():
                self._check(str(each), f"the authorization server that {_shown(url)} names")
            try:
                metadata = ProtectedResourceMetadata.model_validate(document)
            except ValidationError:
                continue
            self._check_resource(str(document["resource"]), url)
            assert isinstance(named, list)
            return metadata, [str(each) for each in named]
        return None, []

    def _check_resource(self, resource: str, where: str) -> None:
        if not check_resource_allowed(resource_url_from_server_url(self._url), resource):
            raise Stopped(f"{_shown(where)} is about another server, {_shown(resource)}; no login was begun")

    def _chosen(self, named: list[str]) -> str | None:
        """Return the issuer to use: the config's, else the first that the server names."""
        wanted = self._config.issuer
        if wanted is None or not named:
            return wanted or (named[0] if named else None)
        for each in named:
            if issuers_match(each, wanted):
                return each
        raise Stopped(f"the server names {_shown(named[0])} for its logins, but the config has a different `issuer`")

    # --- the authorization server (RFC 8414) -----------------------------------------------------------

    async def _server_metadata(self, issuer: str) -> Document:
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url):
            if (document := await self._document(url)) is not None:
                if document.get("issuer") != issuer:
                    raise Stopped(f"{_shown(url)} is not about {_shown(issuer)}, but names another issuer")
                return document
        raise Stopped(f"the authorization server {_shown(issuer)} does not say how to log in")

    async def _configured(self, url: str, demand: Demand) -> Found:
        document = await self._document(url)
        if document is None:
            raise Stopped(f"there is no metadata at the config's `metadata_url`, {_shown(url)}")
        return self._found(document, str(document.get("issuer")), None, demand)

    async def _as_in_2025_03(self, demand: Demand) -> Found:
        """The server is its own authorization server, with metadata at its root or with endpoints by custom."""
        split = urlsplit(self._url)
        origin = f"{split.scheme}://{split.netloc}"
        (url,) = build_oauth_authorization_server_metadata_discovery_urls(None, self._url)
        document = await self._document(url)
        if document is not None:
            if not _is_same_origin(str(document.get("issuer")), origin):  # any path will do here
                raise Stopped(f"{_shown(url)} is not about {_shown(origin)}, but names another issuer")
            return self._found(document, str(document["issuer"]), None, demand)
        custom = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "registration_endpoint": "/register",
        }
        document = {"issuer": origin, **{name: urljoin(origin, path) for name, path in custom.items()}}
        document["code_challenge_methods_supported"] = ["S256"]
        return self._found(document, origin, None, demand, assumed=True)

    def _found(
        self,
        document: Document,
        issuer: str,
        resource: ProtectedResourceMetadata | None,
        demand: Demand,
        *,
        assumed: bool = False,
    ) -> Found:
        self._check_endpoints(document, issuer)
        try:
            metadata = OAuthMetadata.model_validate(document)
        except ValidationError as exc:
            names = ", ".join(sorted({f"`{error['loc'][0]}`" for error in exc.errors() if error["loc"]}))
            raise Stopped(f"the metadata of {_shown(issuer)} is wrong or incomplete: {names}") from None
        if not self._config.is_client_credentials and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise Stopped(f"{_shown(issuer)} does not say that it supports PKCE (S256), so a login there is not safe")
        return Found(
            server=self._url,
            issuer=issuer,
            resource=str(resource.resource) if resource else resource_url_from_server_url(self._url),
            scope=self._scope(demand, resource, metadata),
            metadata=metadata,
            assumed=assumed,
        )

    def _scope(
        self, demand: Demand, resource: ProtectedResourceMetadata | None, metadata: OAuthMetadata
    ) -> str | None:
        if self._config.scopes:
            return " ".join(self._config.scopes)
        if demand.scope is None and (resource is None or resource.scopes_supported is None):
            return None  # what the authorization server can give to all its clients is not what is needed here
        grants = ["client_credentials" if self._config.is_client_credentials else "refresh_token"]
        return get_client_metadata_scopes(demand.scope, resource, metadata, grants) or None

    def _check_endpoints(self, document: Document, issuer: str) -> None:
        for name in _ENDPOINTS:
            url = document.get(name)
            if isinstance(url, str):
                self._check(url, f"the `{name}` of {_shown(issuer)}")
        if self._config.client_secret or self._config.private_key_file:
            self._check_secret_may_go_to(issuer)

    def _check_secret_may_go_to(self, issuer: str) -> None:
        """Keep the config's secret from whatever authorization server a server may name. Raises Stopped."""
        trusted: Iterable[str] = filter(None, (self._config.issuer, self._config.metadata_url, self._url))
        if not any(is_same_host(issuer, each) for each in trusted):
            raise Stopped(
                f"the server names {_shown(issuer)} for its logins, on another host than its own; put that into"
                " `oauth.issuer` of the config if it may get the secret"
            )

    # --- asking ----------------------------------------------------------------------------------------

    def _check(self, url: str, what: str) -> None:
        try:
            self._reach.check(url)
        except Forbidden as exc:
            raise Stopped(f"{what} {exc}: {_shown(url)}; nothing was opened") from None
        if not _HARMLESS.fullmatch(url):
            raise Stopped(f"{what} contains characters that no URL may have: {_shown(url)}; nothing was opened")

    async def _document(self, url: str) -> Document | None:
        """Return a JSON object from the web; None where there is none. Raises Stopped."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._web.send(create_oauth_metadata_request(url))
        except (Forbidden, httpx2.HTTPError, TimeoutError) as exc:
            raise Stopped(f"{_shown(url)} {explained(exc)}") from exc
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Stopped(f"{_shown(url)} answered with HTTP {answer.status_code}; try again later")
        if answer.status_code != 200:
            return None
        try:
            document = json.loads(answer.content)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None


def _shown(url: str) -> str:
    """Return a foreign URL as it may be shown."""
    return "`" + replace_unprintable(url[:200]).replace("`", "\ufffd") + "`"


def _is_same_origin(url: str, origin: str) -> bool:
    try:
        return parts(url) == parts(origin)
    except Forbidden:
        return False
