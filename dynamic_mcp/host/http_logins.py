"""Adds the pages for logins to servers to a proxy's HTTP server, and sends links to them."""

from __future__ import annotations

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.issuers import issuer_aliases, issuer_of
from dynamic_mcp.face.auth.upstream_login import UpstreamLoginPages, WithPages
from dynamic_mcp.face.http.authenticator import Authenticator
from dynamic_mcp.proxy.proxy import Proxy


def add_login_pages(authenticator: Authenticator, http: Http, proxy: Proxy) -> Authenticator:
    """Return the authenticator with the login pages added, unless every client is the local user."""
    base_url = find_base_url(http)
    if proxy.logins is None or base_url is None or authenticator.is_open:
        return authenticator
    aliases = issuer_aliases(http)
    pages = UpstreamLoginPages(proxy.logins.links, authenticator.authenticate, base_url=base_url, aliases=aliases)
    return WithPages(authenticator, pages)


def send_links(http: Http, proxy: Proxy) -> None:
    """Send users links to the pages from now on, if there are pages."""
    if proxy.logins is not None:
        proxy.logins.base_url = find_base_url(http) if http.auth else None


def find_base_url(http: Http) -> str | None:
    """Return the base URL of all paths of the server: the public URL without the path of the endpoint."""
    return None if http.public_url is None else issuer_of(http)
