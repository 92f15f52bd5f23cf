"""The config events of a serving proxy for observers: its start, each change, and each rejected version."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp import __version__
from dynamic_mcp.config.changes import find_changes
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.proxy.request import Event


def event_of_start(configs: ConfigState) -> Event:
    """Return the event that serving a config has begun."""
    return Event("config.loaded", {"hash": configs.parsed.digest, "version": __version__})


def events_of_change(before: ConfigState, after: ConfigState) -> Iterator[Event]:
    """Yield the events that another version of the config is served, and that its access rules have changed."""
    changes = find_changes(before, after)
    named = {
        "added": changes.added,
        "removed": changes.removed,
        "changed": changes.changed,
        "settings": changes.settings,
    }
    yield Event(
        "config.reload", {"hash": after.parsed.digest, **{name: each for name, each in named.items() if each}}
    )
    if changes.access:
        yield Event("access.changed", {"changes": changes.access})


def event_of_refusal(error: ConfigError) -> Event:
    """Return the event that a version was rejected. It has only the place, since the error may contain values."""
    return Event("config.refused", {"outcome": "failure", "where": error.where})
