"""Checks servers that exchange the tokens of callers: their settings, and what their issuers say. Sends no token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from dynamic_mcp.config.auth import Jwt
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import Config, OAuth, Remote
from dynamic_mcp.doctor.findings import Finding, Level, config_error
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl

_GRANTS = {
    "token_exchange": "urn:ietf:params:oauth:grant-type:token-exchange",
    "on_behalf_of": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


def check_exchange_settings(config: Config) -> Iterator[Finding]:
    """Report servers for which no client can show a token, and tokens that would go over the network in clear."""
    auth = () if config.http is None else config.http.auth
    providers = [each for each in auth if isinstance(each, Jwt)]
    for where, oauth in _list_exchanges(config):
        yield from _check_providers(where, oauth, providers)
        endpoint, issuer = oauth.exchange.token_endpoint, oauth.issuer or ""
        name, url = ("exchange.token_endpoint", endpoint) if endpoint else ("issuer", issuer)
        try:
            AddressPolicy(url).check(url)
        except ForbiddenUrl as exc:
            yield config_error(f"{where}.{name}", f"`{url}` {exc}; nothing would be sent there")


def _check_providers(where: str, oauth: OAuth, providers: Sequence[Jwt]) -> Iterator[Finding]:
    issuer = oauth.issuer or ""
    provider = next((each for each in providers if each.issuer == issuer), None)
    if provider is None:
        near = [each.issuer for each in providers if each.issuer.rstrip("/") == issuer.rstrip("/")]
        hint = 'add `{ "kind": "jwt", "issuer": … }` to `settings.http.auth`, or use another `grant`'
        what = f"no entry `jwt` of `settings.http.auth` accepts tokens of `{issuer}`, so there are none to exchange"
        yield config_error(f"{where}.issuer", what, f"write `{near[0]}`" if near else hint)
    elif oauth.grant == "on_behalf_of" and not provider.audience:
        what = f"the `jwt` of `{issuer}` accepts tokens for `public_url`, and those to exchange are for `client_id`"
        yield Finding(Level.WARNING, where, what, f'add `"audience": ["{oauth.client_id}"]` to that entry')


async def check_exchanges(config: Config) -> list[Finding]:
    """Ask the issuers whose metadata says where tokens are exchanged."""
    wanted = [each for each in _list_exchanges(config) if each[1].exchange.token_endpoint is None]
    return await asyncio.gather(*(_ask_issuer(*each) for each in wanted))


async def _ask_issuer(where: str, oauth: OAuth) -> Finding:
    from dynamic_mcp.web.documents import DocumentError, open_documents
    from dynamic_mcp.web.metadata import MetadataError, fetch_metadata, quote_url

    where, issuer = f"{where}.issuer", oauth.issuer or ""
    hint = "or name where tokens are exchanged in `oauth.exchange.token_endpoint`"
    try:
        async with open_documents(AddressPolicy(issuer)) as web:
            document = await fetch_metadata(web, issuer)
    except (DocumentError, MetadataError) as exc:
        return Finding(Level.WARNING, where, f"the metadata cannot be used: {exc}", hint)
    endpoint, grants = document.get("token_endpoint"), document.get("grant_types_supported")
    if not isinstance(endpoint, str):
        return Finding(Level.WARNING, where, f"the metadata of {quote_url(issuer)} names no token endpoint", hint)
    if isinstance(grants, Iterable) and not isinstance(grants, str) and _GRANTS[oauth.grant] not in grants:
        what = f"{quote_url(endpoint)} does not say that it supports `{_GRANTS[oauth.grant]}`"
        return Finding(Level.NOTE, where, what, "it may do so for some clients only")
    return Finding(Level.OK, where, f"tokens are exchanged at {quote_url(endpoint)}")


def _list_exchanges(config: Config) -> Iterator[tuple[str, OAuth]]:
    """Yield the logins that exchange the tokens of callers, with their places in the config."""
    for group in config.groups:
        if isinstance(group.upstream, Remote) and group.upstream.oauth.exchanges:
            yield format_path(("mcpServers", group.name, "oauth")), group.upstream.oauth
