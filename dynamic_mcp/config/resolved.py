"""The config as the program uses it: every default and every variable is filled in.

A `repr` shows nothing that a variable may have filled in.
"""

from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct

from dynamic_mcp.config.access import Access, Profile, ToolAccess
from dynamic_mcp.config.addresses import Address, TcpAddress
from dynamic_mcp.config.approval import Approval
from dynamic_mcp.config.auth import Forwarded, Provider
from dynamic_mcp.config.observe import Audit, Metrics, Telemetry
from dynamic_mcp.config.private import Private
from dynamic_mcp.config.rules import Plugin, Policy, Rules
from dynamic_mcp.identity import Principal
from dynamic_mcp.packs.model import Command


class Timeouts(Struct, frozen=True):
    """How long to wait for an upstream, in seconds."""

    connect_s: float
    tools_s: float
    resources_s: float
    prompts_s: float

    def for_list(self, method: str) -> float:
        """Return how long a list may take; that of the tools is a part of connecting."""
        match method.partition("/")[0]:
            case "resources":
                return self.resources_s
            case "prompts":
                return self.prompts_s
        return self.connect_s


class Features(Struct, frozen=True):
    """What a group may offer."""

    tools: bool
    resources: bool
    prompts: bool

    def allows(self, feature: str) -> bool:
        """Tell whether a feature is offered; what has no switch is."""
        return bool(getattr(self, feature, True))


class ToolFilter(Struct, frozen=True):
    """Globs over tool names; `exclude` wins, and no `include` at all lets nothing through."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def allows(self, name: str) -> bool:
        """Whether the tool may be listed and called."""
        return _matches(name, self.include) and not _matches(name, self.exclude)


class Exposure(Struct, frozen=True):
    """Which tools are listed by themselves: all where `direct`, else those that `pinned` names by globs."""

    direct: bool
    pinned: tuple[str, ...]

    def shows(self, tool: str) -> bool:
        """Whether the tool is listed by itself."""
        return self.direct or _matches(tool, self.pinned)


# What follows if the arguments of a call do not fit the schema of its tool.
Validation = Literal["assist", "strict", "off"]


class Answers(Struct, frozen=True):
    """What happens to a call's arguments and its result; `limit` is in bytes of text.

    `validate` None is `strict` for the tools whose arguments the config judges, and `assist` for the others.
    """

    validate: Validation | None
    limit: int
    compact: bool


class Program(Private, frozen=True):
    """A program to start. `cwd` None is the proxy's own directory.

    `env` is the whole of its environment, `own` names what of it the config sets, and `withheld` what is set for the
    proxy and not passed on. `requested` names what the config has it inherit from the environment of a workspace.
    """

    shown: ClassVar = ("command", "cwd", "own")
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    own: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    requested: frozenset[str] = frozenset()


class CommandLine(Private, frozen=True):
    """A command line program and those of its commands that are tools, as `pack` has them.

    `env` is the whole of its environment. `cwd` None is the proxy's own directory. `roots` are the only directories
    where it may work; none at all is anywhere. `fixed` comes before every command. `places` makes the program print
    the files and directories that it would work with.
    """

    shown: ClassVar = ("command", "pack", "cwd", "roots")
    command: str
    pack: str
    description: str
    commands: tuple[Command, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    timeout_s: float | None = None
    output_limit: int = 1_000_000
    at_files: bool = False


Grant = Literal["authorization_code", "client_credentials", "jwt_bearer", "cross_app"]


class IdentityProvider(Private, frozen=True):
    """Where an assertion about a user is exchanged for a grant, and as which client."""

    shown: ClassVar = ("client_id",)
    token_endpoint: str
    client_id: str
    client_secret: str | None = None


class OAuth(Private, frozen=True):
    """What the config knows about logging in; the rest is found out."""

    shown: ClassVar = (
        "client_id",
        "scopes",
        "redirect_port",
        "grant",
        "assertion_file",
        "identity_provider",
        "private_key_file",
        "private_key_alg",
        "is_shared",
        "may_open_browser",
        "token_store",
    )
    client_id: str | None = None
    client_secret: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    metadata_url: str | None = None
    issuer: str | None = None
    account: str | None = None
    grant: Grant = "authorization_code"
    assertion: str | None = None
    assertion_file: str | None = None
    identity_provider: IdentityProvider | None = None
    private_key_file: str | None = None
    private_key_alg: str | None = None
    client_metadata_url: str | None = None
    is_shared: bool = False
    may_open_browser: bool = True
    token_store: Literal["file", "keyring"] = "file"  # noqa: S105

    @property
    def needs_user(self) -> bool:
        """Tell whether somebody must log in; if not, the proxy gets its tokens by itself."""
        return self.grant == "authorization_code"


class Remote(Private, frozen=True):
    """A server to reach; `kind` None is for the transport to find out.

    `login_of` is whose login it is reached with; None is the one that commands make, which is also for all.
    """

    shown: ClassVar = ("kind", "oauth")
    kind: Literal["http", "sse"] | None
    url: str
    headers: Mapping[str, str]
    oauth: OAuth = OAuth()
    login_of: Principal | None = None

    @property
    def has_own_authorization(self) -> bool:
        """Whether the config has an Authorization header for it, so that nobody logs in."""
        return any(name.lower() == "authorization" and value.strip() for name, value in self.headers.items())


class Broken(Struct, frozen=True):
    """A server that cannot be started as things are, and why."""

    reason: str


Upstream = Program | Remote | CommandLine | Broken


class Pinning(Struct, frozen=True):
    """What follows if a server's definitions change. `source` is a digest of what is run, as the config writes it."""

    policy: Policy = "trust"
    source: str = ""


