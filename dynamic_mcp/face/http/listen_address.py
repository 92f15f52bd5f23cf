"""Resolves a listen address, checks whether only this machine can reach it, and listens there."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.errors import ListenError, UnsafeAddress
from dynamic_mcp.system.text import os_reason

if TYPE_CHECKING:  # ASGI applications do not need it
    from dynamic_mcp.face.http.server import HttpServer

# How long the name of an address may take to resolve.
_RESOLVE_WITHIN_S = 5.0
# Errors for addresses that this machine does not have, such as `::1` where IPv6 is off.
_UNAVAILABLE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class ListenAddress(Struct, frozen=True):
    """A host and a port, and the numeric `addresses` that the host resolves to."""

    address: TcpAddress
    addresses: tuple[str, ...]

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return all(_is_loopback(each) for each in self.addresses)

    @property
    def is_any(self) -> bool:
        """True if it includes all addresses of this machine."""
        return any(ip_address(each.partition("%")[0]).is_unspecified for each in self.addresses)

    def list_hosts(self) -> tuple[str, ...]:
        """Return the names that clients may use for it in `Host`, without the port."""
        hosts = dict.fromkeys(_to_host(each.partition("%")[0]) for each in (self.address.host, *self.addresses))
        if self.is_any or self.is_loopback:
            hosts |= dict.fromkeys(LOOPBACK_HOSTS)
        if self.is_any:
            hosts[socket.gethostname().lower()] = None
        return tuple(hosts)


async def resolve_address(address: TcpAddress) -> ListenAddress:
    """Resolve an address. Raises ListenError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_WITHIN_S):
            found = await loop.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
    except TimeoutError as exc:
        raise ListenError(f"could not resolve `{address.host}` within {_RESOLVE_WITHIN_S:g} s") from exc
    except OSError as exc:
        hint = "use an address such as `127.0.0.1`, which needs no resolving"
        raise ListenError(f"could not resolve `{address.host}`: {os_reason(exc)}", hint=hint) from exc
    return ListenAddress(address, tuple(dict.fromkeys(str(each[4][0]) for each in found)))


async def listen_at(
    server: HttpServer, listen_address: ListenAddress, tls: ssl.SSLContext | None = None
) -> TcpAddress:
    """Listen at every resolved address; return the host with the chosen port. Raises OSError."""
    port, missing = listen_address.address.port, None
    opened = 0
    for address in listen_address.addresses:
        try:
            (at,) = await server.open(TcpAddress(address, port), tls=tls)
        except OSError as exc:
            if exc.errno not in _UNAVAILABLE:
                raise
            missing = exc
        else:
            port, opened = at.port, opened + 1  # all addresses get the same port
    if missing is not None and not opened:
        raise missing
    return TcpAddress(listen_address.address.host, port)


def refuse_unsafe(listen_address: ListenAddress) -> None:
    """Raise UnsafeAddress if other machines could use every server without authentication."""
    if not listen_address.is_loopback:
        raise UnsafeAddress(
            f"`{listen_address.address}` is reachable from other machines, and anyone there could use every server",
            hint="configure `settings.http.auth`; or listen on `127.0.0.1` or `unix:/path` behind a reverse proxy"
            " that authenticates clients; or allow this with `--insecure` or `settings.http.insecure`",
        )


def _is_loopback(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def _to_host(text: str) -> str:
    return f"[{text}]" if ":" in text else text.lower()
