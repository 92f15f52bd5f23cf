"""From where a request came, as far as reverse proxies that are trusted say it."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding, site_of


class PeerAddresses:
    """Finds out from where a request came, behind reverse proxies that are trusted."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._forwarding = Forwarding(trusted)

    def find(self, head: RequestHead) -> str:
        """Return the address that a request came from, of IPv6 the network; the proxies of ours are not it."""
        return site_of(self._forwarding.address_of(head))
