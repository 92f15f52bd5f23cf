"""Which addresses a server may send us to while logging in: none in a network that it is not itself in.

A server names the places of its login itself, and a hostile one could name the metadata service of a cloud or a
router. Everything must be https (RFC 9700; MCP, authorization, section "Communication Security"), and each name
is resolved before it is connected to; the connection then goes to the address that was looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from urllib.parse import urlsplit

Resolve = Callable[[str, int], Awaitable[list[str]]]

RESOLVE_S = 5.0


class Forbidden(Exception):
    """A URL that may not be used, and why in words that follow it."""


class Place(Enum):
    """What kind of network an address is in."""

    PUBLIC = "the internet"
    PRIVATE = "a private network"
    LOOPBACK = "this machine"
    SPECIAL = "a reserved range"


# What a server may send us to: a public one nowhere else, a local one to its own network as well.
_NEAR = {
    Place.PUBLIC: frozenset({Place.PUBLIC}),
    Place.PRIVATE: frozenset({Place.PUBLIC, Place.PRIVATE}),
    Place.LOOPBACK: frozenset({Place.PUBLIC, Place.PRIVATE, Place.LOOPBACK}),
    Place.SPECIAL: frozenset({Place.PUBLIC}),
}


class Reach:
    """What the login of one server may touch."""

    def __init__(self, server_url: str, resolve: Resolve | None = None) -> None:
        self._server_url = server_url
        self._resolve = resolve or resolved
        self._place: Place | None = None

    def check(self, url: str) -> None:
        """Refuse a URL that is not http(s), or plain http outside this machine. Raises Forbidden."""
        scheme, host, _ = parts(url)
        if scheme == "http":
            if not (_is_here(host) and self._server_is_here()):
                raise Forbidden("is not https")
        elif scheme != "https":
            raise Forbidden(f"has the scheme `{scheme[:20]}`, which is neither http nor https")

    async def addresses(self, url: str) -> list[str]:
        """Return the addresses to connect to, all of which may be reached. Raises Forbidden and OSError."""
        self.check(url)
        _, host, port = parts(url)
        found = await self._resolve(host, port)
        near = _NEAR[await self._own_place()]
        for address in found:
            if (place := place_of(address)) not in near:
                raise Forbidden(f"leads into {place.value}, where the server itself is not")
        return found

    def _server_is_here(self) -> bool:
        scheme, host, _ = parts(self._server_url)
        return scheme == "http+unix" or _is_here(host)

    async def _own_place(self) -> Place:
        if self._place is None:
            if self._server_is_here():
                self._place = Place.LOOPBACK
            else:
                _, host, port = parts(self._server_url)
                self._place = _all_in({place_of(address) for address in await self._resolve(host, port)})
        return self._place


def place_of(address: str) -> Place:
    """Return what kind of network an address is in; one that carries an IPv4 address is where that is."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or _translated(ip) or ip
    if ip.is_loopback:
        return Place.LOOPBACK
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return Place.SPECIAL
    return Place.PUBLIC if ip.is_global else Place.PRIVATE


def parts(url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of a URL. Raises Forbidden."""
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port or {"http": 80}.get(split.scheme, 443)
    except ValueError:
        raise Forbidden("is not a URL") from None
    if split.scheme in ("http", "https") and (not host or any(c <= " " or c == "\x7f" for c in url)):
        raise Forbidden("is not a URL")
    return split.scheme.lower(), host, port


def is_same_host(url: str, other: str) -> bool:
    """Tell whether two URLs are on one host, whatever the port."""
    return parts(url)[1] == parts(other)[1] != ""


def is_address(url: str) -> bool:
    """Tell whether a URL's host is an address in any of its notations, or this machine's name: no name to look up."""
    host = parts(url)[1]
    last = host.rstrip(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x") or _is_here(host)


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the system's order. Raises OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RESOLVE_S):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_here(host: str) -> bool:
    """Tell whether a host is this machine by its name alone, which nobody's name server can change."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return place_of(host) is Place.LOOPBACK
    except ValueError:
        return False


def _all_in(places: Collection[Place]) -> Place:
    """Return the place of a server with several addresses: only where all of them are."""
    return next(iter(places)) if len(places) == 1 else Place.PUBLIC


def _translated(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a NAT64 address stands for (RFC 6052)."""
    if ip in ipaddress.IPv6Network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None
