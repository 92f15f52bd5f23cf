"""The location of the metadata for client logins (MCP, authorization; RFC 9728, section 3.1)."""

from __future__ import annotations

from urllib.parse import urlsplit

PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"


def metadata_url(url: str) -> str:
    """Return the metadata URL of an endpoint: the well-known path comes before the endpoint's path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{PROTECTED_RESOURCE}{parts.path.rstrip('/')}"
