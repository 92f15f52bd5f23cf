"""The one list of features: all that features and the rest of the program know of each other.

A row names modules, and loads none. A feature is removed with its folder and its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec import Struct


class Rules(Struct, frozen=True):
    """Rules on the calls of a server: the key of the config that has them, and what they are compiled to.

    `compiled` is the class of a `policy.call_rules.RuleSet`, as `module:Class`.
    """

    key: str
    compiled: str


class Command(Struct, frozen=True):
    """A command: the module of its name in `commands` of its room, in a section of `--help` after another command."""

    name: str
    section: str
    after: str


class Feature(Struct, frozen=True):
    """One feature: the modules that it names are in its room; an empty name is something that it does not have."""

    name: str
    keys: tuple[str, ...] = ()  # what of the config is its own; it is wanted where one of them is there
    extra: str = ""  # the optional dependencies without which its modules cannot be imported
    is_large: bool = False  # for a process without HTTP to load it before a config wants it
    observer: str = ""  # observes requests: its `make_service` returns an `ObserverService`
    observes_commands: bool = False  # those of a command that asks servers itself, too
    check: str = ""  # what `check` says of it: its `check` takes the config, and connects to nothing
    probe: str = ""  # what `doctor` says besides: its `probe` takes the config
    auth_kind: str = ""  # the kind of entries of `settings.http.auth` that it answers
    auth_provider: str = ""  # and what makes a `Provider` of one: its `make_provider`
    change_listener: str = ""  # hears what commands have changed: its `record`
    server_source: str = ""  # finds servers by their names, for `add`: a `cli.server_source.ServerSource`
    commands: tuple[Command, ...] = ()
    rules: Rules | None = None  # on the calls of servers
    steps: Mapping[str, str] = {}  # its classes on the way of calls, by their slots in `proxy.chain.ORDER`

    @property
    def serves(self) -> bool:
        """Whether serving may need it, and not commands alone."""
        return bool(self.observer or self.auth_provider or self.steps)

    def is_wanted(self, config: Struct) -> bool:
        """Return whether a config has one of its keys, each of which is a member of `Config`."""
        return any(getattr(config, key.rpartition(".")[2]) is not None for key in self.keys)

    def load(self, module: str) -> ModuleType:
        """Import a module of the room."""
        return import_module(f"dynamic_mcp.features.{self.name}.{module}")

    def find(self, target: str) -> Any:  # Any: the type of what is named is known where it is used
        """Import something of the room, as `module:name`."""
        return find(f"dynamic_mcp.features.{self.name}.{target}")


# Requests are observed in this order, and the first to begin is the last to end.
FEATURES = (
    Feature("telemetry", keys=("settings.telemetry",), extra="otel", observer="service", probe="probe"),
    Feature("metrics", keys=("settings.metrics",), observer="service", check="check"),
    Feature(
        "audit",
        keys=("settings.audit",),
        is_large=True,
        observer="auditing",
        observes_commands=True,
        check="check",
        change_listener="commands.recording",
        commands=(Command("audit", "Check and repair", after="logs"),),
    ),
    Feature("login_server", is_large=True, auth_kind="login", auth_provider="making"),
    Feature(
        "registry",
        server_source="commands.source",
        commands=(Command("registry", "Set up", after="disable"),),
    ),
    Feature("scan", commands=(Command("cli", "Set up", after="registry"),)),
    Feature(
        "limits",
        rules=Rules("limits", "limits:Limits"),
        steps={"limits": "step:LimitRate", "concurrent": "step:LimitConcurrency"},
    ),
)


def feature_of_slot(slot: str) -> Feature | None:
    """Return the feature that has a step for a slot in the order of calls."""
    return next((feature for feature in FEATURES if slot in feature.steps), None)


def find(target: str) -> Any:  # Any: the type of what is named is known where it is used
    """Import something, as `module:name`."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def commands() -> Iterator[tuple[Feature, Command]]:
    """Return the commands of all features, each with its feature."""
    return ((feature, command) for feature in FEATURES for command in feature.commands)
