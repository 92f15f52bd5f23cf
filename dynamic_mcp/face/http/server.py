"""Our HTTP/1.1 server: listens, and ends its connections gracefully or at once.

HTTP/2 is left to a reverse proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol, TypedDict

from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress
from dynamic_mcp.face.http.connection import HttpConnection
from dynamic_mcp.face.http.connections import Connections
from dynamic_mcp.face.http.exchange import Handler
from dynamic_mcp.face.http.forwarding import Forwarding

# Clients that may connect at once before one is accepted.
_BACKLOG = 2048
# How long a handshake of TLS may take.
_HANDSHAKE_WITHIN_S = 10.0
# The turns of the loop after which a connection that was accepted is one of ours, to be closed.
_TURNS_TO_CONNECT = 3
# How long connections that waited to be accepted may take to be ours, which with TLS needs their clients.
_CONNECT_WITHIN_S = 1.0
# How long aborted connections may take to close.
_ABORT_WITHIN_S = 1.0


class SocketSource(Protocol):
    """Sockets that listen already."""

    def take(self, address: Address) -> list[socket.socket]:
        """Return the sockets that listen at an address; they are the caller's from now on."""
        ...


class HttpServer:
    """Serves one handler on any number of addresses. Processes that share a port get connections by turns.

    Tests replace the clocks: `clock` returns monotonic seconds, `wall_clock` seconds since the epoch.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        shares_port: bool = False,
        passed: SocketSource | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._shares_port = shares_port
        self._passed = passed
        self._connections = Connections(handler, clock=clock, wall_clock=wall_clock)
        self._servers: list[asyncio.Server] = []
        self._tls: dict[asyncio.Server, ssl.SSLContext | None] = {}
        self._unix_sockets: list[_UnixSocket] = []

    def __repr__(self) -> str:
        return f"<HttpServer {len(self._servers)} listening, {len(self._connections)} connections>"

    def set_bounds(self, *, connections: int, forwarders: Iterable[str]) -> None:
        """Set the maximum number of connections, and the proxies whose requests are counted by their clients."""
        admission = self._connections.admission
        admission.most, admission.forwarding = connections, Forwarding(forwarders)

    async def open(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        unix_mode: int = 0o600,
        platform: str = sys.platform,
    ) -> tuple[TcpAddress, ...]:
        """Listen; return the addresses with the chosen ports, none for a Unix socket. Raises OSError."""
        loop = asyncio.get_running_loop()
        sockets = [] if self._passed is None else self._passed.take(address)
        if isinstance(address, UnixAddress) and not sockets:
            await self._open_unix(address.path, tls, unix_mode)
            return ()
        if isinstance(address, TcpAddress) and not sockets:
            bind = partial(_bind_tcp, address, platform, shares_port=self._shares_port)
            sockets = await loop.run_in_executor(None, bind)  # it resolves a name
        is_tcp = isinstance(address, TcpAddress)
        addresses = tuple(TcpAddress(*each.getsockname()[:2]) for each in sockets) if is_tcp else ()
        try:
            while sockets:
                self._add(await loop.create_server(self._accept, sock=sockets[-1], **_options(tls)), tls)
                sockets.pop()
        finally:
            for each in sockets:
                each.close()
        return addresses

    async def _open_unix(self, path: str, tls: ssl.SSLContext | None, mode: int) -> None:
        bound = _UnixSocket(path, mode)
        loop = asyncio.get_running_loop()
        try:
            self._add(await loop.create_unix_server(self._accept, sock=bound.socket, **_options(tls)), tls)
        except BaseException:
            bound.socket.close()
            bound.remove()
            raise
        self._unix_sockets.append(bound)

    def _add(self, server: asyncio.Server, tls: ssl.SSLContext | None) -> None:
        self._servers.append(server)
        self._tls[server] = tls

    def _accept(self) -> HttpConnection:
        return HttpConnection(self._connections)

    def retire(self) -> None:
        """End each connection after its next answer, and go on listening: no request is lost on a closed one.

        One that has had no request yet stays open for one when the server closes.
        """
        self._connections.retire()

    def close(self) -> None:
        """Stop listening, close idle connections, and end each of the others after its answer."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._tls.clear()
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

    async def stop_accepting(self, *, leaves_waiting: bool = False) -> None:
        """Stop listening, and serve all who have connected until then, or leave those to the next process.

        asyncio loses what it has just accepted if it closes at once, and the system resets what was not accepted if
        nobody else has the socket.
        """
        loop = asyncio.get_running_loop()
        servers = [*self._servers]
        try:
            for server in servers:
                for listening in server.sockets:
                    loop.remove_reader(listening)
        except NotImplementedError:  # the loop of Windows has no readers
            servers.clear()
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)
        connecting = []
        for server in servers:
            waiting: list[socket.socket] = []
            if not leaves_waiting:
                waiting = [each for listening in server.sockets for each in _accept_all(listening)]
            server.close()
            connecting += [loop.create_task(self._connect(each, self._tls[server])) for each in waiting]
        if connecting:
            await asyncio.wait(connecting, timeout=_CONNECT_WITHIN_S)

    async def _connect(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serve a connection that was accepted without the loop."""
        connect = asyncio.get_running_loop().connect_accepted_socket
        with contextlib.suppress(OSError):
            if tls is None:
                await connect(self._accept, accepted)
            else:
                await connect(self._accept, accepted, ssl=tls, ssl_handshake_timeout=_CONNECT_WITHIN_S)

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


def _accept_all(listening: socket.socket) -> list[socket.socket]:
    """Accept the connections that wait for it."""
    accepted: list[socket.socket] = []
    with listening.dup() as own:
        own.settimeout(0)
        with contextlib.suppress(OSError):  # there is none left, or no descriptor for it
            while True:
                accepted.append(own.accept()[0])
    return accepted


# --- sockets ---------------------------------------------------------------------------------------------


def _bind_tcp(address: TcpAddress, platform: str, *, shares_port: bool = False) -> list[socket.socket]:
    """Return a bound socket for each address of the host. Raises OSError."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            try:
                bound.append(_bind(family, kind, protocol, where, platform, shares_port=shares_port))
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = exc  # a name may have an IPv6 address on a machine without IPv6
    except BaseException:
        for each in bound:
            each.close()
        raise
    if missing is not None and not bound:
        raise missing
    return bound


def _bind(
    family: int, kind: int, protocol: int, where: tuple[object, ...], platform: str, *, shares_port: bool
) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        if shares_port and sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if platform != "win32":  # on Windows it would let two processes use the same port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
    except BaseException:
        listening.close()
        raise
    return listening


class _UnixSocket:
    """A bound Unix socket. A stale socket file is replaced, and ours is removed at the end."""

    def __init__(self, path: str, mode: int) -> None:
        """Bind. Raises OSError, with EADDRINUSE if the path is in use."""
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "asyncio has no Unix sockets on Windows", path)
        self._path = Path(path)
        _remove_stale(self._path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o777 & ~mode)  # so that it never exists with other permissions
        try:
            self.socket.bind(path)
        except BaseException:
            self.socket.close()
            raise
        finally:
            os.umask(before)
        self._inode = self._path.stat().st_ino

    def remove(self) -> None:
        """Remove the file, unless it was replaced."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "the path is a file that is not a socket", str(path))
    if sys.platform != "win32":  # where Python has no such sockets
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except FileNotFoundError:
                pass
            except OSError as exc:
                raise OSError(errno.EADDRINUSE, "another process listens here", str(path)) from exc
            else:
                raise OSError(errno.EADDRINUSE, "another process listens here", str(path))
