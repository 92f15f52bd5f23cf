"""What the core of the HTTP face needs of whoever finds out who a client is."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.responses import Headers, with_headers
from dynamic_mcp.identity import LOCAL_USER, Authentication


class AuthRejection(Response, frozen=True, gc=False):
    """What a request is answered whose credential, login, host or origin is refused, and why.

    `provider` is the one that has recognised the credential, if any.
    """

    provider: str = ""
    why: str = ""

    @staticmethod
    def of(response: Response, why: str, provider: str = "") -> AuthRejection:
        """Return a response that refuses somebody."""
        return AuthRejection(response.status, response.headers, response.body, provider, why)


# Who sent a request, or what it is answered instead of being served: 401, 403, or 400.
Outcome = Authentication | Response


class PageRequest(Struct, frozen=True):
    """A whole request for a page: its head, and its body, which may be empty."""

    head: RequestHead
    body: bytes


Page = Callable[[PageRequest], Awaitable[Response]]

_ANY_ORIGIN: Headers = ((b"access-control-allow-origin", b"*"),)
_PREFLIGHT = Response(
    204,
    (
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", b"authorization, content-type, mcp-protocol-version"),
        (b"access-control-max-age", b"600"),
    ),
)


class OpenPage(Struct, frozen=True):
    """A page that scripts of any origin may read, such as a metadata document.

    Nothing in its answer may follow from a cookie, nor from where the request comes from.
    """

    page: Page

    async def __call__(self, request: PageRequest) -> Response:
        """Answer, also a preflight (Fetch standard, CORS protocol)."""
        response = _PREFLIGHT if request.head.method == "OPTIONS" else await self.page(request)
        return with_headers(response, _ANY_ORIGIN)


class Authenticator(Protocol):
    """Finds out who sent a request, and serves the pages that this needs: metadata, logins."""

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches the address is the local user."""
        ...

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        """Tell who sent a request; a future where that takes a question to somebody else."""
        ...

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether what was shown at the start of a stream still counts: not revoked, nor expired."""
        ...

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return what answers a path that is not one of MCP, without authentication of its own; None if nothing.

        The page of other origins, an `OpenPage`, is asked for preflights too.
        """
        ...

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes (RFC 6750, section 3.1)."""
        ...


class LocalAuthenticator:
    """Takes everybody for the local user, who has no pages and lacks no scope."""

    is_open = True

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        """Return the local user."""
        return LOCAL_USER

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether this is the local user, and not somebody of before everybody was let in."""
        return authentication is LOCAL_USER

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return None."""
        return None

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return a refusal; nobody who is local gets it."""
        return Response(403)
