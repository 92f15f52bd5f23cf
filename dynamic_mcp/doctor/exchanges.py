"""Asks the issuers whose tokens servers exchange where and how they do it; no token is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import Config, GroupConfig, OAuth, Remote
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.web.address_policy import AddressPolicy

_GRANTS = {
    "token_exchange": "urn:ietf:params:oauth:grant-type:token-exchange",
    "on_behalf_of": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


async def check_exchanges(config: Config) -> list[Finding]:
    """Return a finding for each server whose issuer's metadata is used."""
    wanted = [
        (group, group.upstream.oauth)
        for group in config.groups
        if isinstance(group.upstream, Remote)
        and group.upstream.oauth.exchanges
        and group.upstream.oauth.exchange.token_endpoint is None
    ]
    return await asyncio.gather(*(_check(group, oauth) for group, oauth in wanted)) if wanted else []


async def _check(group: GroupConfig, oauth: OAuth) -> Finding:
    from dynamic_mcp.web.documents import DocumentError, open_documents
    from dynamic_mcp.web.metadata import MetadataError, fetch_metadata, quote_url

    where, issuer = format_path(("mcpServers", group.name, "oauth", "issuer")), oauth.issuer or ""
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
