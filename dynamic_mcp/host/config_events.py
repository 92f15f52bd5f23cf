"""What observers hear of the config of a serving proxy: what it is, each change, and each version that is refused."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp import __version__
from dynamic_mcp.config.changes import find_changes
from dynamic_mcp.config.read import ConfigState
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.proxy.request import Event


def event_of_start(configs: ConfigState) -> Event:
    """Return that a config is served from now on."""
    return Event("config.loaded", {"hash": configs.parsed.digest, "version": __version__})


def events_of_change(before: ConfigState, after: ConfigState) -> Iterator[Event]:
    """Yield that another version of the config is served from now on, and that its access rules are others."""
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
    """Return that a version was not taken; what is wrong with it may name values, so only the place is told."""
    return Event("config.refused", {"outcome": "failure", "where": error.where})
