"""The paths of the HTTP face. Paths are matched as sent; only the name at the end is decoded, and once.

Below `/mcp` and `/sse` each group has a path, and each profile: `/mcp/profile/<name>`.
"""

from __future__ import annotations

from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

# The prefix of a profile's name; a name without it is that of a group.
_PROFILE = b"profile/"


class ServedEndpoint(Enum):
    """The endpoint at a path."""

    MCP = auto()
    EVENTS = auto()
    MESSAGES = auto()
    HEALTH = auto()
    READY = auto()


class Route(Struct, frozen=True, gc=False):
    """The meaning of a path; `only` is the name of a single group, `profile` that of a profile."""

    place: ServedEndpoint
    only: str | None = None
    profile: str | None = None


class Paths:
    """Finds the route of a path. `path` is that of streamable HTTP, `root_path` the prefix that a reverse proxy adds.

    `profile` is for clients whose path names none.
    """

    def __init__(self, path: str, root_path: str, profile: str | None = None) -> None:
        self._root = root_path.rstrip("/").encode()
        self._profile = profile
        mcp = path.rstrip("/").encode()
        self._routes = {
            mcp: Route(ServedEndpoint.MCP, profile=profile),
            mcp + b"/": Route(ServedEndpoint.MCP, profile=profile),
            b"/sse": Route(ServedEndpoint.EVENTS, profile=profile),
            b"/messages": Route(ServedEndpoint.MESSAGES),
            b"/messages/": Route(ServedEndpoint.MESSAGES),
            b"/health": Route(ServedEndpoint.HEALTH),
            b"/ready": Route(ServedEndpoint.READY),
        }
        self._below = ((mcp + b"/", ServedEndpoint.MCP), (b"/sse/", ServedEndpoint.EVENTS))

    def find(self, path: bytes, root_path: str = "") -> Route | None:
        """Return the route of a path; None if there is none. The server's `root_path` takes precedence over ours."""
        route = self._routes.get(path)
        if route is not None:
            return route
        root = root_path.rstrip("/").encode() if root_path else self._root
        if root and path.startswith(root + b"/"):
            path = path[len(root) :]
        return self._routes.get(path) or self._find_below(path)

    def messages(self, root_path: str, session: str) -> bytes:
        """Return the URL to which a client of the older transport posts its messages."""
        root = quote(root_path.rstrip("/")).encode() if root_path else self._root
        return b"%s/messages?session_id=%s" % (root, session.encode())

    def _find_below(self, path: bytes) -> Route | None:
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
    """Return the decoded last part of a path; None if it has several parts or is not UTF-8."""
    try:
        name = unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return None
    return name if name and "/" not in name else None
