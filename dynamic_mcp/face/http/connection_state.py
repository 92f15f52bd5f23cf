"""Where a connection of our server is between one request and the next."""

from __future__ import annotations

from enum import Enum, auto


class ConnectionState(Enum):
    """What comes next on a connection."""

    HEAD = auto()
    """A request, or the rest of its head."""
    BODY = auto()
    """The rest of a body."""
    ANSWER = auto()
    """The answer: the request is complete."""
    LINGERING = auto()
    """Nothing more; what comes is read and forgotten."""
    CLOSING = auto()
    """The end, once everything is written."""
