"""The stored parts of a login. `repr` shows no secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dynamic_mcp.identity import Principal

# A token is renewed this long before it expires, or at half its lifetime if that comes later.
EARLY_S = 300.0


@dataclass(frozen=True)
class ClientCredentials:
    """Our client at an authorization server. The secret of a client from the config stays in the config."""

    id: str
    source: Literal["config", "document", "registered"]
    auth_method: str = "none"
    secret: str | None = field(default=None, repr=False)
    redirect_uri: str | None = None


@dataclass(frozen=True)
class Token:
    """An access token and the other members of its response; times are seconds since 1970."""

    access: str = field(repr=False)
    obtained_at: float
    expires_at: float | None = None
    refresh: str | None = field(default=None, repr=False)
    scope: str | None = None

    @property
    def header(self) -> str:
        """The `Authorization` header that shows it."""
        return f"Bearer {self.access}"

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def is_due(self, now: float) -> bool:
        """Return whether it is time to renew the token."""
        if self.expires_at is None:
            return False
        return now >= self.expires_at - min(EARLY_S, (self.expires_at - self.obtained_at) / 2)


@dataclass(frozen=True)
class Login:
    """The login to one server.

    A login without an issuer has a token that was pasted, or imported from another program. `requested_scope` is the
    scope that was requested at the login, and `wanted_scope` the one that the server has asked for since. A login
    without a `person` belongs to the local user.
    """

    server: str
    issuer: str | None = None
    token_endpoint: str | None = None
    revocation_endpoint: str | None = None
    resource: str | None = None
    client: ClientCredentials | None = None
    token: Token | None = None
    wanted_scope: str | None = None
    requested_scope: str | None = None
    is_in_keyring: bool = False
    person: Principal | None = None


def union(*scopes: str | None) -> str | None:
    """Return the scopes of all lists, without duplicates and in order."""
    words = dict.fromkeys(word for scope in scopes for word in (scope or "").split())
    return " ".join(words) or None


def covers(granted: str | None, wanted: str | None) -> bool:
    """Return whether all wanted scopes are granted."""
    return set((wanted or "").split()) <= set((granted or "").split())
