"""The paths of the HTTP face. A path is taken as it was sent; only the name of a group is decoded, and once."""

from __future__ import annotations

from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct


class Place(Enum):
    """What is at a path."""

    MCP = auto()
    EVENTS = auto()
    MESSAGES = auto()
    HEALTH = auto()
    READY = auto()


class Route(Struct, frozen=True, gc=False):
    """What a path means; `only` is the name of the group that it is alone about, `profile` that of a profile."""

    place: Place
    only: str | None = None
    profile: str | None = None


class Paths:
    """Finds what a path means. `path` is that of streamable HTTP, `root_path` what a reverse proxy puts before it."""

    def __init__(self, path: str, root_path: str) -> None:
        self._root = root_path.rstrip("/").encode()
        mcp = path.rstrip("/").encode()
        self._routes = {
            mcp: Route(Place.MCP),
            mcp + b"/": Route(Place.MCP),
            b"/sse": Route(Place.EVENTS),
            b"/messages": Route(Place.MESSAGES),
            b"/messages/": Route(Place.MESSAGES),
            b"/health": Route(Place.HEALTH),
            b"/ready": Route(Place.READY),
        }
        self._below = ((mcp + b"/", Place.MCP), (b"/sse/", Place.EVENTS))

    def find(self, path: bytes, root_path: str = "") -> Route | None:
        """Return what a path means; None if it means nothing. The way in's `root_path` comes before ours."""
        found = self._routes.get(path)
        if found is not None:
            return found
        root = root_path.rstrip("/").encode() if root_path else self._root
        if root and path.startswith(root + b"/"):
            path = path[len(root) :]
        return self._routes.get(path) or self._find_group(path)

    def messages(self, root_path: str, session: str) -> bytes:
        """Return where a client of the older transport posts its messages."""
        root = quote(root_path.rstrip("/")).encode() if root_path else self._root
        return b"%s/messages?session_id=%s" % (root, session.encode())

    def _find_group(self, path: bytes) -> Route | None:
        for prefix, place in self._below:
            if path.startswith(prefix) and b"/" not in (rest := path[len(prefix) :]):
                name = unquote_to_bytes(rest).decode("utf-8", "replace")
                return Route(place, name) if name and "/" not in name else None
        return None
