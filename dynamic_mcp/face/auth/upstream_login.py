"""Pages on which a user logs in to an upstream server, in the browser in which the login link is opened.

A user cannot log in for another user. If the browser's user is known, it must be the user that the link was sent to.
Otherwise a page shows whom the link is for, and continues only by its own button. From then on a cookie identifies
the browser, also when it returns from the authorization server.
"""

from __future__ import annotations

import hmac
import re
import secrets
from asyncio import Future
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from hashlib import sha256
from html import escape
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from dynamic_mcp.config.issuers import FORWARDED
from dynamic_mcp.face.auth.pages import headers, page, paragraphs
from dynamic_mcp.face.http.authenticator import Authenticator, Outcome, Page, PageRequest
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.oauth.links import CALLBACK_PATH, LINK_PATH, VALID_S, LoginLink, LoginLinks
from dynamic_mcp.web.authorization_response import UnexpectedResponse

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class _Verdict(Enum):
    """The result of comparing the user at a browser with the one that a link was sent to."""

    SAME = "same"
    UNKNOWN = "unknown"
    OTHER = "other"


_Authenticate = Callable[[RequestHead], Outcome | Future[Outcome]]


class UpstreamLoginPages:
    """Serves `/upstream-login/…`. `authenticate` returns the user at a browser, if its requests show that.

    `aliases` maps an issuer to the one that names the same users to browsers.
    """

    def __init__(
        self, links: LoginLinks, authenticate: _Authenticate, *, base_url: str, aliases: Mapping[str, str]
    ) -> None:
        self._links = links
        self._authenticate = authenticate
        self._aliases = aliases
        parts = urlsplit(base_url)
        self._roots = (b"", parts.path.encode())
        self._is_https = parts.scheme == "https"

    def find_page(self, method: str, path: bytes) -> Page | None:
        root, found, id = path.partition(LINK_PATH.encode())
        if not found or root not in self._roots:
            return None
        if path == root + CALLBACK_PATH.encode():
            return self._return if method == "GET" else None
        if method == "GET":
            return partial(self._open, id.decode("latin-1"))
        return partial(self._confirm, id.decode("latin-1")) if method == "POST" else None

    # --- pages -----------------------------------------------------------------------------------------

    async def _open(self, id: str, request: PageRequest) -> Response:
        """Serve a link: continue if its user is at the browser, else show the confirmation page."""
        link = self._links.find(id)
        if link is None:
            return _expired_link()
        verdict = await self._judge(request.head, link.person)
        if verdict is _Verdict.OTHER:
            return _not_yours()
        secret = self._read_secret(request.head, link) or secrets.token_urlsafe(32)
        if not link.is_unopened and not link.belongs_to(secret):
            return _other_browser()
        if verdict is _Verdict.SAME:
            return await self._begin(link, secret)
        return page(f"Log in to {link.group}?", _question(link, secret), more=(self._cookie(link, secret),))

    async def _confirm(self, id: str, request: PageRequest) -> Response:
        """Handle the button of the confirmation page."""
        link = self._links.find(id)
        if link is None:
            return _expired_link()
        if await self._judge(request.head, link.person) is _Verdict.OTHER:
            return _not_yours()
        secret = self._read_secret(request.head, link)
        token = dict(parse_qsl(request.body.decode("latin-1"))).get("token", "")
        if secret is None or not hmac.compare_digest(token.encode(), _token_of(secret).encode()):
            return _message(403, "Refused", "This browser does not keep cookies, or did not open the link.")
        return await self._begin(link, secret)

    async def _return(self, request: PageRequest) -> Response:
        """Handle a browser that returns from the authorization server."""
        query = request.head.target.partition(b"?")[2].decode("latin-1")
        try:
            link = self._links.find_returning(query)
            if await self._judge(request.head, link.person) is _Verdict.OTHER:
                return _not_yours()
            secret = self._read_secret(request.head, link)
            if secret is None or not link.belongs_to(secret):
                return _other_browser()
            is_done = await self._links.finish(link, query)
        except UnexpectedResponse as exc:
            return _message(400, "Refused", f"Nothing was changed: {exc}.")
        if not is_done:
            return page("Not logged in", _failure(link), 400)
        text = f"{link.person.subject} is logged in to {link.group}. You can close this window and go back to work."
        return page("Logged in", paragraphs([text]), more=(self._cookie(link, "", max_age_s=0),))

    async def _begin(self, link: LoginLink, secret: str) -> Response:
        """Redirect a browser to the authorization server."""
        if not link.claim(secret):
            return _other_browser()
        try:
            url = await self._links.begin(link)
        except UnexpectedResponse as exc:
            return _message(400, "Refused", f"Nothing was changed: {exc}.")
        if url is None:
            return page("Not logged in", _failure(link), 502)
        location = (b"location", url.encode("ascii", "ignore"))
        return Response(303, (*headers(), location, self._cookie(link, secret)))

    # --- the user --------------------------------------------------------------------------------------

    async def _judge(self, head: RequestHead, user: Principal) -> _Verdict:
        """Return whether this user is at the browser. A user of a reverse proxy must be named by it again."""
        outcome = self._authenticate(head)
        sender = await outcome if isinstance(outcome, Future) else outcome
        alias = Principal(self._aliases.get(user.issuer, user.issuer), user.subject)
        if isinstance(sender, Authentication):
            if sender.principal in (user, alias):
                return _Verdict.SAME
            if sender.principal.issuer in (user.issuer, alias.issuer):
                return _Verdict.OTHER
        return _Verdict.OTHER if alias.issuer == FORWARDED else _Verdict.UNKNOWN

    def _cookie_name(self, link: LoginLink) -> str:
        # with this prefix, other hosts of the domain cannot set it (RFC 6265bis, section 4.1.3.2)
        prefix = "__Host-" if self._is_https else ""
        return f"{prefix}dynamic-mcp-login-{sha256(link.id.encode()).hexdigest()[:16]}"

    def _cookie(self, link: LoginLink, secret: str, *, max_age_s: float = VALID_S) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._is_https else ""
        text = f"{self._cookie_name(link)}={secret}; Path=/; Max-Age={max_age_s:.0f}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", text.encode()

    def _read_secret(self, head: RequestHead, link: LoginLink) -> str | None:
        """Return the secret in the browser's cookie for this link, if it has one."""
        text = head.headers.get(b"cookie", b"").decode("latin-1")
        pairs = (each.strip().partition("=") for each in re.split("[;,]", text))
        name = self._cookie_name(link)
        return next((value for key, _, value in pairs if key == name and _SECRET.fullmatch(value)), None)


