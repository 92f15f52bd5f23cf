"""Identifies users by an OpenID Connect provider or the reverse proxy in front of us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

import msgspec

from dynamic_mcp.config.section import Private
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.features.login_server.records import LoginUser
from dynamic_mcp.identity import Authentication

# The user's data is part of each token, which is a header of each request.
_MAX_BYTES = 6 << 10


class NotIdentified(Exception):
    """Raised if a user cannot be identified; the message is for the user."""


class IdentificationRequest(Private, frozen=True):
    """The URL to which a browser is redirected to log in, the `state` with which it returns, and data to store."""

    shown: ClassVar = ()
    url: str
    state: str
    kept: str


class LoginIdentityProvider(Protocol):
    """An external identity provider."""

    async def begin(self) -> IdentificationRequest:
        """Return the redirect for a browser. Raises NotIdentified."""
        ...

    async def finish(self, kept: str, parameters: Mapping[str, str]) -> LoginUser:
        """Return the user who has returned with these parameters. Raises NotIdentified."""
        ...

    async def close(self) -> None: ...


# Returns the user that a reverse proxy names in a request's head; None if it names none.
Identify = Callable[[RequestHead], Authentication | None]


def user_of(authentication: Authentication | None) -> LoginUser:
    """Return the user that a reverse proxy has named. Raises NotIdentified."""
    if authentication is None:
        raise NotIdentified("the reverse proxy in front of this server did not name a user")
    return check_size(LoginUser(authentication.principal.subject, authentication.roles, authentication.claims))


def check_size(user: LoginUser) -> LoginUser:
    """Return a user if their claims fit into a token. Raises NotIdentified.

    Claims are not dropped instead, since a missing group could be one that is denied something.
    """
    if len(msgspec.json.encode(user)) > _MAX_BYTES:
        raise NotIdentified(
            "your claims, such as groups, do not fit into a token: your administrator can have the identity provider"
            " send fewer"
        )
    return user
