"""The proxy's capabilities for a client: the union of what the groups of its view can."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from msgspec import Raw

from dynamic_mcp.config.resolved import SkillFolders
from dynamic_mcp.config.types import NO_LIMIT
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.proxy.view import GroupView, View

_EXPERIMENTAL, _EXTENSIONS = "experimental", "extensions"
# The extensions whose lists are merged over groups.
_MERGED = {kind.extension: kind for kind in ListKind if kind.extension}
_TRUE = Raw(b"true")


def capabilities(view: View, revision: Revision) -> dict[str, object]:
    """Return the capabilities of a view; a group that is not known yet may be able to do everything."""

    def has(feature: str, *part: str) -> bool:
        return any(group.catalog is None or group.catalog.may(feature, *part) for group in view.offering(feature))

    found: dict[str, object] = {"tools": {"listChanged": True}}
    extensions = _merge_extensions(view)
    if has("resources") or any(
        kind.capability == "resources" for kind in _MERGED.values() if kind.extension in extensions
    ):
        subscribe = {"subscribe": True} if has("resources", "subscribe") else {}
        found["resources"] = {**subscribe, "listChanged": True}
    elif any(group.presentation.answers.limit < NO_LIMIT for group in view.offering("tools")):
        found["resources"] = {}  # what is cut from a result is read as one
    if has("prompts"):
        found["prompts"] = {"listChanged": True}
    found |= {"completions": {}} if has("completions") else {}
    found["logging"] = {}  # the proxy has log messages too
    found |= {_EXPERIMENTAL: merged} if (merged := _merge(view, _EXPERIMENTAL)) else {}
    extensions |= {feature.extension: {} for feature in view.scope.extensions}
    found |= {_EXTENSIONS: extensions} if extensions else {}
    if revision.has_tasks and has("tasks"):
        found["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return found


def has_own_methods(catalog: Catalog) -> bool:
    """Return whether an upstream may have methods that neither the protocol nor a merged extension defines."""
    return catalog.may(_EXPERIMENTAL) or not _MERGED.keys() >= _members(catalog.capabilities.get(_EXTENSIONS)).keys()


def _merge(view: View, capability: str) -> dict[str, Raw]:
    """Return what all groups say of a capability that is an object by name, the earliest group's where two do."""
    merged: dict[str, Raw] = {}
    for group in view:
        merged = {**(_members(group.catalog.capabilities.get(capability)) if group.catalog else {}), **merged}
    return merged


def _merge_extensions(view: View) -> dict[str, object]:
    """Return the extensions of all groups; one with a merged list as the groups support it that offer its feature."""
    merged: dict[str, object] = {**_merge(view, _EXTENSIONS)}
    for name, kind in _MERGED.items():
        merged.pop(name, None)
        declared = [_settings(group, kind) for group in view.offering(kind.capability)]
        if any(each is not None for each in declared):
            merged[name] = _unite(each for each in declared if each is not None)
    return merged


def _settings(group: GroupView, kind: ListKind) -> Mapping[str, Raw] | None:
    """Return the settings of an extension; None if the group is not known to support it."""
    if group.catalog is None:  # of folders, it is known before they are read
        is_known = kind is ListKind.SKILLS and isinstance(group.config.upstream, SkillFolders)
        return {"directoryRead": _TRUE} if is_known else None
    if not group.catalog.declares(kind):
        return None
    return _members(_members(group.catalog.capabilities.get(_EXTENSIONS)).get(kind.extension))


def _unite(settings: Iterable[Mapping[str, Raw]]) -> dict[str, Raw]:
    """Return the settings of several groups as one: what one of them supports can be asked for."""
    united: dict[str, Raw] = {}
    for each in settings:
        united |= {name: value for name, value in each.items() if name not in united or bytes(value) == b"true"}
    return united


def _members(declared: Raw | None) -> dict[str, Raw]:
    with contextlib.suppress(wire.Malformed):
        return wire.members(declared) if declared else {}
    return {}
