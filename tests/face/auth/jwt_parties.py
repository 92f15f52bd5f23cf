"""What the tests of signed tokens share."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from typing import Any

from dynamic_mcp.config.auth import Jwt
from dynamic_mcp.face.auth.jwt import Audiences, JwtProvider
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import Authentication
from dynamic_mcp.web.jwks import FETCH_S, KeyDirectory
from tests.oidc_provider import OidcProvider
from tests.program import BOUND_S

PUBLIC_URL = "https://mcp.example.com/mcp"


class Clock:
    """A time that passes only when a test says so. It starts with the true one."""

    def __init__(self) -> None:
        self.seconds = time.time()

    def __call__(self) -> float:
        return self.seconds

    def pass_s(self, seconds: float) -> None:
        self.seconds += seconds


class Door:
    """A provider of `jwt`, as a chain uses it."""

    def __init__(self, issuer: OidcProvider, *, fetch_s: float = FETCH_S, **config: Any) -> None:  # Any: of Jwt
        self.clock = Clock()
        jwt = Jwt(**{"issuer": issuer.issuer, **config})
        audiences = Audiences(jwt.audience, PUBLIC_URL, ("/mcp", "/tools/mcp"))
        keys = KeyDirectory(jwt.issuer, jwt.jwks_url, now=self.clock, fetch_s=fetch_s)
        self.provider = JwtProvider(jwt, audiences, keys=keys, now=self.clock)

    def begin(self, token: str, path: str = "/mcp") -> AuthResult | Future[AuthResult]:
        """Show a token that is recognised."""
        head = head_of(token, path)
        assert self.provider.recognises(head, token)
        return self.provider.authenticate(head, token)

    async def show(self, token: str, path: str = "/mcp") -> AuthResult:
        """Show a token, and wait until it is known what it is worth."""
        found = self.begin(token, path)
        async with asyncio.timeout(BOUND_S):
            return await found if isinstance(found, Future) else found

    async def admit(self, token: str, path: str = "/mcp") -> Authentication:
        """Show a token that is good."""
        found = await self.show(token, path)
        assert isinstance(found, Authentication), found
        return found

    async def refuse(self, token: str, path: str = "/mcp") -> str:
        """Show a token that is not, and return why."""
        found = await self.show(token, path)
        assert isinstance(found, CredentialDenial), found
        assert found.error == "invalid_token"
        return found.why


def head_of(token: str, path: str = "/mcp") -> RequestHead:
    """Return the head of a request with a token."""
    return RequestHead("POST", path.encode(), {b"authorization": f"Bearer {token}".encode()})
