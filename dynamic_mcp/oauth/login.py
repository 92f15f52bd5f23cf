"""One login in a browser: the authorization code grant with PKCE (RFC 8252; MCP 2025-11-25, authorization).

Imports authlib and the MCP SDK: import this only when a login begins, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.callback import Callback
from dynamic_mcp.oauth.challenges import BearerChallenge
from dynamic_mcp.oauth.credentials import ClientCredentials, Login, covers, union
from dynamic_mcp.oauth.discovery import Discovery, DiscoveryResult, LoginAborted, NoLogin
from dynamic_mcp.oauth.registration import NoClient, obtain_client
from dynamic_mcp.oauth.tokens import TokenEndpoint
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.authorization_response import (
    AuthorizationResponse,
    UnexpectedResponse,
    check_issuer,
    parse_response,
)
from dynamic_mcp.web.documents import Documents, open_documents
from dynamic_mcp.web.endpoints import TokenDenied, TokenRequestFailed, authorization_url, create_secret
from dynamic_mcp.web.metadata import printable

LOGIN_S = 300.0

__all__ = ["LOGIN_S", "Attempt", "LoginAborted", "NoClient", "NoLogin", "Redirect", "begin_login"]


class Redirect(Protocol):
    """The redirect URI of one login; enter it as a context while a task waits for the browser to return there."""

    state: str
    """The `state` with which the browser returns."""

    @property
    def redirect_uri(self) -> str:
        """The address, known once it is entered."""
        ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def wait_for_response(self) -> AuthorizationResponse: ...


@dataclass(frozen=True)
class _AuthorizationRequest:
    """The parameters of an authorization request (RFC 6749, section 4.1.1)."""

    target: DiscoveryResult
    client: ClientCredentials
    redirect_uri: str
    scope: str | None
    state: str
    verifier: str

    def url(self) -> str:
        wants_refresh = "offline_access" in (self.scope or "").split()
        return authorization_url(
            str(self.target.metadata.authorization_endpoint),
            self.client.id,
            self.verifier,
            redirect_uri=self.redirect_uri,
            scope=self.scope,
            state=self.state,
            resource=self.target.resource,
            prompt="consent" if wants_refresh else None,
        )


class Attempt:
    """A login in progress: send the user to `url`, then await `finish`; `warnings` are for the user, too."""

    def __init__(self, remote: Remote, web: Documents, request: _AuthorizationRequest, redirect: Redirect) -> None:
        self.url = request.url()
        self.warnings: list[str] = []
        self._remote = remote
        self._web = web
        self._request = request
        self._target = request.target
        self._redirect = redirect
        self._pasted_response: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()

    def is_assumed(self) -> bool:
        """Return whether no metadata confirms that the server wants logins."""
        return self._target.is_assumed

    def paste(self, text: str) -> None:
        """Receive the address that the user has copied from the browser. Raises UnexpectedResponse."""
        response = parse_response(text.strip().partition("?")[2].partition("#")[0], self._request.state)
        if not self._pasted_response.done():
            self._pasted_response.set_result(response)

    async def finish(self, within_s: float = LOGIN_S) -> Login:
        """Wait for the user, five minutes at most, and return the login. Raises LoginAborted."""
        browser = asyncio.create_task(self._redirect.wait_for_response())
        try:
            sources = {browser, self._pasted_response}
            done, _ = await asyncio.wait(sources, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise LoginAborted(f"the login was not completed within {within_s / 60:.2g} minutes")
            return await self._exchange(done.pop().result())
        finally:
            browser.cancel()

    async def _exchange(self, response: AuthorizationResponse) -> Login:
        is_promised = bool(self._target.metadata.authorization_response_iss_parameter_supported)
        try:
            check_issuer(response, self._target.issuer, is_promised=is_promised)
        except UnexpectedResponse as exc:
            raise LoginAborted(f"the answer is not accepted: {exc}") from None
        if response.error is not None or response.code is None:
            raise LoginAborted(f"`{self._target.issuer}` refused: `{printable(response.error or '')}`")
        login = Login(
            self._remote.url,
            self._target.issuer,
            self._target.endpoint("token_endpoint"),
            self._target.endpoint("revocation_endpoint"),
            self._target.resource,
            self._request.client,
        )
        endpoint = TokenEndpoint(self._web, login, self._remote.oauth)
        try:
            token = await endpoint.exchange(response.code, self._request.verifier, self._request.redirect_uri)
        except (TokenDenied, TokenRequestFailed) as exc:
            raise LoginAborted(f"`{login.token_endpoint}` {exc}") from exc
        scope = self._request.scope
        if scope is not None and not covers(scope, token.scope):
            more = " ".join(sorted(set((token.scope or "").split()) - set(scope.split())))
            self.warnings.append(f"the server granted more than was asked for: {printable(more)}")
        return replace(login, token=replace(token, scope=token.scope or scope), requested_scope=scope)


@asynccontextmanager
async def begin_login(
    remote: Remote,
    policy: AddressPolicy,
    challenge: BearerChallenge,
    previous: Login | None,
    open_redirect: Callable[[], Redirect] | None = None,
) -> AsyncIterator[Attempt]:
    """Discover how to log in, obtain a client, wait for the browser, and yield the attempt. Raises LoginAborted.

    `open_redirect` returns the redirect URI; the default is a port of this machine.
    """
    async with open_documents(policy) as web:
        target = await Discovery(web, policy, remote).run(challenge)
        redirect = open_redirect() if open_redirect else await _create_callback(remote, target, previous)
        async with redirect:
            client = await obtain_client(target, remote.oauth, previous, redirect.redirect_uri, web)
            scope = union(target.scope, previous.wanted_scope if previous else None)
            uri, state = redirect.redirect_uri, redirect.state
            request = _AuthorizationRequest(target, client, uri, scope, state, create_secret())
            yield Attempt(remote, web, request, redirect)


async def _create_callback(remote: Remote, target: DiscoveryResult, previous: Login | None) -> Callback:
    """Return a callback, not listening yet, on the config's port, else on the port of our registered client."""
    port = remote.oauth.redirect_port
    if port is None and previous is not None and previous.issuer == target.issuer and previous.client is not None:
        port = urlsplit(previous.client.redirect_uri or "").port
        if port is not None and not await _try_port(port):
            port = None  # then another client is registered
    elif port is not None and not await _try_port(port):
        raise LoginAborted(f"the port {port} of `oauth.redirect_port` is in use by another program")
    return Callback(port, create_secret())


async def _try_port(port: int) -> bool:
    """Listen on a port for a moment; return whether that worked."""
    try:
        async with Callback(port, ""):
            return True
    except OSError:
        return False
