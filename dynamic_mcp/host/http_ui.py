"""Adds the page for people to a proxy's HTTP server. It is loaded with the first request for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import Upgraded
from dynamic_mcp.face.auth.upstream_login import WithPages
from dynamic_mcp.face.http.authenticator import Authenticator, Page, PageRequest
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths
from dynamic_mcp.system.extras import install_hint

if TYPE_CHECKING:
    from dynamic_mcp.ui.service import UiService

log = logging.getLogger("dynamic_mcp")

PATH = b"/ui"
_TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)
_UPGRADED = b"dynamic-mcp was upgraded: restart it to see the page\n"


class UiPages:
    """The page of one proxy, over all versions of its config."""

    def __init__(self, proxy: Proxy, state_folder: Callable[[], Path] = paths.state_dir) -> None:
        self._proxy = proxy
        self._state_folder = state_folder
        self._service: UiService | None = None
        self._version: tuple[Config, Http, Authenticator, str] | None = None

    def add(self, authenticator: Authenticator, config: Config, http: Http, base_url: str) -> Authenticator:
        """Return the authenticator with the page added, unless the config turns it off."""
        if config.ui is False:
            self._version = None
            if self._service is not None:
                self._service.withdraw()
            return authenticator
        self._version = (config, http, authenticator, base_url)
        if self._service is not None:
            self._service.configure(*self._version)
        self._roots = {b"", urlsplit(base_url).path.encode(), http.root_path.encode()}
        return WithPages(authenticator, self)

    def find_page(self, method: str, path: bytes) -> Page | None:
        if self._version is None or not any(_is_below(path, root + PATH) for root in self._roots):
            return None
        if self._service is None:
            try:
                self._service = self._load()
            except ImportError as exc:
                log.warning("the page cannot be served: %s", exc)
                return _refuse(f"the page needs the package `jinja2`: {install_hint('ui')}\n".encode())
            except Upgraded:
                return _refuse(_UPGRADED)
            self._service.configure(*self._version)
        return self._service.find_page(method, path)

    @property
    def is_watched(self) -> bool:
        """Return whether a browser has the page open."""
        return self._service is not None and self._service.is_watched

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    def _load(self) -> UiService:
        from dynamic_mcp.ui.service import UiService

        return UiService(self._proxy, self._state_folder())


def _is_below(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root + b"/")


def _refuse(text: bytes) -> Page:
    async def page(request: PageRequest) -> Response:
        return Response(503, _TEXT, text)

    return page
