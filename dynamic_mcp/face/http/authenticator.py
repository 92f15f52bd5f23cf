"""The interface by which the core of the HTTP face authenticates clients."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, with_headers
from dynamic_mcp.identity import LOCAL_USER, Authentication


class AuthRejection(Response, frozen=True, gc=False):
    """The response to a request with a refused credential, login, host or origin, and the reason.

    `provider` is the one that recognised the credential, if any.
    """

    provider: str = ""
    why: str = ""

    @staticmethod
    def of(response: Response, why: str, provider: str = "") -> AuthRejection:
        """Return a response as a rejection."""
        return AuthRejection(response.status, response.headers, response.body, provider, why)


# The sender of a request, or its refusal: 401, 403, or 400.
Outcome = Authentication | Response


class PageRequest(Struct, frozen=True):
    """A complete request for a page; its body may be empty."""

    head: RequestHead
    body: bytes


class StreamedPage(Response, frozen=True, kw_only=True):
    """A response whose body goes on with these pieces, until there are no more or the client has disconnected."""

    pieces: AsyncIterator[bytes]


Page = Callable[[PageRequest], Awaitable[Response]]

_ANY_ORIGIN: Headers = ((b"access-control-allow-origin", b"*"),)
_PREFLIGHT = Response(
    204,
    (
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", b"authorization, content-type, if-none-match, mcp-protocol-version"),
        (b"access-control-max-age", b"600"),
    ),
)


class OpenPage(Struct, frozen=True):
    """A page that scripts of any origin may read, such as a metadata document.

    Its response must not depend on a cookie, or on where the request comes from.
    """

    page: Page

    async def __call__(self, request: PageRequest) -> Response:
        """Answer a request or a preflight (Fetch standard, CORS protocol)."""
        response = _PREFLIGHT if request.head.method == "OPTIONS" else await self.page(request)
        return with_headers(response, _ANY_ORIGIN)


class Authenticator(Protocol):
    """Authenticates requests, and serves the pages that this needs: metadata, logins."""

    @property
    def is_open(self) -> bool:
        """True if every client that reaches the address is the local user."""
        ...

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        """Return the sender of a request, or its refusal; a future if that has to be requested."""
        ...

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether the authentication of a stream is still valid: neither revoked nor expired."""
        ...

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return the page at a path outside of MCP; None if there is none. Pages authenticate by themselves.

        An `OpenPage` is also looked up for preflights.
        """
        ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes (RFC 6750, section 3.1)."""
        ...


class LocalAuthenticator:
    """Treats every client as the local user, who has no pages and lacks no scope."""

    is_open = True

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        return LOCAL_USER

    def is_valid(self, authentication: Authentication) -> bool:
        """Return whether this is the local user, not a user from before authentication was disabled."""
        return authentication is LOCAL_USER

    def find_page(self, method: str, path: bytes) -> Page | None:
        return None

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return a refusal, although the local user never gets one."""
        return Response(403)
