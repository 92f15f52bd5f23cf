"""Protected resource metadata (RFC 9728): tells clients where to log in for this server.

Everything follows from `public_url`, and nothing from what a request says of its host.
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

# What may follow the path of the endpoint: a slash, a group, or `profile` and a name (RFC 3986, section 3.3).
_BELOW = re.compile(r"(/|(/[A-Za-z0-9._~%!$&'()*+,;=:@-]{1,300}){1,2})")
_KEPT: Headers = ((b"cache-control", b"public, max-age=300"),)


class ResourceMetadata:
    """The metadata of an endpoint and of what is below it.

    `path` and `root_path` are those of the endpoint as requests have them, `public_url` is what clients write.
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
        """Return where the metadata is of what a request is about."""
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        below = next((path[len(each) :] for each in self._endpoints if path.startswith(each)), "")
        return self._url(below if _is_below(below) else "")

    @property
    def url(self) -> str:
        """Where the metadata of the endpoint is."""
        return self._url("")

    def find_page(self, method: str, path: bytes) -> OpenPage | None:
        """Return the document at a path: with the path of the endpoint, or something below it, or without any."""
        text = path.decode("ascii", "replace")
        if method not in ("GET", "HEAD", "OPTIONS") or not text.startswith(PROTECTED_RESOURCE):
            return None
        asked = text[len(PROTECTED_RESOURCE) :]
        below = asked.removeprefix(self._public_path)
        if asked in ("", "/"):
            resource = self._public_url
        elif asked.startswith(self._public_path) and _is_below(below):
            resource = f"{self._origin}{asked}"
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
    """Answers every request with one document."""

    def __init__(self, document: bytes) -> None:
        self._document = document

    async def __call__(self, request: PageRequest) -> Response:
        return Response(200, JSON + _KEPT, self._document)


def _is_below(path: str) -> bool:
    return not path or (_BELOW.fullmatch(path) is not None and not {".", ".."} & set(path.split("/")))
