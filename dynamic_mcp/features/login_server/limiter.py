"""How often one peer may do what costs memory or requests to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding, site_of
from dynamic_mcp.system.bounded import BoundedDict

_MAX_PEERS = 10_000


class RateLimiter:
    """Gives each peer a budget that fills up again at a steady rate."""

    def __init__(self, burst: int, per_minute: float, now: Callable[[], float]) -> None:
        self._burst = burst
        self._per_s = per_minute / 60
        self._now = now
        self._budgets: BoundedDict[str, tuple[float, float]] = BoundedDict(_MAX_PEERS)

    def may(self, peer: str) -> bool:
        """Take one from the budget of a peer, and return whether there was one."""
        now = self._now()
        left, since = self._budgets.get(peer) or (float(self._burst), now)
        left = min(self._burst, left + (now - since) * self._per_s)
        self._budgets.pop(peer, None)  # whoever comes again is the last to be forgotten
        self._budgets[peer] = (max(left - 1, 0) if left >= 1 else left, now)
        return left >= 1


class PeerAddresses:
    """Finds out from where a request came, behind reverse proxies that are trusted."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._forwarding = Forwarding(trusted)

    def find(self, head: RequestHead) -> str:
        """Return the address that a request came from, of IPv6 the network; the proxies of ours are not it."""
        return site_of(self._forwarding.address_of(head))
