"""What the lists of a view answer, as objects that are the same as long as the answers are."""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.proxy.search import ToolSearch
from dynamic_mcp.proxy.subscriptions import Snapshot
from dynamic_mcp.proxy.tools import Tools
from dynamic_mcp.proxy.view import View


def take_snapshot(view: View, tools: Tools, search: ToolSearch) -> Snapshot:
    """Return what the lists of a view answer now."""
    if view.scope.is_single:
        return _take_of_one(view)
    search.learn()
    return {
        "tools": tools.snapshot(view),
        "resources": _entries(view, ListKind.RESOURCES, ListKind.TEMPLATES),
        "prompts": _entries(view, ListKind.PROMPTS),
    }


def _entries(view: View, *kinds: ListKind) -> Sequence[object]:
    found = ((group, kind, group.known.entries(kind)) for group in view if group.known for kind in kinds)
    return [part for group, kind, each in found if each for part in (group.name, kind, each)]


def _take_of_one(view: View) -> Snapshot:
    """Return what the lists of a group answer that is shown alone."""
    kinds: dict[str, list[ListKind]] = {}
    for kind in ListKind:
        kinds.setdefault(kind.capability, []).append(kind)
    return {feature: _listings(view, each) for feature, each in kinds.items()}


def _listings(view: View, kinds: Sequence[ListKind]) -> Sequence[object] | None:
    """Return what is known of these lists; None if the group has them to read, nothing if it has gone."""
    found: list[object] = []
    for group in view:
        if group.known is None or not group.known.knows(kinds):
            return None
        found += [group.known.lists[kind] for kind in kinds]
    return found
