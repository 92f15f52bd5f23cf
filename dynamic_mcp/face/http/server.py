"""Our HTTP/1.1 server: listens, and ends its connections gracefully or at once.

HTTP/2 is left to a reverse proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterable
from typing import TypedDict

from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress
from dynamic_mcp.face.http.connection import HttpConnection
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.face.http.exchange import Handler
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.listening import UnixSocket, bind_tcp

# Clients that may connect at once before one is accepted.
_BACKLOG = 2048
# How long a handshake of TLS may take.
_HANDSHAKE_WITHIN_S = 10.0
# How long aborted connections may take to close.
_ABORT_WITHIN_S = 1.0


class HttpServer:
    """Serves one handler on any number of addresses.

    Tests replace the clocks: `clock` returns monotonic seconds, `wall_clock` seconds since the epoch.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._connections = Connections(handler, clock=clock, wall_clock=wall_clock)
        self._servers: list[asyncio.Server] = []
        self._unix_sockets: list[UnixSocket] = []

    def __repr__(self) -> str:
        return f"<HttpServer {len(self._servers)} listening, {len(self._connections)} connections>"

    def set_bounds(self, *, connections: int, forwarders: Iterable[str]) -> None:
        """Set the maximum number of connections, and the proxies whose requests are counted by their clients."""
        admission = self._connections.admission
        admission.most, admission.forwarding = connections, Forwarding(forwarders)

    async def open(
        self, address: Address, *, tls: ssl.SSLContext | None = None, unix_mode: int = 0o600
    ) -> tuple[TcpAddress, ...]:
        """Listen; return the addresses with the chosen ports, none for a Unix socket. Raises OSError."""
        if isinstance(address, UnixAddress):
            await self._open_unix(address.path, tls, unix_mode)
            return ()
        loop = asyncio.get_running_loop()
        sockets = await loop.run_in_executor(None, bind_tcp, address)  # it resolves a name
        addresses = tuple(TcpAddress(*each.getsockname()[:2]) for each in sockets)
        try:
            while sockets:
                self._servers.append(await loop.create_server(self._accept, sock=sockets[-1], **_options(tls)))
                sockets.pop()
        finally:
            for each in sockets:
                each.close()
        return addresses

    async def _open_unix(self, path: str, tls: ssl.SSLContext | None, mode: int) -> None:
        bound = UnixSocket(path, mode)
        loop = asyncio.get_running_loop()
        try:
            self._servers.append(await loop.create_unix_server(self._accept, sock=bound.socket, **_options(tls)))
        except BaseException:
            bound.socket.close()
            bound.remove()
            raise
        self._unix_sockets.append(bound)

    def _accept(self) -> HttpConnection:
        return HttpConnection(self._connections)

    def close(self) -> None:
        """Stop listening, close idle connections, and end each of the others after its answer."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for each in self._unix_sockets:
            each.remove()
        self._unix_sockets.clear()
        self._connections.close_idle()

    async def drain(self, within_s: float) -> None:
        """Close, and abort the connections that are left after this many seconds."""
        self.close()
        try:
            async with asyncio.timeout(within_s):
                await self._connections.wait_until_empty()
        except TimeoutError:
            await self.abort()

    async def abort(self) -> None:
        self.close()
        self._connections.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_WITHIN_S):
                await self._connections.wait_until_empty()

    def sweep(self) -> None:
        """Check all connections. Called automatically once a second; tests call it after setting their clock."""
        self._connections.sweep()


class _Options(TypedDict, total=False):
    backlog: int
    ssl: ssl.SSLContext
    ssl_handshake_timeout: float


def _options(tls: ssl.SSLContext | None) -> _Options:
    if tls is None:
        return {"backlog": _BACKLOG}
    return {"backlog": _BACKLOG, "ssl": tls, "ssl_handshake_timeout": _HANDSHAKE_WITHIN_S}
