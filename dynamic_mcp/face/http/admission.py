"""Limits the number of connections, in total and from one address, before clients are authenticated.

All connections from a trusted reverse proxy have the same address, so requests in flight are counted instead, by the
address that the proxy names. Peers of a Unix socket have no address; only their total is limited.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding, site_of
from dynamic_mcp.system.rate_limiter import RateLimiter

log = logging.getLogger(__name__)

_WARN_EVERY_S = 60.0


class ConnectionLimiter:
    """Counts connections, and requests from behind trusted proxies. `most` limits the connections of a server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.most = limits.CONNECTIONS
        self.forwarding = Forwarding()
        self._clock = clock
        self._connections = 0
        self._by_site: Counter[str] = Counter()
        self._warnings = RateLimiter[None](1, _WARN_EVERY_S)

    def __repr__(self) -> str:
        return f"<ConnectionLimiter {self._connections} connections, {len(self._by_site)} addresses>"

    def admit(self, peer: str) -> str | None:
        """Count a connection, and return the argument for `leave`; None if there are too many."""
        site = "" if self.forwarding.trusts(peer) else site_of(peer)
        if self._connections >= self.most:
            self._warn("%d connections are open", self._connections)
            return None
        if not self._take(site):
            self._warn("%s has %d connections or requests", site, self._by_site[site])
            return None
        self._connections += 1
        return site

    def leave(self, site: str) -> None:
        self._connections -= 1
        self.end_request(site)

    def begin_request(self, head: RequestHead) -> str | None:
        """Count a request of a trusted proxy by its client, until `end_request`; None if there are too many."""
        site = self.forwarding.site_of(head)
        if self._take(site):
            return site
        self._warn("%s has %d requests", site, self._by_site[site])
        return None

    def end_request(self, site: str) -> None:
        if site:
            self._by_site[site] -= 1
            if not self._by_site[site]:
                del self._by_site[site]

    def _take(self, site: str) -> bool:
        if not site:
            return True
        if self._by_site[site] >= limits.CONNECTIONS_OF_ADDRESS:
            return False
        self._by_site[site] += 1
        return True

    def _warn(self, message: str, *facts: object) -> None:
        if self._warnings.take(None, self._clock()):
            log.warning(f"{message}; refusing more for now", *facts)