class Presentation(Struct, frozen=True):
    """What clients are shown of one server, and how its calls are treated on the way."""

    description: str | None
    features: Features
    tools: ToolFilter
    exposure: Exposure
    answers: Answers
    access: ToolAccess = ToolAccess()
    rules: Rules = Rules()
    pinning: Pinning = Pinning()


class Share(Enum):
    """Who shares one instance of a server."""

    AUTO = "auto"
    SESSION = "session"
    USER = "user"
    ALL = "all"


class GroupConfig(Struct, frozen=True):
    """What is run for one enabled server of the config file; `idle_after_s` None is never.

    `unset` are the variables that it refers to and that are not set, `empty` those that are set to nothing.
    """

    name: str
    timeouts: Timeouts
    eager: bool
    idle_after_s: float | None
    attempts: int
    concurrency: int
    max_message_bytes: int
    upstream: Upstream
    share: Share = Share.AUTO
    unset: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def person(self) -> Principal | None:
        """Whose login it has, where each person has one of its own."""
        return self.upstream.login_of if isinstance(self.upstream, Remote) else None

    @property
    def label(self) -> str:
        """What stands behind the group in a word: the program's name, or the host."""
        match self.upstream:
            case Program(command=command) | CommandLine(command=command):
                return command.replace("\\", "/").rstrip("/").rpartition("/")[2]
            case Remote(url=url):
                return _host(url)
            case Broken():
                return self.name


class Log(Struct, frozen=True):
    """What is said while serving: a level and a form of stderr, and whether a file is kept."""

    level: str = "info"
    form: str = "text"
    file: bool = True


class Daemon(Struct, frozen=True):
    """A process that runs the servers for all clients of the config; `linger_s` None is until it is stopped."""

    linger_s: float | None


class Tls(Struct, frozen=True):
    """The files of a certificate with its chain, and of its key."""

    cert: str
    key: str


class Http(Struct, frozen=True):
    """The HTTP server: where it listens, who may reach it, and its bounds.

    `profile` is that of clients whose path names none; the command line says it.
    """

    listen: Address = TcpAddress()
    socket_mode: int = 0o600
    path: str = "/mcp"
    root_path: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    public_url: str | None = None
    auth: tuple[Provider, ...] = ()
    tls: Tls | None = None
    max_sessions: int = 1000
    session_timeout_s: float = 3600.0
    max_in_flight: int = 256
    shutdown_timeout_s: float = 10.0
    insecure: bool = False
    profile: str | None = None

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The reverse proxies whose word counts, for one thing or another."""
        trusted = (peer for each in self.auth if isinstance(each, Forwarded) for peer in each.trusted)
        return (*self.trusted_proxies, *trusted)


class Embeddings(Private, frozen=True):
    """An embeddings endpoint of the user's: where it answers, which model it is asked for, and what lets us in."""

    shown: ClassVar = ("model",)
    url: str
    model: str
    api_key: str | None


class Config(Struct, frozen=True):
    """The whole config: the enabled groups in the order of the file, what a person should know, the files read.

    `presentations` has one entry for each group, by its name; `distrust` says who else may write the file;
    `embeddings` where to ask for vectors; `daemon` None is that each client has servers of its own; `http` None that
    nobody is served over HTTP, as in the config of a workspace. `roots` are URIs; `access` None is no rules. `audit`,
    `telemetry` and `metrics` None are off. `lock_file` None is the state directory.
    """

    file: Path
    groups: tuple[GroupConfig, ...]
    presentations: Mapping[str, Presentation]
    warnings: tuple[str, ...]
    max_message_bytes: int
    distrust: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    log: Log = Log()
    embeddings: Embeddings | None = None
    split_calls: bool = False
    daemon: Daemon | None = None
    http: Http | None = None
    roots: tuple[str, ...] = ()
    access: Access | None = None
    approval: Approval = Approval()
    audit: Audit | None = None
    telemetry: Telemetry | None = None
    metrics: Metrics | None = None
    profiles: Mapping[str, Profile] = {}
    plugins: tuple[Plugin, ...] = ()
    lock_file: Path | None = None

    @property
    def asks(self) -> bool:
        """Whether a rule wants a person asked."""
        has_asking_guard = any(each.rules.asks for each in self.presentations.values())
        return has_asking_guard or (self.access is not None and self.access.asks)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _host(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).hostname or "")
