"""Finds the client's address of a request behind reverse proxies, each of which adds the address of its peer.

Only addresses added by trusted proxies count, from the last one back to the first that is not a trusted proxy.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network

from dynamic_mcp.face.http.exchange import GONE, RequestHead
from dynamic_mcp.face.http.trusted_peers import TrustedPeers

_MAX_BYTES = 4096


class Forwarding:
    """The reverse proxies whose `X-Forwarded-For` is trusted: addresses, networks, and `unix`."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        proxies = tuple(proxies)
        self._trusted = TrustedPeers(proxies) if proxies else None

    def trusts(self, peer: str) -> bool:
        return self._trusted is not None and peer in self._trusted

    def address_of(self, head: RequestHead) -> str:
        """Return the client's address; empty if it is unknown, as over a Unix socket."""
        peer = "" if head.peer == GONE else head.peer
        if self._trusted is None or head.peer not in self._trusted:
            return peer
        hops = head.headers.get(b"x-forwarded-for", b"")[-_MAX_BYTES:].decode("latin-1").split(",")
        while hops and peer in self._trusted and (before := _address(hops.pop())):
            peer = before
        return peer

    def site_of(self, head: RequestHead) -> str:
        """Return the `site_of` the client's address."""
        return site_of(self.address_of(head))

    def port_of(self, head: RequestHead) -> int:
        """Return the client's port; 0 behind a reverse proxy."""
        return head.port if self._trusted is None or head.peer not in self._trusted else 0


def site_of(address: str) -> str:
    """Return the addresses of one subscriber: an IPv4 address, or an IPv6 /64; empty for an invalid address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(ip_network((int(found) >> 64 << 64, 64))) if isinstance(found, IPv6Address) else str(found)


def _address(hop: str) -> str:
    """Return the address of a hop; empty if it is invalid. Some proxies add a port: `[2001:db8::1]:50000`."""
    hop = hop.strip()
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ip_address(hop))
    except ValueError:
        return ""
