"""A proxy's HTTP server inside another application, which listens and authenticates."""

from __future__ import annotations

import logging

from dynamic_mcp.config.http import Http
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.face.auth.make import ProviderPool
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.listen_address import LOOPBACK_HOSTS
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.host.http_cluster import ClusterControl
from dynamic_mcp.host.http_face import make_options, tick
from dynamic_mcp.host.http_logins import add_login_pages, find_base_url, make_keeper, use_logins
from dynamic_mcp.host.http_ui import UiPages
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")


class MountedService:
    """Serves a proxy over HTTP with requests that an application has received. Its `url` is unknown."""

    url = ""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.face = HttpFace(proxy, HttpOptions())
        self.shutdown_timeout_s = Http().shutdown_timeout_s
        self._providers = ProviderPool()
        self._ui = UiPages(proxy)
        self._replicas = ClusterControl(proxy)
        self._background = TaskSet(log)

    async def serve(self, http: Http, config: Config) -> None:
        """Serve with these options from now on; the application decides about the listener."""
        if not self._background:
            self._background.create(tick(self.face), name="clock of the HTTP server")
        self.shutdown_timeout_s = http.shutdown_timeout_s
        await self._replicas.open_store(config)
        self._providers.shared_store = self._proxy.shared_store
        # an address in `Host` cannot be the name of a page, so any is accepted where our hosts are not known
        options = make_options(http, config.max_message_bytes, own_hosts=LOOPBACK_HOSTS, accepts_any_address=True)
        keeper = make_keeper(config, self._proxy)
        authenticator = self._providers.make_authenticator(http, config.file, keeper)
        authenticator = add_login_pages(authenticator, http, self._proxy)
        authenticator = self._ui.add(authenticator, config, http, find_base_url(http) or "")
        self.face.configure(options, authenticator)
        self.face.see_tokens_of_peers(is_wanted=keeper is not None)
        use_logins(http, config, self._proxy)
        await self._replicas.apply(self.face, config)
        await self._providers.keep_only(http, config.file)

    def reload_certificate(self) -> None:
        """Do nothing: it has no certificate."""

    async def finish(self, within_s: float) -> None:
        """Start no new session, let calls end within a bound, then end all streams and sessions."""
        await self.face.drain(within_s)
        self.face.close()
        await self._replicas.close()
        self._background.cancel_all()
        await self._background.wait()
        await self._ui.close()
        await self._providers.close()
