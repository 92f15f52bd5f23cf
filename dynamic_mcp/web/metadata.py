"""The metadata of an authorization server, or OpenID Connect provider: where it is, and what of it is believed.

RFC 8414; OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Document, Documents


class MetadataError(Exception):
    """Metadata that is wrong, or about somebody else; the message is for the user."""


class ServerMetadata(Struct, frozen=True):
    """What is read of the metadata; everything else is ignored."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


_TYPES = {field.name: (field.type, field.required) for field in msgspec.structs.fields(ServerMetadata)}


def well_known_urls(issuer: str, *, prefers_openid: bool = False) -> list[str]:
    """Return where the metadata of an issuer may be, in the order in which to ask.

    OAuth's metadata comes first (MCP, authorization, section 2.3). OpenID's has more for an OpenID Connect provider.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    openid = f"{origin}{path}/.well-known/openid-configuration"
    urls = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        openid,
    ]
    return list(dict.fromkeys([openid, *urls] if prefers_openid else urls))


async def fetch_metadata(
    server: Documents, issuer: str, *, prefers_openid: bool = False, headers: Mapping[str, str] | None = None
) -> Document:
    """Return the metadata of an issuer, wherever it is, which must name just this issuer.

    Raises MetadataError, and DocumentError if there is none.
    """
    from dynamic_mcp.web.documents import DocumentError

    missing: DocumentError | None = None
    for url in well_known_urls(issuer, prefers_openid=prefers_openid):
        try:
            document = await server.fetch(url, headers)
        except DocumentError as exc:
            if not exc.is_missing:
                raise
            missing = missing or exc
            continue
        if document.get("issuer") != issuer:
            raise MetadataError(f"{quote_url(url)} is not about {quote_url(issuer)}, but names another issuer")
        return document
    assert missing is not None
    raise missing


def parse_metadata(document: Document, policy: AddressPolicy, endpoints: Collection[str]) -> ServerMetadata:
    """Return metadata whose `endpoints` lead where the policy allows, as far as it has them.

    Raises MetadataError, which names all that is wrong.
    """
    issuer = quote_url(str(document.get("issuer")))
    for name in endpoints:
        url = document.get(name)
        if isinstance(url, str):
            check_url(policy, url, f"the `{name}` of {issuer}")
    fields: dict[str, object] = {}
    wrong: list[str] = []
    for name, (kind, is_required) in _TYPES.items():
        value = document.get(name)
        if value is None and not is_required:
            continue
        try:
            fields[name] = msgspec.convert(value, kind, strict=False)  # some write `true` as a text
        except msgspec.ValidationError:
            wrong.append(f"`{name}`")
    if wrong:
        raise MetadataError(f"the metadata of {issuer} is wrong or incomplete: {', '.join(sorted(wrong))}")
    return msgspec.convert(fields, ServerMetadata)


def check_url(policy: AddressPolicy, url: str, what: str) -> None:
    """Check a URL that a server names, before anything is opened or sent. Raises MetadataError."""
    try:
        policy.check_endpoint(url)
    except ForbiddenUrl as exc:
        raise MetadataError(f"{what} {exc}: {quote_url(url)}; nothing was opened") from None


def quote_url(url: str) -> str:
    """Return a URL from a server for a message."""
    return f"`{printable(url, 200)}`"


def printable(text: str, limit: int = 100) -> str:
    """Return the beginning of text from a server in a form that is safe to show between backticks."""
    return replace_unprintable(text[:limit]).replace("`", "\ufffd")
