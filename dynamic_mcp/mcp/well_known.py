"""The locations and types of documents that clients read before they connect.

Metadata for logins: MCP, authorization; RFC 9728, section 3.1. Server cards and AI catalogs: SEP-2127.
"""

from __future__ import annotations

from urllib.parse import urlsplit

PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"
AI_CATALOG = "/.well-known/ai-catalog.json"
CATALOG_TYPE = "application/ai-catalog+json"
CATALOG_VERSION = "1.0"
SERVER_CARD = "/server-card"  # after the URL of the endpoint
CARD_TYPE = "application/mcp-server-card+json"


def metadata_url(url: str) -> str:
    """Return the metadata URL of an endpoint: the well-known path comes before the endpoint's path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{PROTECTED_RESOURCE}{parts.path.rstrip('/')}"
