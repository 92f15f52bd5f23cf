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

    `compile` makes a `policy.call_rules.RuleSet` of what is presented of a server, and its name.
    """

    key: str
    compile: str
    changes_messages: bool = False  # what servers answer, and what they say by themselves


class Command(Struct, frozen=True):
    """A command: the module of its name in `commands` of its room, in a section of `--help` after one, else first."""

    name: str
    section: str
    after: str = ""


class Feature(Struct, frozen=True):
    """One feature: the modules that it names are in its room; an empty name is something that it does not have."""

    name: str
    keys: tuple[str, ...] = ()  # what of the config is its own; it is wanted where one of them is there
    section: str = ""  # what reads its key, if that is in the room: a `config.section.Section`
    wanted_by: tuple[str, ...] = ()  # members of `Config` that are true where rules of others want it
    extra: str = ""  # the optional dependencies without which its modules cannot be imported
    is_large: bool = False  # for a process without HTTP to load it before a config wants it
    observer: str = ""  # observes requests: its `make_service` returns an `ObserverService`
    observes_commands: bool = False  # those of a command that asks servers itself, too
    check: str = (
        ""  # what `check` says of it: its `check` takes the config and a `KnownCatalogs`, and may be a coroutine
    )
    probe: str = ""  # what `doctor` says besides: its `probe` takes the config
    auth_kind: str = ""  # the kind of entries of `settings.http.auth` that it answers
    auth_provider: str = ""  # and what makes a `Provider` of one: its `make_provider`
    change_listener: str = ""  # hears what commands have changed: its `record`
    server_source: str = ""  # finds servers by their names, for `add`: a `cli.server_source.ServerSource`
    status: str = ""  # what `status` says besides of running proxies: its `read_status`
    choice_keys: Mapping[str, str] = {}  # what is typed at a terminal for the choices of its forms
    commands: tuple[Command, ...] = ()
    rules: Rules | None = None  # on the calls of servers
    opens: str = ""  # the slot of its step that opens something before a config is applied: its `prepare`
    steps: Mapping[str, str] = {}  # its classes on the way of calls, by their slots in `proxy.chain.ORDER`

    @property
    def serves(self) -> bool:
        """Whether serving may need it, and not commands alone."""
        return bool(self.observer or self.auth_provider or self.steps)

    def is_wanted(self, config: Any) -> bool:  # Any: a `Config`, which is not imported
        """Return whether a config has one of its keys, each a member of `Config`, or rules that want it."""
        members = (key.rpartition(".")[2] for key in self.keys)
        if any(getattr(config, each) is not None for each in members):
            return True
        if any(getattr(config, each) for each in self.wanted_by):
            return True
        return self.rules is not None and any(
            getattr(each.rules, self.rules.key) for each in config.presentations.values()
        )

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
        "cache",
        rules=Rules("cache", "rules:CacheRules"),
        steps={"cache": "step:ResultCache"},
        commands=(Command("cache", "Check and repair", after="audit"),),
    ),
    Feature(
        "overrides",
        rules=Rules("overrides", "view:compile_rules"),
        steps={"overrides": "step:RestoreCalls"},
        check="check",
    ),
    Feature(
        "redaction",
        rules=Rules("redact", "redactor:compile_rules", changes_messages=True),
        steps={"redact arguments": "step:RedactArguments", "redact answers": "step:RedactAnswers"},
    ),
    Feature(
        "plugins",
        wanted_by=("middleware",),
        opens="plug-ins",
        steps={"plug-ins": "step:AskPlugins"},
        check="check",
    ),
    Feature("guards", rules=Rules("guards", "guards:compile_rules"), steps={"guards": "step:JudgeArguments"}),
    Feature(
        "limits",
        rules=Rules("limits", "limits:compile_rules"),
        steps={"limits": "step:LimitRate", "concurrent": "step:LimitConcurrency"},
    ),
    Feature(
        "approvals",
        keys=("settings.approval",),
        section="config:Approval",
        wanted_by=("asks",),
        steps={"approval": "step:AskForApproval"},
        check="check",
        status="status",
        choice_keys={"deny": "n", "once": "y", "hour": "h", "session": "s"},  # as `approve watch` has them
        commands=(Command("approve", "Approve"),),
    ),
)


def section_of(key: str) -> str:
    """Return the section that reads a key of the config, as `module:Class`; empty if no feature has that key."""
    found = (each for each in FEATURES if key in each.keys)
    return next((f"dynamic_mcp.features.{each.name}.{each.section}" for each in found), "")


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
