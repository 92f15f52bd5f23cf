"""Finds out where an address listens, and whether only this machine can reach it; and listens there."""

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

if TYPE_CHECKING:  # loaded where HTTP is served by ourselves
    from dynamic_mcp.face.http.server import HttpServer

# How long the name of an address may take to resolve.
_RESOLVE_WITHIN_S = 5.0
# What a name resolves to and this machine may not have, such as `::1` where IPv6 is off.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class Place(Struct, frozen=True):
    """Where a host and a port are: the `addresses` that they resolve to, as numbers."""

    address: TcpAddress
    addresses: tuple[str, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return all(_is_loopback(each) for each in self.addresses)

    @property
    def is_any(self) -> bool:
        """Whether it is every address of this machine."""
        return any(ip_address(each.partition("%")[0]).is_unspecified for each in self.addresses)

    def list_hosts(self) -> tuple[str, ...]:
        """Return what clients may call it in `Host`, without the port."""
        hosts = dict.fromkeys(_to_host(each.partition("%")[0]) for each in (self.address.host, *self.addresses))
        if self.is_any or self.is_loopback:
            hosts |= dict.fromkeys(LOOPBACK_HOSTS)
        if self.is_any:
            hosts[socket.gethostname().lower()] = None
        return tuple(hosts)


async def find_place(address: TcpAddress) -> Place:
    """Resolve an address. Raises ListenError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_WITHIN_S):
            found = await loop.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
    except TimeoutError as exc:
        raise ListenError(f"`{address.host}` cannot be resolved within {_RESOLVE_WITHIN_S:g} s") from exc
    except OSError as exc:
        hint = "an address such as `127.0.0.1` needs no resolving"
        raise ListenError(f"`{address.host}` cannot be resolved: {os_reason(exc)}", hint=hint) from exc
    return Place(address, tuple(dict.fromkeys(str(each[4][0]) for each in found)))


async def open_at(server: HttpServer, place: Place, tls: ssl.SSLContext | None = None) -> TcpAddress:
    """Listen at every address of a place; return its host with the port that was chosen. Raises OSError."""
    port, missing = place.address.port, None
    opened = 0
    for address in place.addresses:
        try:
            (at,) = await server.open(TcpAddress(address, port), tls=tls)
        except OSError as exc:
            if exc.errno not in _NOT_HERE:
                raise
            missing = exc
        else:
            port, opened = at.port, opened + 1  # where any port will do, all addresses have the same
    if missing is not None and not opened:
        raise missing
    return TcpAddress(place.address.host, port)


def refuse_unsafe(place: Place) -> None:
    """Raise UnsafeAddress for an address that others can reach, who could use every server without being asked."""
    if not place.is_loopback:
        raise UnsafeAddress(
            f"`{place.address}` can be reached from other machines, and anybody there could use every server",
            hint="say in `settings.http.auth` how clients show who they are; or listen on `127.0.0.1` or `unix:/path`"
            " behind a reverse proxy that asks them; or say that you want this with `--insecure` or"
            " `settings.http.insecure`",
        )


def _is_loopback(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def _to_host(text: str) -> str:
    return f"[{text}]" if ":" in text else text.lower()
