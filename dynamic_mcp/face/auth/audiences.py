"""The audiences that a token may be issued for (RFC 8707; RFC 9068, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from dynamic_mcp.face.http.exchange import RequestHead


class Audiences:
    """The audiences that this server accepts.

    These are the audiences of the config, if it has any. Otherwise they are `public_url`, with and without a trailing
    slash, and its origin, which some clients request; and the URL of a group or a profile, for requests to that URL
    only. `paths` are the paths of the MCP endpoint as they appear in requests.
    """

    def __init__(self, configured: Sequence[str], public_url: str | None, paths: Sequence[str] = ()) -> None:
        self._public_url = None if configured or public_url is None else public_url.rstrip("/")
        self._paths = tuple(paths)
        self._everywhere = frozenset(configured)
        if self._public_url is not None:
            parts = urlsplit(self._public_url)
            origin = f"{parts.scheme}://{parts.netloc}"
            self._everywhere |= {self._public_url, f"{self._public_url}/", origin, f"{origin}/"}

    def accept(self, audiences: Sequence[str], head: RequestHead) -> bool:
        """Return whether one of the audiences of a token is accepted for this request."""
        if not self._everywhere.isdisjoint(audiences):
            return True
        below = self._below(head)
        return bool(below) and f"{self._public_url}{below}" in (each.rstrip("/") for each in audiences)

    def _below(self, head: RequestHead) -> str:
        """Return the part of the request's path after the endpoint: nothing, or `/` and more."""
        if self._public_url is None:
            return ""
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        for each in self._paths:
            for endpoint in (each, f"{head.root_path.rstrip('/')}{each}"):
                if path.startswith(f"{endpoint}/"):
                    return path[len(endpoint) :].rstrip("/")
        return ""
