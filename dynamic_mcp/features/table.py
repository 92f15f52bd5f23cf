"""The one list of features: all that features and the rest of the program know of each other.

A row names modules, and loads none. A feature is removed with its folder and its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from msgspec import Struct


class Command(Struct, frozen=True):
    """A command: the module of its name in `commands` of its room, in a section of `--help` after another command."""

    name: str
    section: str
    after: str


class Feature(Struct, frozen=True):
    """One feature: the modules that it names are in its room; an empty name is something that it does not have."""

    name: str
    commands: tuple[Command, ...] = ()
    change_listener: str = ""  # hears what commands have changed: its `record`
    server_source: str = ""  # finds servers by their names, for `add`: a `cli.server_source.ServerSource`

    def load(self, module: str) -> ModuleType:
        """Import a module of the room."""
        return import_module(f"dynamic_mcp.features.{self.name}.{module}")


FEATURES = (
    Feature(
        "registry",
        commands=(Command("registry", "Set up", after="disable"),),
        server_source="commands.source",
    ),
    Feature("audit", change_listener="commands.recording"),
    Feature("scan", commands=(Command("cli", "Set up", after="registry"),)),
)


def commands() -> Iterator[tuple[Feature, Command]]:
    """Return the commands of all features, each with its feature."""
    return ((feature, command) for feature in FEATURES for command in feature.commands)
