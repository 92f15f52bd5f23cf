"""The homes of servers over stdio where several processes serve one config: each runs in one of them, for all.

A second proxy runs the servers of this process, without any rules: those are applied where the client is.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from dynamic_mcp.config.resolved import (
    CallHandling,
    Config,
    Features,
    GroupConfig,
    Home,
    Presentation,
    Program,
    ToolFilter,
)
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.face import limits
from dynamic_mcp.groups.catalog_store import CatalogStore, key
from dynamic_mcp.groups.group import Group
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import lines
from dynamic_mcp.observe.proxies import ProxyStatus
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.status import iterate_groups
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.stream_session import StreamSession
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.worker import WorkerIdentity
from dynamic_mcp.upstream.home import ASKS, LinkRequest
from dynamic_mcp.upstream.stdio import LinePacer

log = logging.getLogger("dynamic_mcp")

# How long a link may take to say what it wants; and to wait for the version of the config that it is of.
_ASK_WITHIN_S = 10.0
_KNOWN_WITHIN_S = 5.0


class Homes:
    """Runs the servers whose home is this worker, and tells its proxy where all of them are."""

    def __init__(self, worker: WorkerIdentity, config: Config, catalogs: Path) -> None:
        self._worker = worker
        self._config = self._at_home(config)
        self.proxy = Proxy(self._config, catalog_store=CatalogStore(catalogs))
        self._applied = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._links: set[HomeLink] = set()

    def __repr__(self) -> str:
        return f"<Homes of {self._worker.name}: {len(self._config.groups)} servers, {len(self._links)} links>"

    def place(self, config: Config) -> Config:
        """Return the config for the clients of this worker: it reaches each program at its home."""
        return replace(config, groups=tuple(self._place(group) for group in config.groups))

    def describe(self, status: ProxyStatus) -> ProxyStatus:
        """Return the status of this process as that of a worker, with the servers that run in it."""
        worker = self._worker
        return replace(status, supervisor=worker.supervisor, worker=worker.name, homes=[*iterate_groups(self.proxy)])

    async def open(self) -> None:
        """Listen for links. Raises OSError."""
        path = self._worker.home_socket_of(self._worker.number)
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: HomeLink(self), path)

    def apply(self, config: Config) -> None:
        """Run the servers of another version of the config."""
        self._config = self._at_home(config)
        self.proxy.apply(self._config)
        self._applied.set()
        self._applied = asyncio.Event()

    async def close(self) -> None:
        """End all links, and the servers."""
        if self._server is not None:
            self._server.close()
        for link in [*self._links]:
            link.abort()
        await self.proxy.close()

    def _place(self, group: GroupConfig) -> GroupConfig:
        if not isinstance(group.upstream, Program):
            return group
        socket = self._worker.home_socket_of(self._worker.home_of(group.name))
        home = Home(socket, key(group))
        return replace(group, upstream=replace(group.upstream, home=home), attempts=1)  # its home tries several times

    def _at_home(self, config: Config) -> Config:
        """Return the config of the servers that run here, without anything but them."""
        own = [each for each in config.groups if isinstance(each.upstream, Program)]
        groups = tuple(each for each in own if self._worker.home_of(each.name) == self._worker.number)
        return Config(
            file=config.file,
            groups=groups,
            presentations={each.name: _plain(each) for each in groups},
            warnings=(),
            max_message_bytes=config.max_message_bytes,
            roots=config.roots,
        )

    # --- links -----------------------------------------------------------------------------------------

    @property
    def max_message_bytes(self) -> int:
        return self._config.max_message_bytes

    async def admit(self, link: HomeLink, request: LinkRequest) -> StreamSession | None:
        """Return the session of a link; None if this version of its server does not run here, nor does soon."""
        self._links.add(link)
        try:
            async with asyncio.timeout(_KNOWN_WITHIN_S):
                while not self._runs(request):  # this worker may read the config a moment later than others
                    await self._applied.wait()
        except TimeoutError:
            log.warning("a link to `%s` is refused: it is of another version of the config", request.server)
            return None
        link.group = next(each for each in self.proxy.groups if each.name == request.server)
        origin = ClientOrigin(Authentication(request.user, "worker"), transport="socket", only=request.server)
        return StreamSession(ClientConnection(link.write, link.is_congested, origin), self.proxy)

    def _runs(self, request: LinkRequest) -> bool:
        found = next((each for each in self._config.groups if each.name == request.server), None)
        return found is not None and key(found) == request.launch

    def dismiss(self, link: HomeLink) -> None:
        """Called when a link has ended."""
        self._links.discard(link)


class HomeLink(asyncio.Protocol):
    """One link of a worker to a server that runs here, which is a client of it."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._lines = lines.Lines(homes.max_message_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._pacer: LinePacer
        self._session: StreamSession | None = None
        self._admission: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self._is_behind = self._is_full = False
        self._timer: asyncio.TimerHandle
        self.group: Group | None = None  # whose server this is
        self._has_told = False

    def write(self, line: bytes) -> None:
        if self._transport.is_closing():
            return
        if not self._has_told and self.group is not None and self.group.asks:
            self._has_told = True
            self._transport.write(ASKS + b"\n")
        self._transport.write(line)

    def is_congested(self) -> bool:
        return self._transport.get_write_buffer_size() > limits.FLOOD_BYTES

    def abort(self) -> None:
        self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.UNREAD_BYTES)
        self._pacer = LinePacer(self._receive, pause=self._fall_behind, resume=self._catch_up)
        self._timer = self._loop.call_later(_ASK_WITHIN_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._pacer.take(self._lines.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._admission is not None:
            self._admission.cancel()
        if self._session is not None:
            self._session.close()
        self._homes.dismiss(self)

    def pause_writing(self) -> None:
        """Read no more from a worker that does not read."""
        self._is_full = True
        self._watch()

    def resume_writing(self) -> None:
        self._is_full = False
        self._watch()

    def _fall_behind(self) -> None:
        self._is_behind = True
        self._watch()

    def _catch_up(self) -> None:
        self._is_behind = False
        self._watch()

    def _watch(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_full or self._is_behind:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- lines -----------------------------------------------------------------------------------------

    def _receive(self, line: bytes) -> None:
        if self._session is not None:
            self._session.receive(line)
        elif self._admission is not None:
            self._waiting.append(line)
        else:
            self._timer.cancel()
            self._admission = self._loop.create_task(self._admit(line), name="admission of a link")

    async def _admit(self, line: bytes) -> None:
        try:
            request = decode_as(line, LinkRequest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning("refused a link that does not say what it wants")
            self._transport.abort()
            return
        session = await self._homes.admit(self, request)
        if session is None:
            self._transport.abort()
            return
        self._session = session
        for each in self._waiting:
            session.receive(each)
        self._waiting.clear()


def _plain(group: GroupConfig) -> Presentation:
    """Return how a server is shown to workers: as it is."""
    return Presentation(
        description=None,
        features=Features(),
        tools=ToolFilter(),
        direct=DirectTools(),
        answers=CallHandling(validate="off", limit=group.max_message_bytes, compact=False),
    )
