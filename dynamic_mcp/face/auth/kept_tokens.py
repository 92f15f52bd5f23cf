"""Keeps the signed tokens that callers show, where a server exchanges them."""

from __future__ import annotations

from asyncio import Future
from functools import partial

from msgspec import Struct

from dynamic_mcp.config import auth
from dynamic_mcp.face.auth.provider import AuthResult, Provider
from dynamic_mcp.face.http.authenticator import Page
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication
from dynamic_mcp.oauth.caller_tokens import CallerTokens


class TokenKeeper(Struct, frozen=True):
    """The issuers whose tokens are exchanged, and where those of callers are kept."""

    issuers: frozenset[str]
    tokens: CallerTokens

    def watch(self, config: auth.Provider, provider: Provider) -> Provider:
        """Return a provider whose tokens are kept, if they are exchanged."""
        is_wanted = isinstance(config, auth.Jwt) and config.issuer in self.issuers
        return KeepingProvider(provider, self.tokens) if is_wanted else provider


class KeepingProvider(Provider):
    """A provider that also keeps each token that it accepts."""

    def __init__(self, provider: Provider, tokens: CallerTokens) -> None:
        self._provider = provider
        self._tokens = tokens

    @property
    def name(self) -> str:
        return self._provider.name

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        return self._provider.recognises(head, token)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        result = self._provider.authenticate(head, token)
        if isinstance(result, Future):
            result.add_done_callback(partial(self._keep_later, token))
        else:
            self._keep(token, result)
        return result

    def is_valid(self, authentication: Authentication) -> bool:
        return self._provider.is_valid(authentication)

    def find_page(self, method: str, path: bytes) -> Page | None:
        return self._provider.find_page(method, path)

    async def close(self) -> None:
        await self._provider.close()

    def _keep(self, token: str | None, result: AuthResult) -> None:
        if token is not None and isinstance(result, Authentication):
            self._tokens.record(result.principal, token)

    def _keep_later(self, token: str | None, result: Future[AuthResult]) -> None:
        if not result.cancelled() and result.exception() is None:
            self._keep(token, result.result())
