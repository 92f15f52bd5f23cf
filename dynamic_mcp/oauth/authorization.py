"""The interface between a transport and the credentials of its server. This module is cheap to import."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Challenge(Struct, frozen=True):
    """A response with status 401 or 403; `authorization` is the header that the request carried."""

    status: int
    www_authenticate: tuple[str, ...]
    authorization: str | None


class ServerCredentials(Protocol):
    """Credentials for one server, shared by all requests to it."""

    async def get_header(self) -> str | None:
        """Return the Authorization header to send, or None; a token that is about to expire is renewed."""
        ...

    async def handle_challenge(self, challenge: Challenge) -> bool:
        """Get a new header if possible; return whether to send the request again. Raises LoginNeeded."""
        ...
