"""The pages by which a person logs in to a server behind the proxy, in whatever browser its link is opened.

Nobody may log in for somebody else. Where it is known who is at the browser, it must be the person that the link was
sent to; else a page says for whom it is, and goes on only by its own button. From then on a cookie tells that it is
the same browser, also when it comes back from the authorization server.
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
    """What is known of who is at a browser."""

    SAME = "same"
    UNKNOWN = "unknown"
    OTHER = "other"


_Authenticate = Callable[[RequestHead], Outcome | Future[Outcome]]


class UpstreamLoginPages:
    """Answers `/upstream-login/…`. `authenticate` tells who is at a browser, as far as its requests say that.

    `aliases` has issuers that name people as another one does, which is the one that names them to browsers.
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
        """Return what answers a path; None if it is not one of these pages."""
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
        """Answer who opens a link: go on if it is known to be the right person, else ask."""
        link = self._links.find(id)
        if link is None:
            return _gone()
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
        """Answer the button of the page that asks."""
        link = self._links.find(id)
        if link is None:
            return _gone()
        if await self._judge(request.head, link.person) is _Verdict.OTHER:
            return _not_yours()
        secret = self._read_secret(request.head, link)
        token = dict(parse_qsl(request.body.decode("latin-1"))).get("token", "")
        if secret is None or not hmac.compare_digest(token.encode(), _token_of(secret).encode()):
            return _message(403, "Refused", "This browser keeps no cookies, or has not opened the link itself.")
        return await self._begin(link, secret)

    async def _return(self, request: PageRequest) -> Response:
        """Answer a browser that the authorization server has sent back."""
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
            return _message(400, "Refused", f"This changes nothing: {exc}.")
        if not is_done:
            return page("Not logged in", _failure(link), 400)
        text = f"{link.person.subject} is logged in to {link.group}. You can close this window and go back to work."
        return page("Logged in", paragraphs([text]), more=(self._cookie(link, "", max_age_s=0),))

    async def _begin(self, link: LoginLink, secret: str) -> Response:
        """Send a browser to the authorization server."""
        if not link.claim(secret):
            return _other_browser()
        try:
            url = await self._links.begin(link)
        except UnexpectedResponse as exc:
            return _message(400, "Refused", f"This changes nothing: {exc}.")
        if url is None:
            return page("Not logged in", _failure(link), 502)
        location = (b"location", url.encode("ascii", "ignore"))
        return Response(303, (*headers(), location, self._cookie(link, secret)))

    # --- who it is -------------------------------------------------------------------------------------

    async def _judge(self, head: RequestHead, person: Principal) -> _Verdict:
        """Tell whether this person is at the browser. Whoever a reverse proxy has named must be named again."""
        outcome = self._authenticate(head)
        seen = await outcome if isinstance(outcome, Future) else outcome
        shown = Principal(self._aliases.get(person.issuer, person.issuer), person.subject)
        if isinstance(seen, Authentication):
            if seen.principal in (person, shown):
                return _Verdict.SAME
            if seen.principal.issuer in (person.issuer, shown.issuer):
                return _Verdict.OTHER
        return _Verdict.OTHER if shown.issuer == FORWARDED else _Verdict.UNKNOWN

    def _cookie_name(self, link: LoginLink) -> str:
        # the prefix keeps other hosts of the domain from setting it (RFC 6265bis, section 4.1.3.2)
        prefix = "__Host-" if self._is_https else ""
        return f"{prefix}dynamic-mcp-login-{sha256(link.id.encode()).hexdigest()[:16]}"

    def _cookie(self, link: LoginLink, secret: str, *, max_age_s: float = VALID_S) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._is_https else ""
        text = f"{self._cookie_name(link)}={secret}; Path=/; Max-Age={max_age_s:.0f}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", text.encode()

    def _read_secret(self, head: RequestHead, link: LoginLink) -> str | None:
        """Return the secret by which a browser is known, if it has one for this link."""
        text = head.headers.get(b"cookie", b"").decode("latin-1")
        pairs = (each.strip().partition("=") for each in re.split("[;,]", text))
        name = self._cookie_name(link)
        return next((value for key, _, value in pairs if key == name and _SECRET.fullmatch(value)), None)


class WithLoginPages:
    """An `Authenticator`, and pages beside its own."""

    def __init__(self, authenticator: Authenticator, pages: UpstreamLoginPages) -> None:
        self.is_open = authenticator.is_open
        self.authenticate = authenticator.authenticate
        self.is_valid = authenticator.is_valid
        self.lacks_scope = authenticator.lacks_scope
        self._find_other = authenticator.find_page
        self._pages = pages

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return what answers a path that is not one of MCP."""
        return self._pages.find_page(method, path) or self._find_other(method, path)


# --- what people see -------------------------------------------------------------------------------------


def _question(link: LoginLink, secret: str) -> str:
    host = urlsplit(link.bearer.remote.url).hostname or ""
    person = link.person
    warning = (
        f"What you log in to on the following pages is then used by {person.subject} (as {person.issuer} names this"
        f" person). Continue only if you are {person.subject} and have just asked for this link yourself; else close"
        " this window."
    )
    return (
        paragraphs([f"The server {link.group} at {host} needs a login.", warning])
        + f'<form method="post"><input type="hidden" name="token" value="{_token_of(secret)}">'
        f"<button>Continue as {escape(person.subject)}</button></form>"
    )


def _failure(link: LoginLink) -> str:
    why = link.bearer.last_failure or "the login was ended"
    return paragraphs([f"{why}."]) + f'<p><a href="{escape(link.url)}">Try again</a></p>'


def _token_of(secret: str) -> str:
    """Return what a form has that our page has made for the browser with this secret."""
    return sha256(f"form {secret}".encode()).hexdigest()


def _gone() -> Response:
    text = "It was used, or is older than ten minutes. Call the server once more, and you are sent another one."
    return _message(404, "This link is not valid any more", text)


def _not_yours() -> Response:
    return _message(403, "Refused", "This link was sent to somebody else, or this is not the browser of its person.")


def _other_browser() -> Response:
    text = "This login was begun in another browser. Call the server once more, and you are sent another link."
    return _message(403, "Refused", text)


def _message(status: int, title: str, text: str) -> Response:
    return page(title, paragraphs([text]), status)
