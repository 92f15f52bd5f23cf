"""The server card and the AI catalog, by which clients find this server before they connect (SEP-2127).

Both are public, and come from `public_url` and the version only: no group, no profile and no user is in them.
https://github.com/modelcontextprotocol/experimental-ext-server-card, docs/discovery.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from dynamic_mcp import __version__
from dynamic_mcp.face.http.authenticator import OpenPage, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import Headers
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import SUPPORTED
from dynamic_mcp.mcp.well_known import AI_CATALOG, CARD_TYPE, CATALOG_TYPE, CATALOG_VERSION, SERVER_CARD

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_NAME = "dynamic-mcp"
_DESCRIPTION = "Tools, resources and prompts of several MCP servers, found on demand."
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9.-]")
_LONGEST_HOST = 150
_CARD = SERVER_CARD.encode()
_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS: Headers = (
    (b"cache-control", b"public, max-age=3600"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"content-type, if-none-match"),
    (b"access-control-expose-headers", b"etag"),
)


class ServerCards:
    """The two documents of an endpoint, whose path and prefix in requests are `path` and `root_path`.

    `needs_token`: clients need a token that they get from a person.
    """

    def __init__(self, public_url: str, *, path: str, root_path: str = "", needs_token: bool = False) -> None:
        url = public_url.rstrip("/")
        parts = urlsplit(url)
        prefix = parts.path.removesuffix(path.rstrip("/")).strip("/")
        publisher = _publisher(parts.hostname or "")
        server = _NOT_IN_NAMES.sub("-", f"{prefix}.{_NAME}" if prefix else _NAME)[-_LONGEST_HOST // 3 :]
        card = _Document(CARD_TYPE, _card(url, f"{_reverse(publisher)}/{server}", needs_token=needs_token))
        catalog = _Document(CATALOG_TYPE, _catalog(url, publisher, server))
        pages = {f"{path.rstrip('/')}{SERVER_CARD}": OpenPage(card), AI_CATALOG: OpenPage(catalog)}
        roots = ("", root_path.rstrip("/"))
        self._pages = {f"{root}{place}".encode(): page for place, page in pages.items() for root in roots}

    def is_wanted(self, head: RequestHead, path: bytes) -> bool:
        """Return whether a request is for a document, and not for the stream of a group at the same path."""
        if not path.endswith(_CARD) or b"text/event-stream" in head.headers.get(b"accept", b""):
            return False
        return any(self.find_page(head.method, each) for each in (path, head.root_path.encode() + path))

    def find_page(self, method: str, path: bytes) -> OpenPage | None:
        """Return the document at a path."""
        return self._pages.get(path) if method in _METHODS else None


class _Document:
    def __init__(self, media_type: str, document: Mapping[str, object]) -> None:
        self._body = wire.encode(document)
        self._tag = b'"%s"' % sha256(self._body).hexdigest()[:32].encode()
        self._headers: Headers = ((b"etag", self._tag), *_HEADERS)
        self._type: Headers = ((b"content-type", media_type.encode()),)

    async def __call__(self, request: PageRequest) -> Response:
        known = request.head.headers.get(b"if-none-match", b"")
        if known.strip() == b"*" or self._tag in known:
            return Response(304, self._headers)
        return Response(200, self._type + self._headers, self._body)


def _card(url: str, name: str, *, needs_token: bool) -> dict[str, object]:
    remote: dict[str, object] = {"type": "streamable-http", "url": url, "supportedProtocolVersions": SUPPORTED}
    if needs_token:
        token = {"description": "A token from the operator of this server.", "isRequired": True, "isSecret": True}
        remote["headers"] = [
            {
                "name": "Authorization",
                "value": "Bearer {token}",
                "isRequired": True,
                "isSecret": True,
                "variables": {"token": token},
            }
        ]
    return {
        "$schema": _SCHEMA,
        "name": name,
        "title": _NAME,
        "description": _DESCRIPTION,
        "version": __version__,
        "remotes": [remote],
    }


def _catalog(url: str, publisher: str, server: str) -> dict[str, object]:
    entry = {
        "identifier": f"urn:air:{publisher}:mcp:{server}",
        "displayName": _NAME,
        "type": CARD_TYPE,
        "url": f"{url}{SERVER_CARD}",
    }
    return {"specVersion": CATALOG_VERSION, "entries": [entry]}


def _publisher(host: str) -> str:
    """Return a host with characters that names may have."""
    return _NOT_IN_NAMES.sub("-", host)[-_LONGEST_HOST:]


def _reverse(publisher: str) -> str:
    """Return a domain in reverse order; an address stays as it is."""
    try:
        ip_address(publisher)
    except ValueError:
        return ".".join(reversed(publisher.split(".")))
    return publisher
