"""What is kept of a login while it happens, and of one that has happened."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dynamic_mcp.config.section import Private
from dynamic_mcp.features.login_server.clients import OAuthClient

Claims = tuple[tuple[str, tuple[str, ...]], ...]


class Person(Struct, frozen=True):
    """Who has logged in, as the identity provider or the reverse proxy has said it."""

    subject: str
    roles: tuple[str, ...] = ()
    claims: Claims = ()


class AuthorizationRequest(Struct, frozen=True):
    """What a client asks for. `parts` are those of the server that it wants, as `Addresses.find_part` has them."""

    client: OAuthClient
    redirect_uri: str
    challenge: str
    state: str | None = None
    scopes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("",)


class PendingIdentification(Private, frozen=True):
    """A request whose person has to be found out; `kept` is what the identity provider's client wants back."""

    shown: ClassVar = ("request",)
    request: AuthorizationRequest
    browser: str
    kept: str


class PendingConsent(Struct, frozen=True):
    """A request that waits for the person's decision. `browser` and `csrf` are hashes."""

    request: AuthorizationRequest
    browser: str
    csrf: str
    person: Person


class Grant(Struct, frozen=True):
    """What a person has granted a client."""

    client_id: str
    may_refresh: bool
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    parts: tuple[str, ...]
    person: Person
