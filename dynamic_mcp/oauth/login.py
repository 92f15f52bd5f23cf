"""One login in a browser: authorization code with PKCE, as RFC 8252 says for programs and MCP 2025-11-25 for servers.

Imports authlib and the MCP SDK: only when a login begins, in a thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.oauth.callback import Callback, Returned, returned
from dynamic_mcp.oauth.challenges import Demand
from dynamic_mcp.oauth.discovery import Discovery, Found, Stopped
from dynamic_mcp.oauth.reach import Reach
from dynamic_mcp.oauth.records import Client, Login, covers, union
from dynamic_mcp.oauth.registration import NoClient, client_for
from dynamic_mcp.oauth.tokens import Denied, Failed, Tokens
from dynamic_mcp.oauth.web import web
from dynamic_mcp.system.text import replace_unprintable

LOGIN_S = 300.0

__all__ = ["LOGIN_S", "Attempt", "NoClient", "Stopped", "begun"]


@dataclass(frozen=True)
class _Asked:
    """What the authorization server is asked for, and by whom."""

    found: Found
    client: Client
    redirect_uri: str
    scope: str | None
    state: str
    verifier: str

    def url(self) -> str:
        """Return where to send the person."""
        more = {"prompt": "consent"} if "offline_access" in (self.scope or "").split() else {}
        url: str = prepare_grant_uri(
            str(self.found.metadata.authorization_endpoint),
            client_id=self.client.id,
            response_type="code",
            redirect_uri=self.redirect_uri,
            scope=self.scope,
            state=self.state,
            code_challenge=create_s256_code_challenge(self.verifier),  # type: ignore[no-untyped-call]
            code_challenge_method="S256",
            resource=self.found.resource,
            **more,
        )
        return url


class Attempt:
    """A login under way: send a person to `url`, then await `finished`; `warnings` are for that person."""

    def __init__(self, remote: Remote, reach: Reach, asked: _Asked, callback: Callback) -> None:
        self.url = asked.url()
        self.warnings: list[str] = []
        self._remote = remote
        self._reach = reach
        self._asked = asked
        self._found = asked.found
        self._callback = callback
        self._pasted: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()

    def is_assumed(self) -> bool:
        """Tell whether the server says nowhere that it wants logins."""
        return self._found.assumed

    def paste(self, text: str) -> None:
        """Take the address that the browser ended up at, from a person. Raises NotOurs."""
        found = returned(text.strip().partition("?")[2].partition("#")[0], self._asked.state)
        if not self._pasted.done():
            self._pasted.set_result(found)

    async def finished(self, within_s: float = LOGIN_S) -> Login:
        """Wait for the person, five minutes at most, and return the login. Raises Stopped."""
        came = asyncio.create_task(self._callback.answer())
        try:
            ways = {came, self._pasted}
            done, _ = await asyncio.wait(ways, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise Stopped(f"nobody logged in within {within_s / 60:.2g} minutes")
            return await self._exchanged(done.pop().result())
        finally:
            came.cancel()

    async def _exchanged(self, answer: Returned) -> Login:
        self._check_issuer(answer)
        if answer.error is not None or answer.code is None:
            raise Stopped(f"`{self._found.issuer}` refused: `{_word(answer.error)}`")
        login = Login(
            self._remote.url,
            self._found.issuer,
            self._found.endpoint("token_endpoint"),
            self._found.endpoint("revocation_endpoint"),
            self._found.resource,
            self._asked.client,
        )
        tokens = Tokens(self._reach, login, self._remote.oauth)
        try:
            token = await tokens.exchange(answer.code, self._asked.verifier, self._asked.redirect_uri)
        except (Denied, Failed) as exc:
            raise Stopped(f"`{login.token_endpoint}` {exc}") from exc
        scope = self._asked.scope
        if scope is not None and not covers(scope, token.scope):
            more = " ".join(sorted(set((token.scope or "").split()) - set(scope.split())))
            self.warnings.append(f"the server granted more than was asked for: {_word(more)}")
        return replace(login, token=replace(token, scope=token.scope or scope))

    def _check_issuer(self, answer: Returned) -> None:
        """Compare the issuer as RFC 9207 says; what else a wrong one says is not shown."""
        if answer.iss is None:
            if self._found.metadata.authorization_response_iss_parameter_supported:
                raise Stopped("the answer does not say which authorization server it is from, though it should")
        elif answer.iss != self._found.issuer:
            raise Stopped("the answer is from another authorization server than the one that was asked")


@asynccontextmanager
async def begun(remote: Remote, reach: Reach, demand: Demand, known: Login | None) -> AsyncIterator[Attempt]:
    """Find out how to log in, become a client, listen for the browser, and give the attempt. Raises Stopped."""
    state = secrets.token_urlsafe(32)
    async with web(reach) as client:
        found = await Discovery(client, reach, remote).run(demand)
        async with await _listening(remote, found, known, state) as callback:
            who = await client_for(found, remote.oauth, known, callback.redirect_uri, client)
            scope = union(found.scope, known.wanted_scope if known else None)
            asked = _Asked(found, who, callback.redirect_uri, scope, state, generate_token(64))
            yield Attempt(remote, reach, asked, callback)


async def _listening(remote: Remote, found: Found, known: Login | None, state: str) -> Callback:
    """Return a listener that is not entered yet, on the config's port, else the one that our client is known with."""
    port = remote.oauth.redirect_port
    if port is None and known is not None and known.issuer == found.issuer and known.client is not None:
        port = urlsplit(known.client.redirect_uri or "").port
        if port is not None and not await _is_free(port):
            port = None  # then another client is registered
    elif port is not None and not await _is_free(port):
        raise Stopped(f"the port {port} of `oauth.redirect_port` is in use by another program")
    return Callback(port, state)


async def _is_free(port: int) -> bool:
    try:
        async with Callback(port, ""):
            return True
    except OSError:
        return False


def _word(text: str | None) -> str:
    """Return the server's words as far as they can be shown."""
    return replace_unprintable((text or "")[:100]).replace("`", "\ufffd")
