"""Tells observers who is refused: credentials, logins, hosts and origins, a few a minute of one address at most.

Whoever tries many is told of once more, with their number. What was sent is never told, only why it was refused.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from dynamic_mcp.face.http.authenticator import AuthRejection
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding, site_of
from dynamic_mcp.proxy.request import Event

EACH_MINUTE = 10
WINDOW_S = 60.0
# All addresses beyond these count as one, so that nobody without a credential can fill the disk.
MAX_SITES = 50
_LONGEST_PATH = 200


class _Window(Struct):
    """What was refused from one address since `began_at`, and the last of it that nobody was told of."""

    began_at: float
    refused: int = 0
    untold: dict[str, object] | None = None


class Denials:
    """Counts what is refused by the address that it came from; `tick` is to be called now and then."""

    def __init__(self, note: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._note = note
        self._now = now
        self._windows: dict[str, _Window] = {}

    def add(self, head: RequestHead, refused: AuthRejection, forwarding: Forwarding) -> None:
        """Take a request that was refused."""
        address = forwarding.address_of(head)
        site = site_of(address)
        if site not in self._windows and len(self._windows) >= MAX_SITES:
            site = address = "others"
        window = self._windows.setdefault(site, _Window(self._now()))
        window.refused += 1
        members: dict[str, object] = {
            "outcome": "denied",
            "provider": refused.provider,
            "reason": refused.why,
            "address": address,
            "path": head.target.partition(b"?")[0].decode("latin-1")[:_LONGEST_PATH],
        }
        if window.refused <= EACH_MINUTE:
            self._note(Event("auth.denied", members))
        else:
            window.untold = members

    def tick(self) -> None:
        """Tell of those that were only counted, once their minute is over."""
        before = self._now() - WINDOW_S
        for site in [site for site, window in self._windows.items() if window.began_at <= before]:
            self._end(site)

    def close(self) -> None:
        """Tell of all that were only counted."""
        for site in [*self._windows]:
            self._end(site)

    def _end(self, site: str) -> None:
        window = self._windows.pop(site)
        if window.untold is not None:
            self._note(Event("auth.denied", {**window.untold, "more": window.refused - EACH_MINUTE}))
