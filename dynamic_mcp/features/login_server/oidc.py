"""An OpenID Connect provider as the one who makes people log in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dynamic_mcp.config.auth import Oidc
from dynamic_mcp.features.login_server.addresses import CALLBACK, Addresses
from dynamic_mcp.features.login_server.identity import NotIdentified, Question, check_size
from dynamic_mcp.features.login_server.oidc_client import AuthenticationRequest, OidcClient, OidcError
from dynamic_mcp.features.login_server.records import Person
from dynamic_mcp.system.decoding import decode_as

# What a provider says of its token and of our client there is nothing about the person.
_NOT_ABOUT_PERSONS = frozenset({"iss", "aud", "azp", "picture", "profile", "website", "locale", "zoneinfo"})


class OidcIdentityProvider:
    """Asks an OpenID Connect provider, whose answers come to `/login/callback`."""

    def __init__(self, config: Oidc, at: Addresses) -> None:
        self._client = OidcClient(config, at.url(CALLBACK))

    async def begin(self) -> Question:
        """Return where to send a browser. Raises NotIdentified."""
        try:
            pending = await self._client.begin()
        except OidcError as exc:
            raise NotIdentified(str(exc)) from exc
        return Question(pending.url, pending.state, msgspec.json.encode(pending).decode())

    async def finish(self, kept: str, parameters: Mapping[str, str]) -> Person:
        """Return who has come back with these parameters. Raises NotIdentified."""
        try:
            identity = await self._client.finish(decode_as(kept, AuthenticationRequest), parameters)
        except OidcError as exc:
            raise NotIdentified(str(exc)) from exc
        claims = tuple(pair for pair in identity.claims if pair[0] not in _NOT_ABOUT_PERSONS)
        return check_size(Person(identity.subject, claims=claims))

    async def close(self) -> None:
        """End what it does in the background."""
        await self._client.close()
