"""Serves the page of a proxy that does not serve HTTP: at any free port, for this machine only."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, ListenError
from dynamic_mcp.face.http.authenticator import Outcome, Page
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.face.http.listen_address import LOOPBACK_HOSTS
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.responses import refusal
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.host.http_face import tick
from dynamic_mcp.host.http_ui import UiPages
from dynamic_mcp.identity import Authentication
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.task_set import TaskSet
from dynamic_mcp.system.text import os_reason

log = logging.getLogger("dynamic_mcp")

_HOST = "127.0.0.1"
_FLUSH_WITHIN_S = 1.0
_PAGE_ALONE = "this address has the page `/ui` alone"


class _NoClients:
    """Refuses everything but pages."""

    is_open = False

    def authenticate(self, head: RequestHead) -> Outcome | Future[Outcome]:
        return refusal(404, _PAGE_ALONE)

    def is_valid(self, authentication: Authentication) -> bool:
        return False

    def find_page(self, method: str, path: bytes) -> Page | None:
        return None

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        return refusal(404, _PAGE_ALONE)


class UiListener:
    """The page of one proxy, once it was asked for."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._pages = UiPages(proxy)
        self._face: HttpFace | None = None
        self._server: HttpServer | None = None
        self._url = ""
        self._lock = asyncio.Lock()
        self._background = TaskSet(log)

    @property
    def is_watched(self) -> bool:
        """Return whether a browser has the page open."""
        return self._pages.is_watched

    async def open(self, config: Config) -> str:
        """Serve the page, if it is not served yet; return the URL that its path is below.

        Raises DynamicMcpError if the config turns the page off, or no port is free.
        """
        if config.ui is False:
            raise DynamicMcpError("the config turns the page off", hint="remove `ui` from its `settings`")
        async with self._lock:
            if self._face is None:
                face = HttpFace(self._proxy, HttpOptions(own_hosts=LOOPBACK_HOSTS), authenticator=_NoClients())
                server = HttpServer(face)
                try:
                    (address,) = await server.open(TcpAddress(_HOST, 0))
                except OSError as exc:
                    raise ListenError(f"no port of `{_HOST}` can be listened at: {os_reason(exc)}") from exc
                self._face, self._server, self._url = face, server, f"http://{address}"
                self._background.create(tick(face), name="clock of the page")
                log.info("serving the page at %s/ui", self._url)
            self.apply(config)
        return self._url

    def apply(self, config: Config) -> None:
        """Serve the page of another version of the config from now on, if it is served."""
        if self._face is not None:
            options = HttpOptions(own_hosts=LOOPBACK_HOSTS)
            self._face.configure(options, self._pages.add(_NoClients(), config, Http(), self._url))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.drain(_FLUSH_WITHIN_S)
        if self._face is not None:
            self._face.close()
        await self._pages.close()
        self._background.cancel_all()
        await self._background.wait()
