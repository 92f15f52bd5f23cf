"""Decides to which addresses a server may send us during a login: to no network that it is not in itself.

A server names the endpoints of its login itself, and a hostile one could name a router or the metadata service of a
cloud. Everything must be https (RFC 9700; MCP, authorization, section "Communication Security"). Each name is
resolved first, and the connection then uses the address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from urllib.parse import urlsplit

Resolver = Callable[[str, int], Awaitable[list[str]]]

RESOLVE_S = 5.0
_NOT_THERE = "but the server itself is elsewhere"
# The characters allowed in a login URL; all others have a meaning in some shell.
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!&*+,=%]+")


class ForbiddenUrl(Exception):
    """Raised for a forbidden URL; the message is the rest of a sentence that starts with the URL."""


class Zone(Enum):
    """The kind of network of an address."""

    PUBLIC = "the internet"
    PRIVATE = "a private network"
    LOOPBACK = "this machine"
    SPECIAL = "a reserved range"


# The zones that a server in a zone may refer to: a public one only to the internet, a local one also to its network.
_ALLOWED = {
    Zone.PUBLIC: frozenset({Zone.PUBLIC}),
    Zone.PRIVATE: frozenset({Zone.PUBLIC, Zone.PRIVATE}),
    Zone.LOOPBACK: frozenset({Zone.PUBLIC, Zone.PRIVATE, Zone.LOOPBACK}),
    Zone.SPECIAL: frozenset({Zone.PUBLIC}),
}


class AddressPolicy:
    """The addresses that the login of one server may connect to.

    With `may_be_local` False, for URLs that any client can name, a server on this machine may only lead to the
    internet.
    """

    def __init__(self, server_url: str, resolver: Resolver | None = None, *, may_be_local: bool = True) -> None:
        self._server_url = server_url
        self._may_be_local = may_be_local
        self._resolver = resolver or resolve_host
        self._zone: Zone | None = None

    def check(self, url: str) -> None:
        """Reject a URL that is not http(s), or is plain http outside of this machine. Raises ForbiddenUrl."""
        scheme, host, _ = split_url(url)
        if scheme == "http":
            if not (self._may_be_local and _is_this_machine(host) and self._is_server_local()):
                raise ForbiddenUrl("is not https")
        elif scheme != "https":
            raise ForbiddenUrl(f"has the scheme `{scheme[:20]}`, which is neither http nor https")

    def check_endpoint(self, url: str) -> None:
        """Also reject a URL that is not a plain link, to which a user can be sent. Raises ForbiddenUrl."""
        self.check(url)
        if not _PLAIN.fullmatch(url):
            raise ForbiddenUrl("contains forbidden characters")
        if "@" in urlsplit(url).netloc:
            raise ForbiddenUrl("has a user name in front of its host")

    async def resolve(self, url: str) -> list[str]:
        """Return the addresses of a URL's host. Raises ForbiddenUrl if one is not allowed, and OSError."""
        self.check(url)
        _, host, port = split_url(url)
        addresses = await self._resolver(host, port)
        allowed = _ALLOWED[await self._server_zone()]
        for address in addresses:
            if (zone := zone_of(address)) not in allowed:
                where = "which needs `local_client_documents`" if self._is_restricted() else _NOT_THERE
                raise ForbiddenUrl(f"leads into {zone.value}, {where}")
        return addresses

    def _is_restricted(self) -> bool:
        return not self._may_be_local and self._is_server_local()

    def _is_server_local(self) -> bool:
        scheme, host, _ = split_url(self._server_url)
        return scheme == "http+unix" or _is_this_machine(host)

    async def _server_zone(self) -> Zone:
        if self._zone is None:
            if self._is_server_local():
                self._zone = Zone.LOOPBACK if self._may_be_local else Zone.PUBLIC
            else:
                _, host, port = split_url(self._server_url)
                self._zone = _common_zone({zone_of(address) for address in await self._resolver(host, port)})
        return self._zone


def zone_of(address: str) -> Zone:
    """Return the zone of an address; an IPv6 address that embeds an IPv4 address has the zone of the latter."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or _nat64_ipv4(ip) or ip
    if ip.is_loopback:
        return Zone.LOOPBACK
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return Zone.SPECIAL
    return Zone.PUBLIC if ip.is_global else Zone.PRIVATE


def split_url(url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of a URL. Raises ForbiddenUrl."""
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port or {"http": 80}.get(split.scheme, 443)
    except ValueError:
        raise ForbiddenUrl("is not a URL") from None
    if split.scheme in ("http", "https") and (not host or any(c <= " " or c == "\x7f" for c in url)):
        raise ForbiddenUrl("is not a URL")
    return split.scheme.lower(), host, port


def is_same_host(url: str, other: str) -> bool:
    """Return whether two URLs have the same host, regardless of the port."""
    try:
        return split_url(url)[1] == split_url(other)[1] != ""
    except ForbiddenUrl:
        return False


def is_address(url: str) -> bool:
    """Return whether a URL's host needs no resolving: an address in any notation, or this machine's name."""
    host = split_url(url)[1]
    last = host.rstrip(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x") or _is_this_machine(host)


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the system's order. Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as exc:  # a label is empty, or too long
        raise socket.gaierror(socket.EAI_NONAME, "it is no name of a host") from exc
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


def _is_this_machine(host: str) -> bool:
    """Return whether a host name always means this machine, regardless of name servers."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return zone_of(host) is Zone.LOOPBACK
    except ValueError:
        return False


def _common_zone(zones: Collection[Zone]) -> Zone:
    """Return the zone of a server with several addresses; PUBLIC, the strictest, if they differ."""
    return next(iter(zones)) if len(zones) == 1 else Zone.PUBLIC


def _nat64_ipv4(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a NAT64 address embeds (RFC 6052)."""
    if ip in ipaddress.IPv6Network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None
