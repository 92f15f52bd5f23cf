"""One way to authenticate clients. The first provider that recognises a credential accepts or refuses it."""

from __future__ import annotations

from asyncio import Future
from typing import Literal, Protocol

from msgspec import Struct

from dynamic_mcp.face.http.authenticator import Page
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication


class CredentialDenial(Struct, frozen=True):
    """The reason why a credential is refused, as in RFC 6750, section 3.1; `why` never repeats any part of it.

    Status codes: `invalid_token` 401, `insufficient_scope` (with the `scopes`) 403, `invalid_request` 400, and
    `temporarily_unavailable` 503 if the credential could not be checked.
    """

    error: Literal["invalid_token", "insufficient_scope", "invalid_request", "temporarily_unavailable"]
    why: str
    scopes: tuple[str, ...] = ()


AuthResult = Authentication | CredentialDenial


class Provider(Protocol):
    """One entry of `settings.http.auth`. Subclasses override `find_page` and `close` if they need them."""

    @property
    def name(self) -> str:
        """The kind of the provider, for records of refused credentials."""
        ...

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Return whether the credential is for this provider, valid or not; `token` is the bearer token."""
        ...

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        """Return who sent a request with a recognised credential; a future if that has to be requested."""
        ...

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether an authentication by this provider is still valid: neither revoked nor expired."""
        ...

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return the page at one of the provider's own paths, such as `/authorize`."""
        return None

    async def close(self) -> None:
        """Stop background work."""
        return
