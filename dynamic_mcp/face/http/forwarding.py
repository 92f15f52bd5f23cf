"""From which address a request comes, also behind reverse proxies: each adds where it got it from.

Only the addresses that trusted proxies add are believed, from the last one back to the first that is none of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network

from dynamic_mcp.face.http.exchange import GONE, RequestHead
from dynamic_mcp.face.http.trusted_peers import TrustedPeers

# Some proxies add the port too: `192.0.2.1:50000`, `[2001:db8::1]:50000`.
_MAX_BYTES = 4096


class Forwarding:
    """The reverse proxies whose `X-Forwarded-For` counts: addresses, networks, and `unix`."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        proxies = tuple(proxies)
        self._trusted = TrustedPeers(proxies) if proxies else None

    def trusts(self, peer: str) -> bool:
        """Return whether a peer is one of these proxies."""
        return self._trusted is not None and peer in self._trusted

    def address_of(self, head: RequestHead) -> str:
        """Return the address that a request came from; empty if nobody knows it, as over a Unix socket."""
        peer = "" if head.peer == GONE else head.peer
        if self._trusted is None or head.peer not in self._trusted:
            return peer
        hops = head.headers.get(b"x-forwarded-for", b"")[-_MAX_BYTES:].decode("latin-1").split(",")
        while hops and peer in self._trusted and (before := _address(hops.pop())):
            peer = before
        return peer

    def port_of(self, head: RequestHead) -> int:
        """Return the port that a request came from; 0 if that is the port of a reverse proxy."""
        return head.port if self._trusted is None or head.peer not in self._trusted else 0


def site_of(address: str) -> str:
    """Return what one subscriber has: an IPv4 address, or the /64 of an IPv6 address; empty if it is no address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(ip_network((int(found) >> 64 << 64, 64))) if isinstance(found, IPv6Address) else str(found)


def _address(hop: str) -> str:
    """Return the address of a hop, without a port; empty if it is none."""
    hop = hop.strip()
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ip_address(hop))
    except ValueError:
        return ""
