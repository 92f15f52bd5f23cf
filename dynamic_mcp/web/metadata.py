"""The metadata of an authorization server or OpenID Connect provider: its URLs, and its validation.

RFC 8414; OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dynamic_mcp.system.text import replace_unprintable
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl

if TYPE_CHECKING:
    from dynamic_mcp.web.documents import Document, Documents

_NAMES = ("oauth-authorization-server", "openid-configuration")


class MetadataError(Exception):
    """Raised for metadata that is invalid or of another issuer; the message is for the user."""


def openid_urls(issuer: str) -> list[str]:
    """Return the possible URLs of an issuer's metadata, in order: OpenID's has more than OAuth's."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    names = (f"{path}/.well-known/openid-configuration", *(f"/.well-known/{name}{path}" for name in _NAMES))
    return list(dict.fromkeys(f"{origin}{name}" for name in names))


async def fetch_metadata(
    server: Documents, issuer: str, urls: Iterable[str] | None = None, headers: Mapping[str, str] | None = None
) -> Document:
    """Return the metadata of an issuer, which is at one of the URLs and must name this issuer.

    Raises MetadataError, and DocumentError if there is none.
    """
    from dynamic_mcp.web.documents import DocumentError

    missing: DocumentError | None = None
    for url in urls or openid_urls(issuer):
        try:
            document = await server.fetch(url, headers)
        except DocumentError as exc:
            if not exc.is_missing:
                raise
            missing = missing or exc
            continue
        if document.get("issuer") != issuer:
            raise MetadataError(f"{quote_url(url)} names another issuer than {quote_url(issuer)}")
        return document
    assert missing is not None
    raise missing


def check_endpoints(policy: AddressPolicy, document: Document, names: Iterable[str]) -> None:
    """Check the endpoints in metadata that are present. Raises MetadataError."""
    for name in names:
        url = document.get(name)
        if isinstance(url, str):
            check_url(policy, url, f"the `{name}` of {quote_url(str(document.get('issuer')))}")


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
    """Return the beginning of a server's text in a form that is safe to show between backticks."""
    return replace_unprintable(text[:limit]).replace("`", "\ufffd")
