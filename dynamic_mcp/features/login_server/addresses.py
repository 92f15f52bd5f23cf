"""The URLs of the authorization server and of the resources that it protects, all derived from `public_url`."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.issuers import issuer_of, origin_of

AUTHORIZE = "/authorize"
CONSENT = "/consent"
TOKEN = "/token"  # noqa: S105 - a path
REGISTER = "/register"
REVOKE = "/revoke"
CALLBACK = "/login/callback"
JWKS = "/.well-known/jwks.json"
# Limited because each token has its resources, and is a header of each request.
_MAX_RESOURCE_CHARS = 500
_OLD_TRANSPORT = "/sse"


class Addresses:
    """Returns the URL of each page, and the part of the server that a resource stands for."""

    def __init__(self, http: Http) -> None:
        assert http.public_url is not None
        self.issuer = issuer_of(http)
        parts = urlsplit(self.issuer)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.prefix = parts.path
        self.is_https = parts.scheme == "https"
        self._resource = http.public_url.rstrip("/")
        self._path = http.path.rstrip("/")
        self._roots = {each for each in (self.prefix, http.root_path.rstrip("/")) if each}

    def url(self, path: str) -> str:
        return self.issuer + path

    def paths(self, path: str) -> tuple[str, ...]:
        """Return the paths of a page: a reverse proxy may keep or remove the prefix of our paths."""
        return (path, *(root + path for root in sorted(self._roots)))

    def metadata_paths(self, document: str) -> tuple[str, ...]:
        """Return the paths of the issuer's metadata (RFC 8414, section 3.1; OpenID Discovery, section 4)."""
        return (*self.paths(f"/.well-known/{document}"), f"/.well-known/{document}{self.prefix}")

    def audience(self, part: str) -> str:
        """Return a part of the server as a resource."""
        return self._resource + part

    def find_part(self, resource: str) -> str | None:
        """Return the part of the server for a resource: empty for all, or as in `/github`; None if it is not ours.

        The URL may have a trailing slash, and clients may request the origin alone.
        """
        if len(resource) > _MAX_RESOURCE_CHARS:
            return None
        try:
            parts = urlsplit(resource)
        except ValueError:
            return None
        if origin_of(parts) != self.origin or parts.query or "#" in resource:
            return None
        path = parts.path.rstrip("/")
        if path in ("", self.prefix):
            return ""
        for base in (urlsplit(self._resource).path, self.prefix + self._path, self.prefix + _OLD_TRANSPORT):
            if path == base or path.startswith(base + "/"):
                return _decode(path[len(base) :])
        return None

    def part_of_request(self, target: bytes) -> str:
        """Return the part of the server that an MCP request is for."""
        path = target.partition(b"?")[0].decode("latin-1").rstrip("/")
        for root in ("", *self._roots):
            for base in (self._path, _OLD_TRANSPORT):
                if path == root + base or path.startswith(f"{root}{base}/"):
                    return _decode(path[len(root + base) :])
        return ""


def is_within(part: str, granted: str) -> bool:
    """Return whether a part of the server is covered by the granted part."""
    return part == granted or part.startswith(granted + "/") or not granted


def _decode(part: str) -> str:
    return unquote(part, errors="replace")
