"""The listener that metrics are read from. It is loaded when it is opened, and the HTTP server with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dynamic_mcp.config.observe import Metrics
from dynamic_mcp.errors import UnsafeAddress
from dynamic_mcp.face.http.listen_address import find_place, open_at
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.features.metrics.exposition import negotiate, render
from dynamic_mcp.features.metrics.face import PATH, MetricsFace
from dynamic_mcp.features.metrics.families import Family


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
        place = await find_place(settings.address)
        if settings.token is None and not place.is_loopback:  # a name that was not known to be another machine's
            raise UnsafeAddress(f"other machines can reach `{settings.address}`, and there is no `token`")
        options = HttpOptions(own_hosts=place.list_hosts(), accepts_any_address=place.is_any)
        self._server = HttpServer(MetricsFace(self._answer, options, token=settings.token))
        self.url = f"http://{await open_at(self._server, place)}{PATH}"

    async def stop(self, within_s: float) -> None:
        """Listen no more, and give answers on their way this long."""
        if self._server is not None:
            await self._server.stop(within_s)

    def _answer(self, accept: str) -> tuple[str, bytes]:
        form = negotiate(accept)
        return form.value, render(self._read(), form)
