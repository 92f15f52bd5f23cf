"""One way to find out who a client is. The first of them that recognises a credential decides, for good or bad."""

from __future__ import annotations

from asyncio import Future
from typing import Literal, Protocol

from msgspec import Struct

from dynamic_mcp.face.http.authenticator import Page
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication


class Denial(Struct, frozen=True):
    """Why a credential is refused, in the words of RFC 6750, section 3.1; `why` never repeats any of it.

    `invalid_token` is answered 401, `insufficient_scope` 403 with the `scopes`, `invalid_request` 400.
    `temporarily_unavailable` is answered 503: it could not be found out what the credential is worth.
    """

    error: Literal["invalid_token", "insufficient_scope", "invalid_request", "temporarily_unavailable"]
    why: str
    scopes: tuple[str, ...] = ()


class Provider(Protocol):
    """One entry of `settings.http.auth`; `name` is its kind."""

    @property
    def name(self) -> str:
        """What it is called in records of refused credentials."""
        ...

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Tell whether this is a credential of this provider, whatever it is worth; `token` is the bearer token."""
        ...

    def authenticate(
        self, head: RequestHead, token: str | None
    ) -> Authentication | Denial | Future[Authentication | Denial]:
        """Tell who sent a request whose credential is recognised; a future where that takes a question."""
        ...

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether what this provider has once returned still counts: not revoked, nor expired."""
        ...

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return what answers a path of its own, such as `/authorize`; None if nothing."""
        ...

    async def close(self) -> None:
        """End what it does in the background."""
        ...
