"""The metrics listener: `GET /metrics` and nothing else.

It is imported when it is opened, together with the HTTP server.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from hmac import compare_digest

from dynamic_mcp.config.addresses import UnixAddress
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
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.worker import WorkerIdentity

log = logging.getLogger("dynamic_mcp")

_PATH = "/metrics"
_ALLOWED = b"GET, HEAD"
_BEARER = b"bearer "
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)


class MetricsListener:
    """Serves what `read` returns at one address; a worker, what all workers say. `url` is empty until it is open."""

    def __init__(
        self, read: Callable[[], Iterable[Family]], settings: Metrics, worker: WorkerIdentity | None = None
    ) -> None:
        self.url = ""
        self._worker = worker
        self._own: HttpServer | None = None  # where the other workers read
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
        face = MetricsFace(self._answer, options, token=settings.token)
        if self._worker is not None:
            face = WorkersFace(self._worker, self._answer, options, token=settings.token)
            self._own = HttpServer(MetricsFace(self._answer, HttpOptions(own_hosts=("localhost",))))
            await self._own.open(UnixAddress(self._worker.metrics_socket_of(self._worker.number)))
        self._server = HttpServer(face, shares_port=self._worker is not None)
        self.url = f"http://{await listen_at(self._server, place)}{_PATH}"

    async def stop(self, within_s: float) -> None:
        """Stop listening, and allow answers in progress this long."""
        for server in (self._server, self._own):
            if server is not None:
                await server.drain(within_s)

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
        return _metrics(*self._read(_accepted(head)))


class WorkersFace(MetricsFace):
    """Answers with the metrics of all workers; `read` returns those of this one."""

    def __init__(
        self,
        worker: WorkerIdentity,
        read: Callable[[str], tuple[str, bytes]],
        options: HttpOptions,
        *,
        token: str | None = None,
    ) -> None:
        super().__init__(read, options, token=token)
        self._worker = worker
        self._work = TaskSet(log)

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        if (refusal := self._refuse(head)) is not None:
            exchange.respond(refusal)
        else:
            self._work.create(self._gather(head, exchange), name="metrics of all workers")
        return None

    async def _gather(self, head: RequestHead, exchange: Exchange) -> None:
        if sys.platform != "win32":
            from dynamic_mcp.features.metrics.workers import gather  # where several processes serve one config

            exchange.respond(_metrics(*await gather(self._worker, _accepted(head))))


def _accepted(head: RequestHead) -> str:
    return head.headers.get(b"accept", b"").decode("latin-1")


def _metrics(content_type: str, body: bytes) -> Response:
    return Response(200, ((b"content-type", content_type.encode()), (b"cache-control", b"no-store")), body)


def _plain(status: int, why: str, headers: Headers = ()) -> Response:
    return Response(status, _TEXT + headers, f"{why}\n".encode())
