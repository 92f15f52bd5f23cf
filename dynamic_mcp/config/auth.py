"""How HTTP clients say who they are, as the program uses it: `settings.http.auth` with its variables filled in."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from dynamic_mcp.config.private import Private


class NamedToken(Private, frozen=True):
    """A token of the config, and who it belongs to."""

    shown: ClassVar = ("subject", "roles")
    token: str
    subject: str
    roles: tuple[str, ...] = ()


class Bearer(Struct, frozen=True):
    """Tokens that commands have made, and those of the config."""

    tokens: tuple[NamedToken, ...] = ()


class Jwt(Struct, frozen=True):
    """Signed tokens of an authorization server. Claims are named; `scopes_claim` None is `scope` or `scp`."""

    issuer: str
    audience: tuple[str, ...] = ()
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    subject_claim: str = "sub"
    roles_claim: str | None = None
    scopes_claim: str | None = None
    required_scopes: tuple[str, ...] = ()
    leeway_s: float = 60.0


class Forwarded(Struct, frozen=True):
    """Names that a reverse proxy puts into headers. Header names are lower case; `trusted` are addresses, networks,
    and `unix`."""

    trusted: tuple[str, ...]
    user: bytes = b"x-forwarded-user"
    groups: bytes = b"x-forwarded-groups"


class Oidc(Private, frozen=True):
    """An OpenID Connect provider, and our client there. `subject_claim` None is a verified email, else `sub`."""

    shown: ClassVar = ("issuer", "client_id", "scopes")
    issuer: str
    client_id: str
    client_secret: str | None = None
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    subject_claim: str | None = None


class Login(Struct, frozen=True):
    """Our own authorization server; `oidc` None is that `Forwarded` tells who somebody is.

    `scopes` are those that the access rules ask for. `has_local_documents` tells that a server on this machine
    fetches the documents of clients from there too.
    """

    oidc: Oidc | None = None
    scopes: tuple[str, ...] = ()
    access_ttl_s: float = 3600.0
    refresh_ttl_s: float = 30 * 24 * 3600.0
    has_local_documents: bool = False


Provider = Bearer | Jwt | Forwarded | Login
