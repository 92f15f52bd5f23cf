"""dynamic-mcp as an ASGI application, to be mounted in FastAPI or Starlette or run by any ASGI server.

`uvicorn --factory dynamic_mcp.asgi:app` serves the config that `$DYNAMIC_MCP_CONFIG` or the usual places name.
Sessions live in the process that began them, so run it with one worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from dynamic_mcp.config.read import ConfigState, find, read_all
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.types import check_hosts, check_origins
from dynamic_mcp.face.http.asgi import AsgiApp, Receive, Scope, Send
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead
from dynamic_mcp.host.http_control import HttpOverrides
from dynamic_mcp.host.http_mounted import MountedService
from dynamic_mcp.host.serving import Serving
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system import paths

if sys.platform == "win32":
    from contextlib import nullcontext as leaving_orphans  # which Windows does not have
else:
    from dynamic_mcp.upstream.process.strays import leaving_orphans

__all__ = ["Application", "app"]

log = logging.getLogger("dynamic_mcp")

# How long servers may take to end after the application.
_SERVERS_END_WITHIN_S = 10.0


def app(
    config: str | Path | None = None, *, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()
) -> Application:
    """Return an ASGI application that serves the groups of a config, as `settings.http` says.

    Without a `config` it is the one that `$DYNAMIC_MCP_CONFIG` names, else `./dynamic-mcp.json`, else the one in the
    user's config directory. The hosts and origins are allowed beside those of the config. Who may call it is
    for the application around it to say, or for `auth` of the config; a wrong config fails its start with a
    ConfigError.
    """
    hosts, origins = tuple(allowed_hosts), tuple(allowed_origins)
    check_hosts(hosts)
    check_origins(origins)
    return Application(config, HttpOverrides(allowed_hosts=hosts, allowed_origins=origins))


class Application:
    """An ASGI 3 application. Its servers start with its lifespan, or with its first request if there is none.

    The lifespan protocol announces it. An application that it is mounted in does not pass that on, so it should enter
    `running` in its own lifespan.
    """

    def __init__(self, config: str | Path | None, overrides: HttpOverrides) -> None:
        self._config = config
        self._overrides = overrides
        self._asgi = AsgiApp(self, startup=self._start, shutdown=self._stop)
        self._life: asyncio.Task[None] | None = None
        self._has_started = asyncio.Event()
        self._ended = asyncio.Event()
        self._service: MountedService | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the server."""
        if scope["type"] == "http" and not self._is_running:
            await self._start()
        await self._asgi(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the end of the context; for the lifespan of an application that this one is mounted in.

        For Starlette or FastAPI applications without a lifespan: `lifespan=lambda _: tools.running()`.
        """
        await self._start()
        try:
            yield
        finally:
            await self._stop()

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        """Receive the head of a request."""
        assert self._service is not None
        return self._service.face.begin(head, exchange)

    @property
    def _is_running(self) -> bool:
        return self._life is not None and not self._life.done() and self._has_started.is_set()

    async def _start(self) -> None:
        """Start unless it runs, in a separate task that lives as long as it serves. Raises ConfigError."""
        if self._life is None or self._life.done():
            self._has_started, self._ended = asyncio.Event(), asyncio.Event()
            self._life = asyncio.create_task(self._live(), name="dynamic-mcp")
        life, started = self._life, asyncio.create_task(self._has_started.wait())
        try:
            await asyncio.wait((life, started), return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if life.done():
            life.result()

    async def _stop(self) -> None:
        self._ended.set()
        if self._life is not None:
            await asyncio.wait((self._life,))

    async def _live(self) -> None:
        configs = await asyncio.to_thread(self._read)
        config = configs.base
        for warning in (*config.file_warnings, *config.warnings):
            log.warning("%s: %s", config.file, warning)
        serving = Serving(configs, None, kind="http", http=self._overrides, load_http=lambda: self._create_service)
        with leaving_orphans():
            await self._serve(serving, config)

    async def _serve(self, serving: Serving, config: Config) -> None:
        async with serving.run():
            try:
                await serving.http.open(config)
                self._has_started.set()
                await self._ended.wait()
                await serving.http.finish()
            finally:
                await _end_servers(serving)

    def _read(self) -> ConfigState:
        argument = None if self._config is None else str(self._config)
        file = find(argument, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir())
        return read_all(file, os.environ)

    def _create_service(self, proxy: Proxy) -> MountedService:
        self._service = MountedService(proxy)
        return self._service


async def _end_servers(serving: Serving) -> None:
    try:
        async with asyncio.timeout(_SERVERS_END_WITHIN_S):
            await serving.proxy.close()
    except TimeoutError:
        log.warning("some servers did not end within %g s", _SERVERS_END_WITHIN_S)
