"""Links by which a user logs in to a server with any browser, and the rules for which browser may use a link.

A link is valid for ten minutes and one login. The first browser that begins keeps it: only that browser, which holds
a secret for this link, may bring the code back. So an attacker cannot make a user log in for the attacker by sending
the user to the authorization server in the middle of a login.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.pending import PendingLogin, start_login
from dynamic_mcp.web.authorization_response import AuthorizationResponse, UnexpectedResponse, parse_response

if TYPE_CHECKING:
    from dynamic_mcp.oauth.bearer import BearerCredentials

# Paths below the URL of the server: pages of links, and the redirect URI of authorization servers.
LINK_PATH = "/upstream-login/"
CALLBACK_PATH = "/upstream-login/callback"
VALID_S = 600.0
# An unopened link is sent again while it is valid for at least this long.
_REUSE_S = 300.0
_MAX_EACH = 4


class LinkRedirect:
    """The redirect URI of one login by a link: an address of our HTTP server, which passes on the response."""

    def __init__(self, redirect_uri: str, state: str, on_close: Callable[[], object]) -> None:
        self.redirect_uri = redirect_uri
        self.state = state
        self._on_close = on_close
        self._response: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> LinkRedirect:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.cancel()
        self._on_close()

    @property
    def has_response(self) -> bool:
        return self._response.done() and not self._response.cancelled()

    def receive(self, query: str) -> None:
        """Receive the response that a browser brings back. Raises UnexpectedResponse."""
        response = parse_response(query, self.state)
        if self._response.done():
            raise UnexpectedResponse("this login has ended")
        self._response.set_result(response)

    async def wait_for_response(self) -> AuthorizationResponse:
        return await self._response


class LoginLink:
    """A link for one user to log in to one server."""

    def __init__(self, id: str, url: str, bearer: BearerCredentials, person: Principal, expires_at: float) -> None:
        self.id = id
        self.url = url
        self.bearer = bearer
        self.person = person
        self.expires_at = expires_at
        self.redirect: LinkRedirect | None = None
        self.attempt: PendingLogin | None = None
        self.end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._browser = ""

    @property
    def group(self) -> str:
        return self.bearer.group

    def is_for(self, bearer: BearerCredentials) -> bool:
        """Return whether this link logs in to these credentials, also after their user was away."""
        return (self.bearer.group, self.bearer.remote) == (bearer.group, bearer.remote)

    @property
    def is_unopened(self) -> bool:
        """True until a browser begins a login with it."""
        return not self._browser

    @property
    def is_finishing(self) -> bool:
        """True while a code is exchanged for a token."""
        is_back = self.redirect is not None and self.redirect.has_response
        return is_back and self.attempt is not None and not self.attempt.end.done()

    def claim(self, browser: str) -> bool:
        """Reserve the link for the browser with this secret; return whether that browser may use it."""
        digest = sha256(browser.encode()).hexdigest()
        self._browser = self._browser or digest
        return hmac.compare_digest(self._browser, digest)

    def belongs_to(self, browser: str) -> bool:
        """Return whether this browser has begun a login with the link."""
        return bool(self._browser) and self.claim(browser)

    async def wait_for_url(self) -> str | None:
        """Return the link itself."""
        return self.url

    async def wait_for_end(self) -> bool:
        """Wait until the link is used up; return whether its user has logged in."""
        return await asyncio.shield(self.end)


class LoginLinks:
    """The valid links that were sent. `base_url` returns the address where browsers reach us, or None.

    `mark` returns what the ids of links and the states of logins begin with, by which other replicas know whose they
    are.
    """

    def __init__(
        self,
        base_url: Callable[[], str | None],
        now: Callable[[], float] = time.monotonic,
        *,
        mark: Callable[[], str] = str,
    ) -> None:
        self._base_url = base_url
        self._mark = mark
        self._now = now
        self._links: dict[str, LoginLink] = {}
        self._by_state: dict[str, LoginLink] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._links)

    def send(self, bearer: BearerCredentials, person: Principal) -> LoginLink | None:
        """Return a link for a user: an unopened one or a new one; None if logins by link are not possible."""
        base_url = self._base_url()
        if base_url is None:
            return None
        self.drop_expired()
        links = [each for each in self._links.values() if each.is_for(bearer)]
        for link in links:
            if link.is_unopened and link.expires_at - self._now() >= _REUSE_S:
                return link
        for link in links[: max(0, len(links) - _MAX_EACH + 1)]:
            self._drop(link)
        id = f"{self._mark()}{secrets.token_urlsafe(32)}"
        link = LoginLink(id, f"{base_url}{LINK_PATH}{id}", bearer, person, self._now() + VALID_S)
        self._links[id] = link
        if self._expiry is None:
            self._expire_later()
        return link

    def find(self, id: str) -> LoginLink | None:
        self.drop_expired()
        return self._links.get(id)

    async def begin(self, link: LoginLink) -> str | None:
        """Begin a login, or restart one whose browser did not come back; return the URL to send the browser to.

        Returns None if the login cannot begin; the `last_failure` of the credentials has the reason. Raises
        UnexpectedResponse.
        """
        if link.is_finishing:
            raise UnexpectedResponse("this login is being finished")
        if link.attempt is not None:
            link.attempt.end.cancel()
        attempt = link.attempt = start_login(link.bearer, partial(self._open_redirect, link))
        return await attempt.wait_for_url()

    def find_returning(self, query: str) -> LoginLink:
        """Return the link of the login that a browser returns from. Raises UnexpectedResponse."""
        try:
            states = [value for name, value in parse_qsl(query, max_num_fields=50) if name == "state"]
        except ValueError:
            raise UnexpectedResponse("this is not an answer to a login") from None
        link = self._by_state.get(states[0]) if len(states) == 1 else None
        if link is None:
            raise UnexpectedResponse("it does not belong to a login in progress: its `state` is missing or unknown")
        return link

    async def finish(self, link: LoginLink, query: str) -> bool:
        """Receive the response of the authorization server; return whether the login worked.

        Raises UnexpectedResponse.
        """
        assert link.redirect is not None
        assert link.attempt is not None
        link.redirect.receive(query)
        is_done = await link.attempt.wait_for_end()
        if is_done:
            self._drop(link, is_done=True)
        return is_done

    def drop_expired(self) -> None:
        """Forget the links that have expired, but not in the middle of an exchange."""
        for link in [*self._links.values()]:
            if link.expires_at <= self._now() and not link.is_finishing:
                self._drop(link)

    def close(self) -> None:
        """Forget all links, and end their logins."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for link in [*self._links.values()]:
            self._drop(link)

    def _open_redirect(self, link: LoginLink) -> LinkRedirect:
        state = f"{self._mark()}{secrets.token_urlsafe(32)}"
        self._by_state[state] = link
        redirect_uri = f"{self._base_url() or ''}{CALLBACK_PATH}"
        link.redirect = LinkRedirect(redirect_uri, state, lambda: self._by_state.pop(state, None))
        return link.redirect

    def _drop(self, link: LoginLink, *, is_done: bool = False) -> None:
        self._links.pop(link.id, None)
        if link.attempt is not None:
            link.attempt.end.cancel()
        if not link.end.done():
            link.end.set_result(is_done)

    def _expire_later(self) -> None:
        """Drop expired links periodically, as long as there are links."""
        self.drop_expired()
        delay_s = VALID_S / 10
        self._expiry = asyncio.get_running_loop().call_later(delay_s, self._expire_later) if self._links else None
