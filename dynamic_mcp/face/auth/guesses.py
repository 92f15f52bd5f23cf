"""Slows down clients that guess tokens, by their address; the tokens of other addresses are not delayed.

An address may try a few wrong tokens, and then one a second. While it must wait, a new token is refused without being
checked, so that the refusal reveals nothing. A token that was tried before is never delayed, right or wrong: the
client only repeats it.
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
    """Counts the wrong tokens of each address. Unknown addresses are not slowed down."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._forwarding = Forwarding()
        self._now = now
        self._tried: BoundedDict[int, None] = BoundedDict(_MAX_TRIED)
        self._wrong = RateLimiter[str](BURST, _EVERY_S, most_keys=_MAX_SITES)

    def trust(self, forwarders: Iterable[str]) -> None:
        """Set the trusted reverse proxies."""
        self._forwarding = Forwarding(forwarders)

    def must_wait(self, head: RequestHead) -> bool:
        """Return whether the token must not be checked now."""
        return _key(head) not in self._tried and self._wrong.wait_s(self._site(head), self._now()) > 0

    def record_right(self, head: RequestHead) -> None:
        """Remember a valid token, so that guesses from the same address do not delay it."""
        key = _key(head)
        if key not in self._tried:
            self._tried[key] = None

    def record_wrong(self, head: RequestHead) -> None:
        """Count a wrong token, unless it was tried before."""
        key = _key(head)
        site = "" if key in self._tried else self._site(head)
        self._tried[key] = None
        if site:
            self._wrong.take(site, self._now())

    def _site(self, head: RequestHead) -> str:
        """Return the client's address; empty if an untrusted proxy on this machine has sent the request."""
        if not self._forwarding.trusts(head.peer) and (b"x-forwarded-for" in head.headers or b"via" in head.headers):
            return "" if _is_loopback(head.peer) else site_of(head.peer)
        return self._forwarding.site_of(head)


def _key(head: RequestHead) -> int:
    """Return the key that a token of an address is remembered by; it differs in each process."""
    headers = head.headers
    return hash((head.peer, headers.get(b"x-forwarded-for"), headers.get(b"authorization")))


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
