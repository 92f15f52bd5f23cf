"""Where the metadata is that tells clients where to log in (MCP, authorization; RFC 9728, section 3.1)."""

from __future__ import annotations

from urllib.parse import urlsplit

PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"


def metadata_url(url: str) -> str:
    """Return the URL of the metadata of an endpoint: the well-known path comes before its own path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{PROTECTED_RESOURCE}{parts.path.rstrip('/')}"
