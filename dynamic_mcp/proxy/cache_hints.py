"""Cache hints: how long a modern client may keep a result, and whether it may share it (MCP 2026-07-28, caching)."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.groups.catalog import ListHint, ListKind
from dynamic_mcp.mcp import envelope
from dynamic_mcp.proxy.view import GroupView, View

# Changes are announced to those who listen; others hear of them after this.
_LISTS_FOR_MS = 10_000
_KINDS = {kind.method: kind for kind in ListKind}
_READS = ("resources/read", "skills/get")
# The methods whose results may be kept.
CACHEABLE = frozenset((*_KINDS, "server/discover", *_READS))


class CacheHint(Struct, frozen=True):
    """A hint: milliseconds that a result is fresh, and whether it is for this client only."""

    ttl_ms: int
    is_private: bool

    @property
    def members(self) -> dict[str, object]:
        """The hint as members of a result."""
        return {envelope.TTL_MS: self.ttl_ms, envelope.CACHE_SCOPE: "private" if self.is_private else "public"}


_READ = CacheHint(0, is_private=True)


def cache_hint(view: View, method: str, now: float, *, is_private: bool) -> CacheHint:
    """Return the hint for a result of one of the `CACHEABLE` methods.

    A list from which something is missing is stale at once, and none is fresh for longer than what modern servers say
    of their part of it. `is_private`: views differ between clients.
    """
    if method == "server/discover":
        return CacheHint(_LISTS_FOR_MS, is_private=is_private)
    if method in _READS:
        return _READ
    kind = _KINDS[method]
    # our own tools are always there
    if kind is ListKind.TOOLS and not view.scope.is_single:
        return CacheHint(_LISTS_FOR_MS, is_private=is_private)
    groups = view.offering(kind.capability)
    hints = {group: hint for group in groups if (hint := _hint_of(group, kind)) is not None}
    left_ms = [int(1000 * _left_s(group, kind, hint, now)) for group, hint in hints.items()]
    is_incomplete = any(group.complaint([kind]) for group in groups)
    return CacheHint(
        0 if is_incomplete else min([_LISTS_FOR_MS, *left_ms]),
        is_private=is_private or any(hint.is_private for hint in hints.values()),
    )


def _hint_of(group: GroupView, kind: ListKind) -> ListHint | None:
    listing = group.catalog.lists.get(kind) if group.catalog else None
    return listing.hint if listing else None


def _left_s(group: GroupView, kind: ListKind, hint: ListHint, now: float) -> float:
    """Return how long a list is fresh; one whose changes are announced is fresh until then."""
    is_announced = group.catalog is not None and group.catalog.announces(kind)
    return hint.ttl_s if is_announced else max(0.0, hint.read_at + hint.ttl_s - now)
