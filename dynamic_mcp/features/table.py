"""The list of features: the only thing that features and the rest of the program know of each other.

A row names modules without importing them. To remove a feature, delete its folder and its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec import Struct


class Rules(Struct, frozen=True):
    """Rules on the calls of servers: a key of each server, and of `settings.defaults`, from which servers inherit it.

    Targets in the room are named `module:name`. `section` reads the value, and `text` describes it.
    `resolve`, if there is one, returns a server's `Presentation` with the effects of the rules. `compile` makes a
    `policy.call_rules.RuleSet` of a `Presentation` and the server's name.
    """

    key: str
    text: str
    section: str
    compile: str
    resolve: str = ""
    places: tuple[str, ...] = ("server", "defaults")
    shows_tools: bool = False  # changed from the server's definitions: it compiles to `ToolRules`
    judges: bool = False  # arguments: earlier approvals by other rules do not count
    changes_messages: bool = False  # answers of servers, and their notifications


class FeatureCommand(Struct, frozen=True):
    """A command: the module of its name in `commands` of its room, in a section of `--help` after one, else first."""

    name: str
    section: str
    after: str = ""


class StatePlace(Struct, frozen=True):
    """A file or folder of the state directory, by its path in it: what is not named by itself is as its folder.

    Backups copy them in the order of the rows. `is_secret`: who has it can act for a user or for the service.
    `is_passing`: it is of use to the processes of the moment alone, and is left out.
    """

    path: str
    is_secret: bool = True
    is_passing: bool = False


class Feature(Struct, frozen=True):
    """One feature: the modules that it names are in its room; an empty name means that it has no such part."""

    name: str
    keys: tuple[str, ...] = ()  # its keys in the config; each of them enables it
    section: str = ""  # reads its key, if that is in the room: a `config.section.Section`
    resolve: str = ""  # resolves the section, with its variables, to the value in `Config`
    wanted_by: tuple[str, ...] = ()  # members of `Config` that are true if rules of other features need it
    wanted_by_variables: str = ""  # the prefix of environment variables that enable it without its key
    extra: str = ""  # the optional dependencies that its modules import
    is_large: bool = False  # too large for a process without HTTP to import before a config enables it
    observer: str = ""  # observes requests: its `make_service` returns an `ObserverService`
    observes_commands: bool = False  # also requests of commands that connect to servers
    check: str = ""  # findings for `check`: its `check` takes the config and `KnownCatalogs`
    probe: str = ""  # findings for `doctor`: its `probe` takes the config
    deployment: str = ""  # findings for `doctor --deployment`: its `examine` takes the config
    auth_kind: str = ""  # the kind of entries in `settings.http.auth` that it handles
    auth_provider: str = ""  # turns such an entry into a `Provider`: its `make_provider`
    change_listener: str = ""  # records changes made by commands: its `record`
    server_source: str = ""  # finds servers by name, for `add`: a `cli.server_source.ServerSource`
    packages: str = ""  # looks at the packages of servers, for `add`: a `cli.package_examiner.PackageExaminer`
    page: str = ""  # its sections of the page for people: `list_sections` returns `ui.section.PageSection` classes
    status: str = ""  # details of running proxies for `status`: its `read_status`
    choice_keys: Mapping[str, str] = {}  # the keys for the choices of its forms on a terminal
    commands: tuple[FeatureCommand, ...] = ()
    catalog_check: str = ""  # findings of `doctor` about catalogs: its `make_check` takes the config
    extension: str = ""  # the extension of MCP that it serves, by the functions in `methods`, where it is wanted
    methods: Mapping[str, str] = {}
    cluster: str = ""  # other replicas of the HTTP server: its `make_service` returns a `ReplicaSet`
    store: str = ""  # what they share, if its section has a `store`: its `open_store` returns a `SharedStore`
    migrations: str = ""  # between files and that: returns `Migration`s for a config and a store, as `module:name`
    state: tuple[StatePlace, ...] = ()  # what it keeps in the state directory
    keeps_elsewhere: Mapping[str, str] = {}  # names of what a config may keep elsewhere, and what says where, or None
    store_modules: tuple[str, ...] = ()  # how the names of the modules begin that only this needs
    gates: str = ""  # holds back definitions of servers: its `make_service` returns a `GateService`
    server: str = ""  # adds a group with the feature's name: its `find_server` takes the section, or None
    transport: str = ""  # answers the links to that group: an `OwnTransport`
    own_tools: Mapping[str, str] = {}  # modules by the names of tools of ours: `make_tool` returns an `OwnTool`
    rules: Rules | None = None  # on the calls of servers
    confines: str = ""  # programs: takes the value at its key, which `section` reads, and returns a `Confinement`
    wraps: str = ""  # confines programs that libraries start: its `wrap`, and `explain_missing`
    opens: str = ""  # the slot of its step whose `prepare` runs before a config is applied
    shares: str = ""  # the slot of its step that shows what other replicas share, before a call passes it
    steps: Mapping[str, str] = {}  # its step classes, by their slots in `proxy.chain.ORDER`

    @property
    def serves(self) -> bool:
        """True if serving may need it, and not commands alone."""
        watches = self.observer or self.auth_provider or self.gates or self.cluster
        return bool(watches or self.steps or self.methods or self.own_tools or self.confines)

    def is_wanted(self, config: Any) -> bool:  # Any: a `Config`, which is not imported
        """Return whether a config has one of its keys, or rules that want it."""
        if any(getattr(config, each, None) not in (None, ()) for each in self.members):
            return True
        if any(getattr(config, each) for each in self.wanted_by):
            return True
        key = None if self.rules is None else self.rules.key
        return key is not None and any(key in each.rules for each in config.presentations.values())

    @property
    def members(self) -> list[str]:
        """Its keys as members of the settings, and of `Config` for those that serving needs."""
        return [key.rpartition(".")[2] for key in self.keys]

    @property
    def package(self) -> str:
        return f"dynamic_mcp.features.{self.name}"

    def load(self, module: str) -> ModuleType:
        """Import a module of the room."""
        return import_module(f"{self.package}.{module}")

    def find(self, target: str) -> Any:  # Any: the caller knows the type
        """Import something of the room, as `module:name`."""
        return find(f"{self.package}.{target}")


# Requests are observed in this order; the first observer to begin is the last to end.
FEATURES = (
    Feature(
        "telemetry",
        keys=("settings.telemetry",),
        section="config:Telemetry",
        resolve="config:resolve",
        wanted_by_variables="OTEL_EXPORTER_",
        extra="otel",
        observer="service",
        probe="probe",
    ),
    Feature(
        "metrics",
        keys=("settings.metrics",),
        section="config:Metrics",
        resolve="config:resolve",
        observer="service",
        check="check",
    ),
    Feature(
        "audit",
        keys=("settings.audit",),
        section="config:Audit",
        resolve="config:resolve",
        is_large=True,
        observer="observer",
        observes_commands=True,
        check="check",
        page="page",
        change_listener="commands.recording",
        state=(  # calls are in one of the first two at each moment
            StatePlace("audit/open", is_secret=False),
            StatePlace("audit/seals.jsonl", is_secret=False),
            StatePlace("audit/key"),
            StatePlace("audit/lock", is_passing=True),
            StatePlace("audit", is_secret=False),
        ),
        keeps_elsewhere={"audit": "config:find_other_directory"},
        commands=(FeatureCommand("audit", "Check and repair", after="logs"),),
    ),
    Feature(
        "login_server",
        is_large=True,
        auth_kind="login",
        auth_provider="provider",
        migrations="migration:list_migrations",
        state=(StatePlace("clients"),),
    ),
    Feature(
        "registry",
        keys=("settings.registries",),
        section="config:Registries",
        server_source="commands.source",
        commands=(FeatureCommand("registry", "Set up", after="disable"),),
    ),
    Feature(
        "provenance",
        wanted_by=("runs_programs",),
        packages="commands.examiner",
        check="check",
        probe="probe",
        commands=(FeatureCommand("packages", "Check and repair", after="doctor"),),
    ),
    Feature(
        "cluster",
        keys=("settings.cluster",),
        section="config:Cluster",
        resolve="config:resolve",
        is_large=True,
        cluster="service",
        store="store",
        store_modules=("local_store", "store", "subscribers", "valkey"),
        check="check",
        probe="probe",
        deployment="deployment",
        keeps_elsewhere={"cluster": "config:find_store_file"},
        commands=(FeatureCommand("cluster", "Check and repair", after="doctor"),),
    ),
    Feature(
        "backup",
        commands=(
            FeatureCommand("backup", "Check and repair", after="logs"),
            FeatureCommand("restore", "Check and repair", after="backup"),
        ),
    ),
    Feature("scan", commands=(FeatureCommand("cli", "Set up", after="registry"),)),
    Feature(
        "overrides",
        rules=Rules(
            "overrides",
            "How tools are shown to clients, by the names that the server gives them; names or globs.",
            section="config:Overrides",
            compile="overrides:compile_rules",
            places=("server",),
            shows_tools=True,
        ),
        steps={"overrides": "step:RestoreCalls"},
        check="check",
    ),
    Feature(
        "plugins",
        keys=("settings.middleware",),
        section="config:Plugin",
        opens="plug-ins",
        steps={"plug-ins": "step:AskPlugins"},
        check="check",
    ),
    Feature(
        "guards",
        rules=Rules(
            "guards",
            "Rules on arguments: a call that breaks one is refused, or a person is asked. Default: none.",
            section="config:Guards",
            compile="guards:compile_rules",
            resolve="config:resolve",
            judges=True,
        ),
        steps={"guards": "step:JudgeArguments"},
        check="check",
    ),
    Feature(
        "limits",
        rules=Rules(
            "limits",
            "How often tools may be called. Default: no limits.",
            section="config:Limits",
            compile="limits:compile_rules",
        ),
        steps={"limits": "step:LimitRate", "concurrent": "step:LimitConcurrency"},
        check="check",
    ),
    Feature(
        "cache",
        rules=Rules(
            "cache",
            "Which results are cached, and for how long. Default: none.",
            section="config:Caches",
            compile="rules:CacheRules",
        ),
        steps={"cache": "step:ResultCache"},
        check="check",
        state=(StatePlace("cache-clear", is_passing=True),),  # marks for the processes that run
        commands=(FeatureCommand("cache", "Check and repair", after="audit"),),
    ),
    Feature(
        "result_texts",  # before `redaction`, which finds more in what is left
        rules=Rules(
            "results",
            "What is removed from texts of results, and whether they are marked as data. Default: nothing.",
            section="config:ResultTexts",
            compile="rules:compile_rules",
            resolve="config:resolve",
            changes_messages=True,
        ),
        steps={"mark results": "step:MarkResults", "strip results": "step:StripResults"},
    ),
    Feature(
        "redaction",
        rules=Rules(
            "redact",
            "What is replaced in the texts of results or arguments, such as tokens. Default: nothing.",
            section="config:Redacts",
            compile="redactor:compile_rules",
            changes_messages=True,
        ),
        steps={"redact arguments": "step:RedactArguments", "redact answers": "step:RedactAnswers"},
        check="check",
    ),
    Feature(
        "approvals",
        keys=("settings.approval",),
        section="config:Approval",
        wanted_by=("asks",),
        shares="approval",
        steps={"approval": "step:AskForApproval"},
        check="check",
        status="status",
        page="page",
        state=(StatePlace("approvals"),),  # with the arguments of calls
        choice_keys={"deny": "n", "once": "y", "hour": "h", "session": "s"},  # as `approve watch` has them
        commands=(FeatureCommand("approve", "Approve"),),
    ),
    Feature(
        "mcp_groups",
        keys=("settings.experimental",),
        extension="io.modelcontextprotocol/groups",
        methods={"groups/list": "methods:list_groups", "groups/get": "methods:get_group"},
    ),
    Feature(
        "pins",
        keys=("settings.lock_file",),
        catalog_check="check",
        gates="service",
        page="page",
        state=(StatePlace("pins", is_secret=False),),
        commands=(FeatureCommand("pins", "Approve", after="approve"),),
    ),
    Feature(
        "scripts",
        keys=("settings.scripts",),
        section="config:Scripts",
        resolve="config:resolve",
        wanted_by=("profiles_run_scripts",),
        extra="scripts",
        server="config:find_server",
        transport="transport:StoredScriptTransport",
        steps={"stored script": "step:RunStoredScript"},
        check="check",
        own_tools={"run_dynamic_script": "tool"},
        state=(StatePlace("scripts", is_passing=True),),  # a script goes on once, and a copy would let it go on again
        commands=(FeatureCommand("script", "Look and try", after="call"),),
    ),
    Feature(
        "sandbox",
        section="config:Sandbox",
        confines="config:make_confinement",
        wraps="wrapping",
        is_large=True,
        wanted_by=("confines_programs",),
        check="check",
        probe="probe",
        state=(StatePlace("sandbox", is_passing=True),),  # what confined servers keep: caches, and their own data
        commands=(FeatureCommand("sandbox", "Check and repair", after="doctor"),),
    ),
)


def section_of(key: str) -> str:
    """Return the section that reads a key of the config, as `module:Class`; empty if no feature has that key."""
    return next((f"{each.package}.{each.section}" for each in FEATURES if key in each.keys), "")


def section_of_confinement() -> str:
    """Return what reads the key of the feature that confines programs, as `module:name`; empty without one."""
    return next((f"{each.package}.{each.section}" for each in FEATURES if each.confines), "")


def find_confinement() -> Any:  # Any: a function that returns a `Confinement`
    """Import what makes a `Confinement` of the value in a config."""
    return next(each.find(each.confines) for each in FEATURES if each.confines)


def find_wrapper() -> ModuleType:
    """Import what confines programs that libraries start: its functions are `wrap` and `explain_missing`."""
    return next(each.load(each.wraps) for each in FEATURES if each.wraps)


def feature_of_slot(slot: str) -> Feature | None:
    """Return the feature that has a step for a slot in the order of calls."""
    return next((feature for feature in FEATURES if slot in feature.steps), None)


def own_tool_names() -> frozenset[str]:
    """Return the names of the tools that features add to ours."""
    return frozenset(name for feature in FEATURES for name in feature.own_tools)


def find_transport(feature: str) -> Any:  # Any: an `OwnTransport` class, of the name of a group and a folder
    """Import what answers the links to the group of a feature."""
    return next(each.find(each.transport) for each in FEATURES if each.name == feature)


def feature_with_gates() -> Feature | None:
    """Return the feature that holds back definitions of servers."""
    return next((feature for feature in FEATURES if feature.gates), None)


def feature_with_cluster() -> Feature | None:
    """Return the feature by which several replicas are one service."""
    return next((feature for feature in FEATURES if feature.cluster), None)


def features_with_extensions(config: Any) -> tuple[Feature, ...]:  # Any: a `Config`, which is not imported
    """Return the features that serve an extension of MCP to clients of this config."""
    return tuple(each for each in FEATURES if each.extension and each.is_wanted(config))


def is_observed(config: Any) -> bool:  # Any: a `Config`, which is not imported
    """Return whether a feature that this config wants observes requests."""
    return any(each.observer and each.is_wanted(config) for each in FEATURES)


def is_missing(feature: str) -> bool:
    """Return whether the program lacks a feature."""
    return all(each.name != feature for each in FEATURES)


def find(target: str) -> Any:  # Any: the caller knows the type
    """Import something, as `module:name`."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def commands() -> Iterator[tuple[Feature, FeatureCommand]]:
    """Return the commands of all features, each with its feature."""
    return ((feature, command) for feature in FEATURES for command in feature.commands)
