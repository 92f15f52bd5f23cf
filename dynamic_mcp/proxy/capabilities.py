"""The proxy's capabilities for a client: the union of what the groups of its view can."""

from __future__ import annotations

import contextlib

from msgspec import Raw

from dynamic_mcp.config.types import NO_LIMIT
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.proxy.view import View

# Capabilities that say what a server can do beyond the protocol.
EXTENDING = ("experimental", "extensions")


def capabilities(view: View, revision: Revision) -> dict[str, object]:
    """Return the capabilities of a view; a group that is not known yet may be able to do everything."""

    def has(feature: str, *part: str) -> bool:
        return any(group.catalog is None or group.catalog.may(feature, *part) for group in view.offering(feature))

    found: dict[str, object] = {"tools": {"listChanged": True}}
    if has("resources"):
        subscribe = {"subscribe": True} if has("resources", "subscribe") else {}
        found["resources"] = {**subscribe, "listChanged": True}
    elif any(group.presentation.answers.limit < NO_LIMIT for group in view.offering("tools")):
        found["resources"] = {}  # what is cut from a result is read as one
    if has("prompts"):
        found["prompts"] = {"listChanged": True}
    found |= {"completions": {}} if has("completions") else {}
    found["logging"] = {}  # the proxy has log messages too
    found |= {name: merged for name in EXTENDING if (merged := _merge(view, name))}
    if revision.has_tasks and has("tasks"):
        found["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    if view.scope.extensions:
        ours: dict[str, object] = {feature.extension: {} for feature in view.scope.extensions}
        found["extensions"] = {**_merge(view, "extensions"), **ours}
    return found


def _merge(view: View, capability: str) -> dict[str, Raw]:
    """Return what all groups say of a capability that is an object by name, the earliest group's where two do."""
    merged: dict[str, Raw] = {}
    for group in view:
        declared = group.catalog.capabilities.get(capability) if group.catalog else None
        with contextlib.suppress(wire.Malformed):
            merged = {**(wire.members(declared) if declared else {}), **merged}
    return merged
