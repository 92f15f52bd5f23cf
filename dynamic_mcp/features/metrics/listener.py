"""The metrics listener: `GET /metrics` and nothing else.

It is imported when it is opened, together with the HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hmac import compare_digest

from dynamic_mcp.errors import UnsafeAddress
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.guard import BrowserGuard
from dynamic_mcp.face.http.listen_address import listen_at, resolve_address
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.responses import Headers
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.features.metrics.config import Metrics
from dynamic_mcp.features.metrics.exposition import negotiate, render
from dynamic_mcp.features.metrics.families import Family

_PATH = "/metrics"
_ALLOWED = b"GET, HEAD"
_BEARER = b"bearer "
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)


class MetricsListener:
    """Serves what `read` returns at one address. `url` is empty until it is open."""

    def __init__(self, read: Callable[[], Iterable[Family]], settings: Metrics) -> None:
        self.url = ""
        self._read = read
        self._settings = settings
        self._server: HttpServer | None = None

    async def open(self) -> None:
        """Listen. Raises OSError and ListenError."""
        settings = self._settings
        place = await resolve_address(settings.address)
        if settings.token is None and not place.is_loopback:  # a host name that resolves to another machine
            raise UnsafeAddress(f"other machines can reach `{settings.address}`, and there is no `token`")
        options = HttpOptions(own_hosts=place.list_hosts(), accepts_any_address=place.is_any)
        self._server = HttpServer(MetricsFace(self._answer, options, token=settings.token))
        self.url = f"http://{await listen_at(self._server, place)}{_PATH}"

    async def stop(self, within_s: float) -> None:
        """Stop listening, and allow answers in progress this long."""
        if self._server is not None:
            await self._server.drain(within_s)

    def _answer(self, accept: str) -> tuple[str, bytes]:
        form = negotiate(accept)
        return form.value, render(self._read(), form)


class MetricsFace:
    """Answers with what `read` returns for an `Accept` header: the content type and the text.

    Without a `token`, only requests for the listener's own names and addresses are answered, so that no web page can
    read the metrics. With one, each request that has the token is answered, whatever its Host.
    """

    def __init__(
        self, read: Callable[[str], tuple[str, bytes]], options: HttpOptions, *, token: str | None = None
    ) -> None:
        self._read = read
        self._guard = BrowserGuard(options)
        self._token = None if token is None else token.encode()

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        """Answer a request; its body is ignored."""
        exchange.respond(self._refuse(head) or self._answer(head))
        return None

    def _refuse(self, head: RequestHead) -> Response | None:
        if self._token is None and self._guard.check(head) is not None:
            return _plain(403, "metrics without a token are read under an address of this machine, and by no page")
        if head.target.partition(b"?")[0] != _PATH.encode():
            return _plain(404, f"not found; metrics are at {_PATH}")
        if head.method not in ("GET", "HEAD"):
            return _plain(405, "only GET and HEAD are allowed for this path", ((b"allow", _ALLOWED),))
        if self._token is not None and not self._may_read(self._token, head):
            challenge = ((b"www-authenticate", b'Bearer realm="metrics"'),)
            return _plain(401, "the header `Authorization` must have the bearer token of the metrics", challenge)
        return None

    def _may_read(self, token: bytes, head: RequestHead) -> bool:
        shown = head.headers.get(b"authorization", b"")
        is_bearer = shown[: len(_BEARER)].lower() == _BEARER and b"authorization" not in head.repeated
        return is_bearer and compare_digest(shown[len(_BEARER) :].strip(), token)

    def _answer(self, head: RequestHead) -> Response:
        content_type, body = self._read(head.headers.get(b"accept", b"").decode("latin-1"))
        return Response(200, ((b"content-type", content_type.encode()), (b"cache-control", b"no-store")), body)


def _plain(status: int, why: str, headers: Headers = ()) -> Response:
    return Response(status, _TEXT + headers, f"{why}\n".encode())
