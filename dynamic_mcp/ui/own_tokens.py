"""The tokens that people make for themselves on the page, and operators for anybody.

A token of a person never is worth more than what the person has come with: it has their name, no other roles than
those of their own token, and it ends with the last of their tokens. Roles that the config gives to their name come
with the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.issuers import TOKEN
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.face.auth.shared_tokens import SharedTokenStore
from dynamic_mcp.face.auth.token_store import StoredToken, TokenStore, check_owner, parse_lifetime, token_store
from dynamic_mcp.ui.section import UiContext, Visit

_LONGEST_OWN_S = 90 * 24 * 3600.0


class OwnTokens:
    """The tokens of the config, as far as a person may see and change them."""

    def __init__(self, context: UiContext) -> None:
        self._context = context

    @property
    def are_accepted(self) -> bool:
        """Return whether the config accepts tokens that were made."""
        of_config = () if self._context.config.http is None else self._context.config.http.auth
        return any(isinstance(each, BearerAuth) for each in (*self._context.http.auth, *of_config))

    def may_make(self, visit: Visit) -> bool:
        """Return whether this person gets tokens here: who is named by others than our tokens has no name there."""
        return visit.is_operator or visit.authentication.principal.issuer == TOKEN

    def roles_for(self, visit: Visit) -> tuple[str, ...]:
        """Return the roles that this person may give a token."""
        if not visit.is_operator:
            return visit.authentication.roles
        access = self._context.config.access
        return () if access is None else tuple(access.roles)

    async def load(self, visit: Visit) -> Sequence[StoredToken]:
        """Return the tokens that this person may see, the newest first. Raises DynamicMcpError."""
        tokens = [each for each in await self._load() if self._is_for(visit, each)]
        return sorted(tokens, key=lambda token: -token.created_at)

    async def create(self, visit: Visit, subject: str, roles: Sequence[str], expires: str) -> tuple[str, StoredToken]:
        """Make a token; return it and what is kept of it. Raises DynamicMcpError."""
        if not self.may_make(visit):
            raise DynamicMcpError("only people who come with a token can make others", hint="ask an operator for one")
        try:
            owner = check_owner(subject if visit.is_operator else visit.authentication.principal.subject)
            lifetime_s = parse_lifetime(expires)
        except FlawError as exc:
            raise InvalidArguments(f"that {exc}", hint=exc.hint) from exc
        unknown = [each for each in roles if each not in self.roles_for(visit)]
        if unknown:
            raise InvalidArguments(f"you cannot give the role `{unknown[0]}`", hint="reload the page")
        if not visit.is_operator:
            lifetime_s = await self._limit(visit, lifetime_s)
        shared = self._shared
        if shared is not None:
            return await shared.create(owner, tuple(roles), lifetime_s=lifetime_s, now=visit.now)
        return await asyncio.to_thread(self._file.create, owner, tuple(roles), lifetime_s=lifetime_s, now=visit.now)

    async def revoke(self, visit: Visit, id: str) -> StoredToken:
        """Revoke a token that this person may see. Raises NotFound and DynamicMcpError."""
        found = next((each for each in await self.load(visit) if each.id == id), None)
        if found is None:
            raise NotFound("token", id, ())
        if (shared := self._shared) is not None:
            return await shared.revoke(found.id, now=visit.now)
        return await asyncio.to_thread(self._file.revoke, found.id)

    async def _limit(self, visit: Visit, lifetime_s: float | None) -> float:
        """Return a lifetime that does not go beyond that of the tokens which the person has already."""
        ends = [each.expires_at for each in await self.load(visit) if not each.has_expired(visit.now)]
        limits = [_LONGEST_OWN_S] if lifetime_s is None else [_LONGEST_OWN_S, lifetime_s]
        if ends and None not in ends:
            limits.append(max(each for each in ends if each is not None) - visit.now)
        return max(min(limits), 1.0)

    async def _load(self) -> Sequence[StoredToken]:
        shared = self._shared
        return await asyncio.to_thread(self._file.load) if shared is None else await shared.load()

    def _is_for(self, visit: Visit, token: StoredToken) -> bool:
        return visit.is_operator or visit.owns(TOKEN, token.subject)

    @property
    def _file(self) -> TokenStore:
        return token_store(self._context.config.file)

    @property
    def _shared(self) -> SharedTokenStore | None:
        store = self._context.proxy.shared_store
        return None if store is None else SharedTokenStore(store)
