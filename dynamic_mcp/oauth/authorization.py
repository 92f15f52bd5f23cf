"""What a transport asks of whoever knows the credentials; this module imports nothing that costs."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Challenge(Struct, frozen=True):
    """A request that was answered with 401 or 403: `sent` is the Authorization header that it carried."""

    status: int
    www_authenticate: tuple[str, ...]
    sent: str | None


class Authorization(Protocol):
    """Credentials for one server, shared by all requests to it."""

    async def header(self) -> str | None:
        """Return the Authorization header to send now, refreshed if it is about to expire; None for none."""
        ...

    async def challenged(self, challenge: Challenge) -> bool:
        """Return whether the request is worth sending once more with a new header. Raises LoginNeeded."""
        ...
