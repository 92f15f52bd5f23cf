"""Starts, moves and stops the HTTP server of a serving process, as its config says, while it runs.

The server's code is loaded when HTTP is first wanted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.addresses import Address
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ListenError
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event

if TYPE_CHECKING:  # loaded where HTTP is served
    from dynamic_mcp.config.http import Http, Tls
    from dynamic_mcp.system.worker import WorkerIdentity

log = logging.getLogger("dynamic_mcp")

_PROFILE_GONE = "the profile `%s` is no longer in %s: clients over HTTP that name no other profile get 404"


class HttpOverrides(Struct, frozen=True):
    """The command line's HTTP options; None leaves an option to the config, and lists are added to the config's."""

    listen: Address | None = None
    tls: Tls | None = None
    root_path: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    profile: str | None = None

    def override(self, http: Http | None) -> Http:
        """Return the HTTP options for a config, with these applied."""
        from dynamic_mcp.config.http import Http

        http = http or Http()
        return replace(
            http,
            listen=self.listen or http.listen,
            tls=self.tls or http.tls,
            root_path=http.root_path if self.root_path is None else self.root_path,
            allowed_hosts=http.allowed_hosts + self.allowed_hosts,
            allowed_origins=http.allowed_origins + self.allowed_origins,
            insecure=self.insecure or http.insecure,
            profile=self.profile,
        )


class Service(Protocol):
    """Serves a proxy over HTTP."""

    @property
    def url(self) -> str:
        """The URL for clients, if it is known."""
        ...

    @property
    def shutdown_timeout_s(self) -> float:
        """The configured time for calls to end."""
        ...

    async def serve(self, http: Http, config: Config) -> None:
        """Serve with these options from now on. Raises ListenError, which leaves everything unchanged."""
        ...

    def reload_certificate(self) -> None:
        """Read the certificate's files again, for new connections."""
        ...

    async def finish(self, within_s: float) -> None:
        """Start no new session, let calls end within a bound, and close everything."""
        ...


def load_service(worker: WorkerIdentity | None = None) -> Callable[[Proxy], Service]:
    """Import and return the service with a listener, whose port a `worker` shares with others."""
    from dynamic_mcp.host.http_service import HttpService

    if "LISTEN_FDS" not in os.environ:
        return partial(HttpService, worker=worker)
    from dynamic_mcp.host.systemd import read_sockets

    return partial(HttpService, worker=worker, passed=read_sockets(os.environ))


class HttpControl:
    """The HTTP server of a process, if it has one; with `overrides`, it has one whatever its config says."""

    def __init__(
        self,
        proxy: Proxy,
        overrides: HttpOverrides | None = None,
        *,
        load: Callable[[], Callable[[Proxy], Service]] = load_service,
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        """Called when HTTP may have begun or ceased to be served."""
        self._proxy = proxy
        self._overrides = overrides
        self._load = load
        self._service: Service | None = None
        self._wanted: tuple[Config, Http] | None = None
        self._change: asyncio.Task[None] | None = None
        self._has_ended = False

    @property
    def url(self) -> str:
        """The URL for clients; empty while HTTP is not served."""
        return "" if self._service is None else self._service.url

    @property
    def is_active(self) -> bool:
        """Return whether HTTP is served, or is about to be."""
        return self._service is not None or self._change is not None

    def find_settings(self, config: Config) -> Http | None:
        """Return the HTTP options for this config; None if it does not want HTTP."""
        return config.http if self._overrides is None else self._overrides.override(config.http)

    def prepare_reload(self, old: ConfigState, new: ConfigState) -> None:
        """Allow servers for clients over HTTP, which have no workspace, before the first one may connect."""
        if self.find_settings(new.base) is not None:
            self._proxy.has_base = True

    def reload(self, old: ConfigState, new: ConfigState) -> None:
        self.apply(new.base)

    async def open(self, config: Config) -> None:
        """Start serving. Raises ListenError."""
        http = self.find_settings(config)
        if http is not None:
            await self._serve(config, http)

    def apply(self, config: Config, *, level: int = logging.ERROR) -> None:
        """Serve as this config says from now on; a failure is logged, and leaves everything unchanged.

        Clients are notified too, unless the `level` is below that of an error.
        """
        http = self.find_settings(config)
        self._wanted = None if http is None else (config, http)
        if self._wanted is None and self._service is None:
            return
        if self._change is None and not self._has_ended:
            self._change = asyncio.create_task(self._apply_wanted(level), name="change of the HTTP server")

    def reload_certificate(self) -> None:
        if self._service is not None:
            self._service.reload_certificate()

    async def finish(self, within_s: float | None = None) -> None:
        """Start no new session and let calls end, within the configured time or less; then close everything."""
        self._has_ended = True
        if self._change is not None:
            self._change.cancel()
            await asyncio.wait([self._change])
        service, self._service = self._service, None
        if service is not None:
            most_s = service.shutdown_timeout_s
            await service.finish(most_s if within_s is None else min(within_s, most_s))

    async def _apply_wanted(self, level: int) -> None:
        """Apply the latest wanted state, also if it changes meanwhile."""
        try:
            applied: object = self
            while applied != self._wanted:
                applied = self._wanted
                await self._apply(self._wanted, level)
        finally:
            self._change = None
            for listener in self.listeners:
                listener()

    async def _apply(self, wanted: tuple[Config, Http] | None, level: int) -> None:
        if wanted is None:
            service, self._service = self._service, None
            if service is not None:
                log.info("stopped serving HTTP at %s", service.url)
                await service.finish(service.shutdown_timeout_s)
            return
        try:
            await self._serve(*wanted)
        except ListenError as exc:
            text = f"{exc.message}; it is still served at {self.url}" if self.url else exc.message
            log.log(level, "HTTP is not served as configured: %s", str(exc).replace(exc.message, text, 1))
            self._proxy.note(Event("config.refused", {"outcome": "failure", "where": "settings.http.listen"}))
            if level >= logging.ERROR:
                self._proxy.complain(f"HTTP is not served as configured: {text}")

    async def _serve(self, config: Config, http: Http) -> None:
        service = self._service
        if service is None:  # imports run in a thread, since other clients may be served already
            service = (await asyncio.to_thread(self._load))(self._proxy)
        old_url = service.url
        await service.serve(http, config)
        self._service = service
        self._proxy.changed.set()  # what is shown of this process has the URL at once
        if http.profile is not None and http.profile not in config.profiles:
            log.error(_PROFILE_GONE, http.profile, config.file)
        if service.url != old_url:
            log.info("serving %s over HTTP at %s", config.file, service.url)
