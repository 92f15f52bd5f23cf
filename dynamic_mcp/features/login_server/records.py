"""The stored records of logins in progress and of granted access."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dynamic_mcp.config.section import Private
from dynamic_mcp.features.login_server.clients import OAuthClient

Claims = tuple[tuple[str, tuple[str, ...]], ...]


class LoginUser(Struct, frozen=True):
    """A user as the identity provider or the reverse proxy describes them."""

    subject: str
    roles: tuple[str, ...] = ()
    claims: Claims = ()


class AuthorizationRequest(Struct, frozen=True):
    """The request of a client. `parts` are the parts of the server, as in `Addresses.find_part`."""

    client: OAuthClient
    redirect_uri: str
    challenge: str
    state: str | None = None
    scopes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("",)


class PendingIdentification(Private, frozen=True):
    """A request whose user is not identified yet; `kept` is the data for the identity provider."""

    shown: ClassVar = ("request",)
    request: AuthorizationRequest
    browser: str
    kept: str


class PendingConsent(Struct, frozen=True):
    """A request that waits for the user's decision. `browser` and `csrf` are hashes."""

    request: AuthorizationRequest
    browser: str
    csrf: str
    user: LoginUser


class AccessGrant(Struct, frozen=True):
    """The access that a user has granted a client."""

    client_id: str
    may_refresh: bool
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    parts: tuple[str, ...]
    user: LoginUser
