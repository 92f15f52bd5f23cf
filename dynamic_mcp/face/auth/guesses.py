"""Slows down whoever tries tokens, by the address that they come from; the tokens of everybody else are not delayed.

An address has a few wrong tokens for nothing, and then one a second: until then, a token that was not tried from
there before is refused without a look at it, so that the refusal tells nothing. One that was tried before is free,
right or wrong: that is a client that goes on, and it learns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import ip_address

from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding, site_of
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.rate_limiter import RateLimiter

BURST = 20
_EVERY_S = 1.0
_MAX_SITES = 10_000
_MAX_TRIED = 20_000


class TokenGuesses:
    """The wrong tokens of each address. Where an address is not known, nothing is slowed down."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._forwarding = Forwarding()
        self._now = now
        self._tried: BoundedDict[int, None] = BoundedDict(_MAX_TRIED)
        self._wrong = RateLimiter[str](BURST, _EVERY_S, most_keys=_MAX_SITES)

    def trust(self, forwarders: Iterable[str]) -> None:
        """Believe these reverse proxies from now on."""
        self._forwarding = Forwarding(forwarders)

    def must_wait(self, head: RequestHead) -> bool:
        """Return whether a token must not be looked at now."""
        return _key(head) not in self._tried and self._wrong.wait_s(self._site(head), self._now()) > 0

    def note_right(self, head: RequestHead) -> None:
        """Remember that a token counts, so that it is not delayed by what others try."""
        key = _key(head)
        if key not in self._tried:
            self._tried[key] = None

    def note_wrong(self, head: RequestHead) -> None:
        """Count a wrong token, unless it was tried before."""
        key = _key(head)
        site = "" if key in self._tried else self._site(head)
        self._tried[key] = None
        if site:
            self._wrong.take(site, self._now())

    def _site(self, head: RequestHead) -> str:
        """Return the address of a request; empty if a proxy on this machine, which is not trusted, has sent it."""
        if not self._forwarding.trusts(head.peer) and (b"x-forwarded-for" in head.headers or b"via" in head.headers):
            return "" if _is_loopback(head.peer) else site_of(head.peer)
        return site_of(self._forwarding.address_of(head))


def _key(head: RequestHead) -> int:
    """Return what a token of an address is remembered by; the hash is keyed, and new in each process."""
    headers = head.headers
    return hash((head.peer, headers.get(b"x-forwarded-for"), headers.get(b"authorization")))


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
