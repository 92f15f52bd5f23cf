"""Whether and where a serving process serves HTTP: opened, moved and closed as its config says, while it runs.

What serves HTTP is loaded when it is first wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.addresses import Address
from dynamic_mcp.config.http import Http, Tls
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ListenError
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event

log = logging.getLogger("dynamic_mcp")


_PROFILE_GONE = "the profile `%s` is not in %s any more: clients over HTTP that name no other profile get 404"


class HttpOverrides(Struct, frozen=True):
    """What the command line says of HTTP; None leaves it to the config, and the rest is added to that."""

    listen: Address | None = None
    tls: Tls | None = None
    root_path: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    profile: str | None = None

    def override(self, http: Http | None) -> Http:
        """Return what is served where a config says this."""
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
    """What serves a proxy over HTTP."""

    @property
    def url(self) -> str:
        """Where clients connect to, if that is known."""
        ...

    @property
    def shutdown_timeout_s(self) -> float:
        """How long calls may take to end, by the config."""
        ...

    async def serve(self, http: Http, config_file: Path, *, max_body_bytes: int) -> None:
        """Serve like this from now on. Raises ListenError, and then all stays as it was."""
        ...

    def reload_certificate(self) -> None:
        """Read the files of the certificate again, for new connections."""
        ...

    async def finish(self, within_s: float) -> None:
        """Begin no session, let calls end within a bound, and close everything."""
        ...


def load_service() -> Callable[[Proxy], Service]:
    """Load and return what serves HTTP at an address of its own."""
    from dynamic_mcp.host.http_service import HttpService

    return HttpService


class HttpControl:
    """The HTTP server of a process, if it has one. `overrides`: it has one whatever its config says."""

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
        """Where clients connect to; empty while HTTP is not served."""
        return "" if self._service is None else self._service.url

    @property
    def is_active(self) -> bool:
        """Whether HTTP is served, or may be in a moment."""
        return self._service is not None or self._change is not None

    def find_settings(self, config: Config) -> Http | None:
        """Return how HTTP is to be served with this config; None if it is not."""
        return config.http if self._overrides is None else self._overrides.override(config.http)

    def prepare_reload(self, old: ConfigState, new: ConfigState) -> None:
        """Let the proxy have servers for clients over HTTP, which have no workspace, once there may be some."""
        if self.find_settings(new.base) is not None:
            self._proxy.has_base = True

    def reload(self, old: ConfigState, new: ConfigState) -> None:
        """Serve as another version of the config says."""
        self.apply(new.base)

    async def open(self, config: Config) -> None:
        """Begin to serve. Raises ListenError."""
        http = self.find_settings(config)
        if http is not None:
            await self._serve(config, http)

    def apply(self, config: Config, *, level: int = logging.ERROR) -> None:
        """Serve as this config says from now on; what cannot be done is logged, and then all stays as it was.

        Clients are told too, unless the `level` is below that of an error.
        """
        http = self.find_settings(config)
        self._wanted = None if http is None else (config, http)
        if self._wanted is None and self._service is None:
            return
        if self._change is None and not self._has_ended:
            self._change = asyncio.create_task(self._apply_wanted(level), name="change of the HTTP server")

    def reload_certificate(self) -> None:
        """Read the files of the certificate again, for new connections."""
        if self._service is not None:
            self._service.reload_certificate()

    async def finish(self, within_s: float | None = None) -> None:
        """Begin no session any more and let calls end, within the configured time or less; then close all."""
        self._has_ended = True
        if self._change is not None:
            self._change.cancel()
            await asyncio.wait([self._change])
        service, self._service = self._service, None
        if service is not None:
            most_s = service.shutdown_timeout_s
            await service.finish(most_s if within_s is None else min(within_s, most_s))

    async def _apply_wanted(self, level: int) -> None:
        """Apply what is wanted last, also if that changes meanwhile."""
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
                log.info("HTTP is served no more at %s", service.url)
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
        if service is None:  # what it needs is loaded in a thread, since others may be served already
            service = (await asyncio.to_thread(self._load))(self._proxy)
        before = service.url
        await service.serve(http, config.file, max_body_bytes=config.max_message_bytes)
        self._service = service
        if http.profile is not None and http.profile not in config.profiles:
            log.error(_PROFILE_GONE, http.profile, config.file)
        if service.url != before:
            log.info("serving %s over HTTP at %s", config.file, service.url)