class Pages(Protocol):
    """Pages at some paths."""

    def find_page(self, method: str, path: bytes) -> Page | None: ...


class WithPages:
    """An `Authenticator` that also serves other pages."""

    def __init__(self, authenticator: Authenticator, pages: Pages) -> None:
        self.is_open = authenticator.is_open
        self.authenticate = authenticator.authenticate
        self.is_valid = authenticator.is_valid
        self.lacks_scope = authenticator.lacks_scope
        self._find_other = authenticator.find_page
        self._pages = pages

    def find_page(self, method: str, path: bytes) -> Page | None:
        return self._pages.find_page(method, path) or self._find_other(method, path)


# --- HTML ----------------------------------------------------------------------------------------------


def _question(link: LoginLink, secret: str) -> str:
    host = urlsplit(link.bearer.remote.url).hostname or ""
    user = link.person
    warning = (
        f"{user.subject} (a user of {user.issuer}) will use the account that you log in to on the following pages."
        f" Continue only if you are {user.subject} and have just requested this link; otherwise close this window."
    )
    return (
        paragraphs([f"The server {link.group} at {host} needs a login.", warning])
        + f'<form method="post"><input type="hidden" name="token" value="{_token_of(secret)}">'
        f"<button>Continue as {escape(user.subject)}</button></form>"
    )


def _failure(link: LoginLink) -> str:
    why = link.bearer.last_failure or "the login was cancelled"
    return paragraphs([f"{why}."]) + f'<p><a href="{escape(link.url)}">Try again</a></p>'


def _token_of(secret: str) -> str:
    """Return the form token of the browser with this secret."""
    return sha256(f"form {secret}".encode()).hexdigest()


def _expired_link() -> Response:
    text = "It was used, or is older than ten minutes. Call the server again to get a new one."
    return _message(404, "This link is no longer valid", text)


def _not_yours() -> Response:
    return _message(403, "Refused", "This link was sent to another user, or this is not that user's browser.")


def _other_browser() -> Response:
    text = "This login was started in another browser. Call the server again to get a new link."
    return _message(403, "Refused", text)


def _message(status: int, title: str, text: str) -> Response:
    return page(title, paragraphs([text]), status)
