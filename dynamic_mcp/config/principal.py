"""Who a client acts for. Below everything that keeps something for somebody: logins, groups, access rules."""

from __future__ import annotations

from msgspec import Struct


class Principal(Struct, frozen=True, cache_hash=True):
    """A person or program, as the issuer of its identity names it."""

    issuer: str
    subject: str


# Whoever starts the program by its standard input and output.
LOCAL = Principal(issuer="local", subject="user")
