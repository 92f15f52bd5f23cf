"""Who somebody is, as others say it: an OpenID Connect provider, or the reverse proxy in front of us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

import msgspec

from dynamic_mcp.config.section import Private
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.features.login_server.records import Person
from dynamic_mcp.identity import Authentication

# Everything about a person is part of each token, which is a header of each request.
_MAX_BYTES = 6 << 10


class NotIdentified(Exception):
    """Nobody says who this is; the message is for the person."""


class Question(Private, frozen=True):
    """Where to send a browser whose person is to log in, with which `state` it comes back, and what to keep."""

    shown: ClassVar = ()
    url: str
    state: str
    kept: str


class IdentityProvider(Protocol):
    """Somebody else, who makes people log in."""

    async def begin(self) -> Question:
        """Return where to send a browser. Raises NotIdentified."""
        ...

    async def finish(self, kept: str, parameters: Mapping[str, str]) -> Person:
        """Return who has come back with these parameters. Raises NotIdentified."""
        ...

    async def close(self) -> None:
        """End what it does in the background."""
        ...


# Says from a head who sent it, as the reverse proxy does that passed it on; None if there was no such proxy.
Identify = Callable[[RequestHead], Authentication | None]


def person_of(authentication: Authentication | None) -> Person:
    """Return the person that a reverse proxy has named. Raises NotIdentified."""
    if authentication is None:
        raise NotIdentified("the reverse proxy in front of this server did not say who you are")
    return check_size(Person(authentication.principal.subject, authentication.roles, authentication.claims))


def check_size(person: Person) -> Person:
    """Return a person about whom not too much is said. Raises NotIdentified.

    Nothing is left out instead: a group that is not known could be one that may not do something.
    """
    if len(msgspec.json.encode(person)) > _MAX_BYTES:
        raise NotIdentified(
            "more is said about you, such as groups, than fits into a token: your administrator can let the identity"
            " provider send less"
        )
    return person
