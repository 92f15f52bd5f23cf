"""How long a modern client may keep what it was answered, and whether it may share it (MCP 2026-07-28, caching)."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import envelope
from dynamic_mcp.proxy.view import SingleView, View

# Changes are announced to those who listen; others hear of them after this.
_LISTS_FOR_MS = 10_000
_KINDS = {kind.method: kind for kind in ListKind}


class CacheHint(Struct, frozen=True):
    """A hint: milliseconds that a result is fresh, and whether it is for this client only."""

    ttl_ms: int
    is_private: bool

    @property
    def members(self) -> dict[str, object]:
        """The hint as members of a result."""
        return {envelope.TTL_MS: self.ttl_ms, envelope.CACHE_SCOPE: "private" if self.is_private else "public"}


_READ = CacheHint(0, is_private=True)


def cache_hint(view: View, method: str, *, is_private: bool) -> CacheHint | None:
    """Return the hint for a result of a method; None where the method has none.

    A list from which something is missing is stale at once. `is_private`: views differ between clients.
    """
    if method == "server/discover":
        return CacheHint(_LISTS_FOR_MS, is_private=is_private)
    if method == "resources/read":
        return _READ
    kind = _KINDS.get(method)
    if kind is None:
        return None
    # our own tools are always there
    is_of_groups = isinstance(view, SingleView) or kind is not ListKind.TOOLS
    is_incomplete = is_of_groups and any(group.complaint([kind]) for group in view.offering(kind.capability))
    return CacheHint(0 if is_incomplete else _LISTS_FOR_MS, is_private=is_private)
