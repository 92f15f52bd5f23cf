"""Identities of clients, and the basis of their rights."""

from __future__ import annotations

from msgspec import Struct


class Principal(Struct, frozen=True, cache_hash=True):
    """A user or program, as the issuer of its identity names it."""

    issuer: str
    subject: str


# The user who runs the program over standard input and output.
LOCAL = Principal(issuer="local", subject="user")


class Authentication(Struct, frozen=True):
    """An authenticated identity: the principal, and the credential's facts that its rights follow from.

    `provider` is the kind of credential; `roles` are those that the credential itself gives. `claims` are pairs of a
    claim's name and its texts. `scopes` None is a credential without the concept of scopes, which lacks none.
    """

    principal: Principal
    provider: str
    roles: tuple[str, ...] = ()
    claims: tuple[tuple[str, tuple[str, ...]], ...] = ()
    scopes: frozenset[str] | None = None

    @property
    def is_local(self) -> bool:
        """Return whether this is the local user, who needs no credential."""
        return self.principal == LOCAL

    def claim(self, name: str) -> tuple[str, ...]:
        """Return the texts of a claim; empty if it is missing."""
        return next((texts for claim, texts in self.claims if claim == name), ())


LOCAL_USER = Authentication(LOCAL, "local")
