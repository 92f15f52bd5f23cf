"""Protected resource metadata (RFC 9728), which tells clients where to log in for this server.

It is derived from `public_url` only, never from the host that a request names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from dynamic_mcp.face.http.authenticator import OpenPage, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import JSON, Headers
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.well_known import PROTECTED_RESOURCE, metadata_url

# The paths below the endpoint: a slash, a group, or `profile` and a name (RFC 3986, section 3.3).
_BELOW = re.compile(r"(/|(/[A-Za-z0-9._~%!$&'()*+,;=:@-]{1,300}){1,2})")
_CACHEABLE: Headers = ((b"cache-control", b"public, max-age=300"),)


class ResourceMetadata:
    """The metadata of an endpoint and of the paths below it.

    `path` and `root_path` are those of the endpoint in requests, `public_url` is the URL that clients use.
    """

    def __init__(
        self,
        public_url: str,
        *,
        path: str,
        root_path: str = "",
        authorization_servers: Sequence[str] = (),
        scopes: Sequence[str] = (),
    ) -> None:
        parts = urlsplit(public_url)
        self._public_url = public_url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._public_path = parts.path.rstrip("/")
        self._endpoints = (path, f"{root_path}{path}")
        self._servers = authorization_servers
        self._scopes = scopes

    def url_for(self, head: RequestHead) -> str:
        """Return the URL of the metadata for the resource that a request is for."""
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        below = next((path[len(each) :] for each in self._endpoints if path.startswith(each)), "")
        return self._url(below if _is_below(below) else "")

    @property
    def url(self) -> str:
        """The URL of the endpoint's metadata."""
        return self._url("")

    def find_page(self, method: str, path: bytes) -> OpenPage | None:
        """Return the document at a path: for the endpoint's path, a path below it, or no path."""
        text = path.decode("ascii", "replace")
        if method not in ("GET", "HEAD", "OPTIONS") or not text.startswith(PROTECTED_RESOURCE):
            return None
        resource_path = text[len(PROTECTED_RESOURCE) :]
        if resource_path in ("", "/"):
            resource = self._public_url
        elif resource_path.startswith(self._public_path) and _is_below(resource_path.removeprefix(self._public_path)):
            resource = f"{self._origin}{resource_path}"
        else:
            return None
        return OpenPage(_Document(self._describe(resource)))

    def _url(self, below: str) -> str:
        return f"{metadata_url(self._public_url)}{below}"

    def _describe(self, resource: str) -> bytes:
        document: dict[str, object] = {"resource": resource, "bearer_methods_supported": ["header"]}
        if self._servers:
            document["authorization_servers"] = self._servers
        if self._scopes:
            document["scopes_supported"] = self._scopes
        return wire.encode(document)


class _Document:
    def __init__(self, document: bytes) -> None:
        self._document = document

    async def __call__(self, request: PageRequest) -> Response:
        return Response(200, JSON + _CACHEABLE, self._document)


def _is_below(path: str) -> bool:
    return not path or (_BELOW.fullmatch(path) is not None and not {".", ".."} & set(path.split("/")))
