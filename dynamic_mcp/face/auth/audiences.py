"""For whom a token may be issued, to be of use here (RFC 8707; RFC 9068, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from dynamic_mcp.face.http.exchange import RequestHead


class Audiences:
    """The audiences that stand for this server.

    Those of the config, if it has any. Else that is `public_url`, with and without a slash at the end, and its
    origin, which clients ask for as well; and the URL of a group or a profile, for requests to that one only.
    `paths` are those of the MCP endpoint as requests have them.
    """

    def __init__(self, configured: Sequence[str], public_url: str | None, paths: Sequence[str] = ()) -> None:
        self._public_url = None if configured or public_url is None else public_url.rstrip("/")
        self._paths = tuple(paths)
        self._everywhere = frozenset(configured)
        if self._public_url is not None:
            parts = urlsplit(self._public_url)
            origin = f"{parts.scheme}://{parts.netloc}"
            self._everywhere |= {self._public_url, f"{self._public_url}/", origin, f"{origin}/"}

    def accept(self, named: Sequence[str], head: RequestHead) -> bool:
        """Tell whether one of the audiences of a token stands for what a request is about."""
        if not self._everywhere.isdisjoint(named):
            return True
        below = self._below(head)
        return bool(below) and f"{self._public_url}{below}" in (each.rstrip("/") for each in named)

    def _below(self, head: RequestHead) -> str:
        """Return what the path of a request has after that of the endpoint: nothing, or `/` and more."""
        if self._public_url is None:
            return ""
        path = head.target.partition(b"?")[0].decode("ascii", "replace")
        for each in self._paths:
            for endpoint in (each, f"{head.root_path.rstrip('/')}{each}"):
                if path.startswith(f"{endpoint}/"):
                    return path[len(endpoint) :].rstrip("/")
        return ""
