"""The paths of the HTTP face. A path is taken as it was sent; only the name at its end is decoded, and once.

Below `/mcp` and `/sse` there are groups, each by its name, and profiles: `/mcp/profile/<name>`.
"""

from __future__ import annotations

from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

# What comes before the name of a profile; without one, it is the name of a group.
_PROFILE = b"profile/"


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
    """Finds what a path means. `path` is that of streamable HTTP, `root_path` what a reverse proxy puts before it.

    `profile` is that of clients whose path names none.
    """

    def __init__(self, path: str, root_path: str, profile: str | None = None) -> None:
        self._root = root_path.rstrip("/").encode()
        self._profile = profile
        mcp = path.rstrip("/").encode()
        self._routes = {
            mcp: Route(Place.MCP, profile=profile),
            mcp + b"/": Route(Place.MCP, profile=profile),
            b"/sse": Route(Place.EVENTS, profile=profile),
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
        return self._routes.get(path) or self._find_below(path)

    def messages(self, root_path: str, session: str) -> bytes:
        """Return where a client of the older transport posts its messages."""
        root = quote(root_path.rstrip("/")).encode() if root_path else self._root
        return b"%s/messages?session_id=%s" % (root, session.encode())

    def _find_below(self, path: bytes) -> Route | None:
        """Return the group or the profile that a path is about."""
        for prefix, place in self._below:
            if not path.startswith(prefix):
                continue
            rest = path[len(prefix) :]
            is_profile = rest.startswith(_PROFILE)
            name = _decode_name(rest[len(_PROFILE) :] if is_profile else rest)
            if name is None:
                return None
            return Route(place, profile=name) if is_profile else Route(place, name, self._profile)
        return None


def _decode_name(part: bytes) -> str | None:
    """Return the name that the last part of a path is; None if it is not one part, or its name is none of ours."""
    try:
        name = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return None
    return name if name and "/" not in name else None
