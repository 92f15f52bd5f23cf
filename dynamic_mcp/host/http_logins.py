"""Adds the pages for logins to servers to a proxy's HTTP server, and sends links to them.

Where servers exchange the tokens of callers, these are kept for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.issuers import issuer_aliases, issuer_of
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.auth.upstream_login import UpstreamLoginPages, WithPages
from dynamic_mcp.face.http.authenticator import Authenticator
from dynamic_mcp.proxy.proxy import Proxy

if TYPE_CHECKING:
    from dynamic_mcp.face.auth.kept_tokens import TokenKeeper


def add_login_pages(authenticator: Authenticator, http: Http, proxy: Proxy) -> Authenticator:
    """Return the authenticator with the login pages added, unless every client is the local user."""
    base_url = find_base_url(http)
    if proxy.logins is None or base_url is None or authenticator.is_open:
        return authenticator
    aliases = issuer_aliases(http)
    pages = UpstreamLoginPages(proxy.logins.links, authenticator.authenticate, base_url=base_url, aliases=aliases)
    return WithPages(authenticator, pages)


def make_keeper(config: Config, proxy: Proxy) -> TokenKeeper | None:
    """Return what keeps the tokens of callers; None if no server of this config exchanges them."""
    issuers = config.exchanged_issuers
    if not issuers or proxy.logins is None:
        return None
    from dynamic_mcp.face.auth.kept_tokens import TokenKeeper

    return TokenKeeper(issuers, proxy.logins.caller_tokens)


def use_logins(http: Http, config: Config, proxy: Proxy) -> None:
    """Send users links to the pages from now on, if there are pages, and keep no token that is not exchanged."""
    if proxy.logins is not None:
        proxy.logins.base_url = find_base_url(http) if http.auth else None
        proxy.logins.keep_tokens_of(config.exchanged_issuers if http.auth else ())


def find_base_url(http: Http) -> str | None:
    """Return the base URL of all paths of the server: the public URL without the path of the endpoint."""
    return None if http.public_url is None else issuer_of(http)
