"""Reports refused requests to observers: credentials, logins, hosts and origins, a few a minute for each address.

Further refusals are reported once, with their number. Reports have the reason of a refusal, never the credential.
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
# Further addresses count as one, so that unauthenticated clients cannot fill the disk.
MAX_SITES = 50
_LONGEST_PATH = 200


class _Window(Struct):
    """The refusals of one address since `began_at`, and the last of them that was not reported."""

    began_at: float
    refused: int = 0
    unreported: dict[str, object] | None = None


class DenialReporter:
    """Counts refusals by address; `tick` must be called regularly."""

    def __init__(self, record: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._windows: dict[str, _Window] = {}

    def add(self, head: RequestHead, rejection: AuthRejection, forwarding: Forwarding) -> None:
        """Report or count a refused request."""
        address = forwarding.address_of(head)
        site = site_of(address)
        if site not in self._windows and len(self._windows) >= MAX_SITES:
            site = address = "others"
        window = self._windows.setdefault(site, _Window(self._now()))
        window.refused += 1
        members: dict[str, object] = {
            "outcome": "denied",
            "provider": rejection.provider,
            "reason": rejection.why,
            "address": address,
            "path": head.target.partition(b"?")[0].decode("latin-1")[:_LONGEST_PATH],
        }
        if window.refused <= EACH_MINUTE:
            self._record(Event("auth.denied", members))
        else:
            window.unreported = members

    def tick(self) -> None:
        """Report the refusals that were only counted, a minute after the first one."""
        before = self._now() - WINDOW_S
        for site in [site for site, window in self._windows.items() if window.began_at <= before]:
            self._report(site)

    def close(self) -> None:
        """Report all refusals that were only counted."""
        for site in [*self._windows]:
            self._report(site)

    def _report(self, site: str) -> None:
        window = self._windows.pop(site)
        if window.unreported is not None:
            self._record(Event("auth.denied", {**window.unreported, "more": window.refused - EACH_MINUTE}))
