"""The peers whose headers are trusted, such as reverse proxies, by their addresses."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network

_UNIX = "unix"


class TrustedPeers:
    """The trusted peers of a config: addresses, networks, and `unix` for all peers of Unix sockets."""

    def __init__(self, peers: Iterable[str]) -> None:
        peers = tuple(peers)
        self._networks = [ip_network(each, strict=False) for each in peers if each != _UNIX]
        self._has_unix = _UNIX in peers

    def __contains__(self, peer: str) -> bool:
        """Return whether a peer is trusted; the peer of a Unix socket is an empty string."""
        if not peer:
            return self._has_unix
        try:
            address = ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
