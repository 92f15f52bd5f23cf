"""The config as the program uses it, with inherited values and variables filled in.

A `repr` shows no value that a variable may have set.
"""

from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, TypeVar, cast

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr, replace

from dynamic_mcp.config.access import Access, Effect, Profile, ToolEffects
from dynamic_mcp.config.rules import Policy
from dynamic_mcp.config.section import Everyday, Private, Section
from dynamic_mcp.config.types import DirectTools, Duration, Globs, IdleTime, PathText, Port, Text, Url
from dynamic_mcp.identity import LOCAL, Principal

if TYPE_CHECKING:  # read where a config has them
    from dynamic_mcp.config.confinement import ConfinedChild
    from dynamic_mcp.config.http import Http
    from dynamic_mcp.config.secret_programs import SecretLookups
    from dynamic_mcp.config.ui import Ui
    from dynamic_mcp.packs.model import Command

S = TypeVar("S", bound=Section)


class Timeouts(Section, frozen=True):
    """How long to wait: `500ms`, `30s`, `1.5s`, `2min` (or `2m`), `1h`, `7d`, or a number of seconds."""

    connect_s: Annotated[
        Duration, "How long starting the server, or connecting to it, may take. Default: 30s.", Everyday()
    ] = field(default=30.0, name="connect")
    tools_s: Annotated[
        Duration,
        "How long a tool call may take. Each progress notification starts the time again, up to 60 times."
        " Default: 60s.",
        Everyday(),
    ] = field(default=60.0, name="tools")
    resources_s: Annotated[Duration, "How long reading or listing resources may take. Default: 10s."] = field(
        default=10.0, name="resources"
    )
    prompts_s: Annotated[Duration, "How long getting or listing prompts may take. Default: 10s."] = field(
        default=10.0, name="prompts"
    )

    def for_list(self, method: str) -> float:
        """Return the time limit for a list. Listing the tools is a part of connecting."""
        match method.partition("/")[0]:
            case "resources":
                return self.resources_s
            case "prompts":
                return self.prompts_s
        return self.connect_s


class Features(Section, frozen=True):
    """Enables or disables what a server offers."""

    tools: Annotated[bool, "Offer the server's tools. Default: true."] = True
    resources: Annotated[bool, "Offer the server's resources. Default: true."] = True
    prompts: Annotated[bool, "Offer the server's prompts. Default: true."] = True

    def allows(self, feature: str) -> bool:
        """Return whether a feature is offered. A feature without a switch always is."""
        return bool(getattr(self, feature, True))


class ToolFilter(Section, frozen=True):
    """Which tools can be listed and called. The patterns are globs, such as `read_*`."""

    include: Annotated[
        Globs, "Only these tools can be listed and called; an empty list means none. Default: all.", Everyday()
    ] = ("*",)
    exclude: Annotated[
        Globs,
        "Hide these tools from all clients, and refuse calls of them, even if `include` has them. Default: none.",
        Everyday(),
    ] = ()

    def allows(self, name: str) -> bool:
        return _matches(name, self.include) and not _matches(name, self.exclude)


class Retry(Section, frozen=True):
    """How often to try to connect."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=20)],
        "How often to try to connect before the server counts as down. Default: 3.",
    ] = 3


# The handling of arguments that do not fit the schema of the tool.
Validation = Literal["assist", "strict", "off"]


class CallHandling(Struct, frozen=True):
    """The handling of a call's arguments and its result; `limit` is in bytes of text.

    `validate` None is `strict` for the tools whose arguments the config judges, and `assist` for the others.
    `marks` is whether rules change texts once they are as long as a model gets them.
    """

    validate: Validation | None
    limit: int
    compact: bool
    marks: bool = False


class Home(Struct, frozen=True):
    """The process that runs a program for several others, by its socket, and what it is told first.

    `launch` is a digest of how the program is started. `user` is the one whose clients use the link.
    """

    socket: str
    launch: str
    user: Principal = LOCAL


class Confinement(Protocol):
    """How a program is confined, as the kernel sees it: this starts it. Equal ones confine alike."""

    def start(
        self, program: "Program", environment: Mapping[str, str], *, stdin: int, stdout: int, stderr: int
    ) -> "ConfinedChild":
        """Start a program, in a session of its own. May block. Raises CannotConfine, OSError and ValueError."""
        ...

    def describe(self) -> str:
        """Return in a few words what is confined, for people."""
        ...


class Program(Private, frozen=True):
    """A program to start. `cwd` None is the proxy's own directory; with `home`, another process starts it.

    `env` is the complete environment, `own` the names in it that the config sets, and `withheld` the names that
    are set for the proxy and not passed on. `requested` names the variables that the config inherits from the
    environment of a workspace. `runs_in_each_replica` allows each replica of a cluster to start one. `lookups` are
    the secrets that programs are asked for at the start, and `looked_up` what they have answered. `confinement` None
    starts it as it is.
    """

    shown: ClassVar = ("command", "cwd", "own")
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    own: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    requested: frozenset[str] = frozenset()
    home: Home | None = None
    runs_in_each_replica: bool = False
    lookups: "SecretLookups | None" = None
    looked_up: tuple[str, ...] = ()
    confinement: Confinement | None = None


class CommandLine(Private, frozen=True):
    """A command line program and those of its commands that are tools, as defined in `pack`.

    `env` is the complete environment. `cwd` None is the proxy's own directory. `roots` are the only directories
    where it may work; empty means anywhere. `fixed` comes before every command. `places` makes the program print
    the files and directories that it would work with. `confinement` None starts it as it is.
    """

    shown: ClassVar = ("command", "pack", "cwd", "roots")
    command: str
    pack: str
    description: str
    commands: "tuple[Command, ...]"
    env: Mapping[str, str]
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    timeout_s: float | None = None
    output_limit: int = 1_000_000
    at_files: bool = False
    confinement: Confinement | None = None


class SkillFolders(Struct, frozen=True):
    """Folders of skills, which this process serves itself."""

    folders: tuple[str, ...]


class FeatureServer(Struct, frozen=True):
    """A server that a feature is in this process, made of the files in a folder."""

    feature: str
    folder: str


Grant = Literal[
    "authorization_code", "client_credentials", "jwt_bearer", "cross_app", "token_exchange", "on_behalf_of"
]


class IdentityProviderConfig(Section, Private, frozen=True):
    """The identity provider of an organization, which decides who may use which server."""

    shown: ClassVar = ("client_id",)
    token_endpoint: Annotated[
        Url,
        "The URL of the identity provider's token endpoint. It receives the `assertion`, and returns a grant"
        " that the server accepts; for `cross_app`.",
    ]
    client_id: Annotated[str, "The client ID at the identity provider."]
    client_secret: Annotated[
        str | None,
        "The client secret at the identity provider, if there is one. Write `${VARIABLE}`, not the secret itself.",
    ] = None


class TokenExchange(Section, frozen=True):
    """How the token that a caller has shown is exchanged for one that the server accepts."""

    token_endpoint: Annotated[
        Url | None,
        "The URL of the token endpoint that exchanges the tokens. Default: the one in the metadata of the `issuer`.",
    ] = None
    audience: Annotated[str | None, "Whom the new token is for, by the name that the `issuer` has for it."] = None
    resource: Annotated[
        Url | None, "The server that the new token is for, as a URL. Default: without an `audience`, its `url`."
    ] = None
    subject_token_type: Annotated[
        Literal["access_token", "jwt", "id_token"], "What the caller's token is called there. Default: access_token."
    ] = "access_token"  # noqa: S105
    requested_token_type: Annotated[
        Literal["access_token", "jwt"], "The type of token to ask for. Default: access_token."
    ] = "access_token"  # noqa: S105
    actor_token_file: Annotated[
        PathText | None,
        "The path of a file with a JWT of dynamic-mcp itself, which acts for the caller, relative to the config. It"
        " is read for each exchange.",
    ] = None


class OAuth(Section, Private, frozen=True):
    """Login settings that cannot be discovered automatically."""

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
    client_id: Annotated[str | None, "The client ID, if you have registered a client by hand."] = None
    client_secret: Annotated[str | None, "The client secret. Write `${VARIABLE}`, not the secret itself."] = None
    scopes: Annotated[tuple[str, ...], "The scopes to request. Default: those that the server asks for."] = ()
    redirect_port: Annotated[Port | None, "The local port of the redirect URI. Default: any free port."] = None
    metadata_url: Annotated[
        Url | None,
        "The URL of the authorization server's metadata document, if the server does not advertise it.",
    ] = None
    issuer: Annotated[
        Url | None,
        "The only authorization server that may receive the secret or the assertion, if it is on another host. For"
        " `token_exchange` and `on_behalf_of`, the one whose tokens callers show, and that exchanges them.",
    ] = None
    account: Annotated[
        str | None,
        "A label of your choice. Servers with the same `url` and different labels log in separately.",
    ] = None
    grant: Annotated[
        Grant,
        "How to log in: `authorization_code` as a user in a browser, `client_credentials` as the client"
        " itself, `jwt_bearer` as the user that the `assertion` is about, `cross_app` as the user that an"
        " identity provider knows; `token_exchange` and, at Entra ID, `on_behalf_of` as each caller, whose own token"
        " is exchanged. Default: authorization_code.",
    ] = "authorization_code"
    assertion: Annotated[
        str | None,
        "The JWT to log in with, for `cross_app` the user's ID token. Write `${VARIABLE}`, not the token itself.",
    ] = None
    assertion_file: Annotated[
        PathText | None,
        "The path of a file with the `assertion`, relative to the config. It is read each time that a token"
        " is requested.",
    ] = None
    identity_provider: Annotated[
        IdentityProviderConfig | None,
        "Where `cross_app` exchanges the `assertion` for a grant that the server accepts.",
    ] = None
    private_key_file: Annotated[
        PathText | None,
        "The path of a PEM key that authenticates the client (private_key_jwt), relative to the config.",
    ] = None
    private_key_alg: Annotated[
        Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"] | None,
        "The signature algorithm for the key. Default: RS256, or the algorithm of the key's curve.",
    ] = None
    is_shared: Annotated[
        bool, "One login for everyone who uses the server, instead of one for each person. Default: false."
    ] = field(default=False, name="shared")
    exchange: Annotated[TokenExchange, "How `token_exchange` and `on_behalf_of` exchange the caller's token."] = (
        TokenExchange()
    )
    client_metadata_url: Annotated[
        Url | None,
        "The URL of the client's metadata document, used as the client ID if the authorization server supports that.",
    ] = None
    may_open_browser: bool = field(default=True, name="x-may-open-browser")
    token_store: Literal["file", "keyring"] = field(default="file", name="x-token-store")

    @property
    def needs_user(self) -> bool:
        """Return whether a user must log in; if not, the proxy gets its tokens by itself."""
        return self.grant == "authorization_code"

    @property
    def exchanges(self) -> bool:
        """Return whether the token of each caller is exchanged for one that the server accepts."""
        return self.grant in ("token_exchange", "on_behalf_of")


class ApiDocument(Struct, frozen=True):
    """An OpenAPI document, whose operations are tools: a file, with a digest of its content, or a URL.

    `base_url` is empty if only the document at the URL says where the service is; the service is then on the same
    origin. `has_login` is whether the config says how to log in.
    """

    location: str
    digest: str = ""
    base_url: str = ""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    slashes: tuple[str, ...] = ()
    has_login: bool = False

    def __repr__(self) -> str:  # a URL may have a password or a key
        return f"ApiDocument(include={self.include!r}, exclude={self.exclude!r})"


class Remote(Private, frozen=True):
    """A server to connect to; `kind` None means that the transport detects it.

    `login_of` is the principal whose login is used; None is the login made by commands, which all users share.
    `lookups` and `looked_up` are as in `Program`. With an `api` it is an HTTP service that knows no MCP, and gets
    `query` with each request.
    """

    shown: ClassVar = ("kind", "oauth")
    kind: Literal["http", "sse"] | None
    url: str
    headers: Mapping[str, str]
    oauth: OAuth = OAuth()
    login_of: Principal | None = None
    lookups: "SecretLookups | None" = None
    looked_up: tuple[str, ...] = ()
    query: Mapping[str, str] = {}
    api: ApiDocument | None = None

    @property
    def may_log_in(self) -> bool:
        """Return whether there can be a login: an HTTP service has one only if the config says so."""
        return self.api is None or self.api.has_login

    @property
    def has_own_authorization(self) -> bool:
        """Return whether the config sets an Authorization header, so that no login is needed."""
        return not self.may_log_in or any(
            name.lower() == "authorization" and value.strip() for name, value in self.headers.items()
        )


class Broken(Struct, frozen=True):
    """A server that cannot be started, and the reason."""

    reason: str


Upstream = Program | Remote | CommandLine | SkillFolders | FeatureServer | Broken


class Pinning(Struct, frozen=True):
    """The handling of changed definitions. `source` is a digest of the launch as written in the config."""

    policy: Policy = "trust"
    source: str = ""


# The rules of features on the calls of one server, by their keys in the config. Each feature defines its own type.
Rules = Mapping[str, object]


class Presentation(Struct, frozen=True):
    """The presentation of one server to clients, and the handling of its calls.

    `asks` is whether one of the rules requires approval.
    """

    description: str | None
    features: Features
    tools: ToolFilter
    direct: DirectTools
    answers: CallHandling
    effects: ToolEffects = ToolEffects()
    rules: Rules = {}
    asks: bool = False
    pinning: Pinning = Pinning()

    def rules_of(self, key: str, kind: type[S]) -> tuple[S, ...]:
        """Return the rules of this kind at a key of the config."""
        return cast("tuple[S, ...]", self.rules.get(key, ()))


class Share(Enum):
    """The scope in which clients share one instance of a server."""

    AUTO = "auto"
    SESSION = "session"
    USER = "user"
    ALL = "all"


class GroupConfig(Struct, frozen=True):
    """The launch config of one enabled server; `idle_after_s` None is never.

    `unset` are the variables that it refers to and that are not set, `empty` those with an empty value.
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
        """The principal whose login is used, if each user has their own."""
        return self.upstream.login_of if isinstance(self.upstream, Remote) else None

    @property
    def exchanges(self) -> bool:
        """Return whether the token of each caller is exchanged for one that the server accepts."""
        return isinstance(self.upstream, Remote) and self.upstream.oauth.exchanges

    @property
    def is_api(self) -> bool:
        """Return whether the server is an HTTP service with an OpenAPI document, which this process reads itself."""
        return isinstance(self.upstream, Remote) and self.upstream.api is not None

    @property
    def has_personal_logins(self) -> bool:
        """Return whether each user who connects over HTTP has their own login at the server, or their own token.

        The local user, and clients that count as the local user, keep the logins that commands make.
        """
        remote = self.upstream
        return (
            isinstance(remote, Remote)
            and (remote.oauth.needs_user or remote.oauth.exchanges)
            and not remote.oauth.is_shared
            and not remote.has_own_authorization
            and self.share is not Share.ALL
        )

    def for_user(self, user: Principal) -> "GroupConfig":
        """Return the config with the login of this user, if each user has their own."""
        if not isinstance(self.upstream, Remote) or not self.has_personal_logins:
            return self
        return replace(self, upstream=replace(self.upstream, login_of=user))

    def at_home_for(self, user: Principal) -> "GroupConfig":
        """Return the config for clients of this user, of which the home of the server hears, if it has one."""
        if not isinstance(self.upstream, Program) or self.upstream.home is None:
            return self
        return replace(self, upstream=replace(self.upstream, home=replace(self.upstream.home, user=user)))

    @property
    def user_at_home(self) -> Principal:
        """The user of whom the home of the server hears."""
        home = self.upstream.home if isinstance(self.upstream, Program) else None
        return LOCAL if home is None else home.user

    @property
    def confinement(self) -> Confinement | None:
        """What confines the program, if there is one that runs confined."""
        return self.upstream.confinement if isinstance(self.upstream, Program | CommandLine) else None

    @property
    def label(self) -> str:
        """A short label: the program's name, or the host."""
        match self.upstream:
            case Program(command=command) | CommandLine(command=command):
                return command.replace("\\", "/").rstrip("/").rpartition("/")[2]
            case Remote(url=url):
                return _host(url)
            case SkillFolders() | FeatureServer() | Broken():
                return self.name


class Log(Section, frozen=True):
    """The log of a serving proxy. `--log-level`, `--log-format` and `DYNAMIC_MCP_LOG` override this."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "The lowest level that is logged to stderr. Default: info.",
        Everyday(),
    ] = "info"
    form: Annotated[
        Literal["text", "json"],
        "`text` for people, `json` for programs (one object per line). Default: text.",
    ] = field(default="text", name="format")
    file: Annotated[bool, "Also log to a file, for `dynamic-mcp logs`. Default: true."] = True


class DaemonConfig(Section, frozen=True):
    """The process that runs the servers for all AI tools which use this config."""

    # None: until it is stopped.
    linger_s: Annotated[
        IdleTime | None,
        "How long the daemon stays after the last AI tool has left; `never` means until it is stopped."
        " Default: 5min.",
    ] = field(default=300.0, name="linger")

    def __post_init__(self) -> None:
        """Replace infinity, the parsed value of `never`, by None."""
        if self.linger_s == inf:
            force_setattr(self, "linger_s", None)


class DirectLimit(Section, frozen=True):
    """How much is listed directly at most: whatever is reached first. The rest is behind the two tools."""

    tools: Annotated[Annotated[int, Meta(ge=1)], "How many tools. Default: 120."] = 120
    tokens: Annotated[Annotated[int, Meta(ge=1)], "How many tokens, estimated as 4 bytes each. Default: 20000."] = (
        20_000
    )


class Embeddings(Section, Private, frozen=True):
    """Your own embeddings endpoint with OpenAI's API. It receives the descriptions of tools, and queries."""

    shown: ClassVar = ("model",)
    url: Annotated[Url, "The URL of the endpoint, such as `http://localhost:11434/v1`."]
    model: Annotated[Text, "The name of the model."]
    api_key: Annotated[str | None, "Sent as a bearer token. Write `${VARIABLE}`, not the key itself."] = None


class ServerPlugin(Protocol):
    """A plug-in as the kernel sees it."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Names and globs of the servers that it is used for."""
        ...


class Config(Struct, frozen=True):
    """The whole config: the enabled groups in the order of the file, warnings for the user, the files read.

    `presentations` has one entry for each group, by its name; `file_warnings` are about the file as a whole;
    `embeddings` is the endpoint for vectors; with `daemon` None, each client has its own servers; with `http` None,
    HTTP is not served, as in the config of a workspace. `ui` None is the page with its defaults. `roots` are URIs;
    `access` None is no rules. `audit`, `cluster`, `telemetry`, `metrics` and `scripts` None are off. `lock_file` None
    is the state directory, `max_direct` None no limit.
    """

    file: Path
    groups: tuple[GroupConfig, ...]
    presentations: Mapping[str, Presentation]
    warnings: tuple[str, ...]
    max_message_bytes: int
    file_warnings: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    log: Log = Log()
    embeddings: Embeddings | None = None
    split_calls: bool = False
    max_direct: DirectLimit | None = DirectLimit()
    daemon: DaemonConfig | None = None
    http: "Http | None" = None
    ui: "Ui | Literal[False] | None" = None
    roots: tuple[str, ...] = ()
    access: Access | None = None
    approval: Section | None = None
    audit: Section | None = None
    cluster: Section | None = None
    telemetry: Section | None = None
    metrics: Section | None = None
    scripts: Section | None = None
    profiles: Mapping[str, Profile] = {}
    middleware: tuple[ServerPlugin, ...] = ()
    experimental: tuple[str, ...] = ()
    lock_file: Path | None = None

    def settings_of(self, key: str, section: type[S]) -> S | None:
        settings = getattr(self, key)
        assert settings is None or isinstance(settings, section)
        return settings

    @property
    def asks(self) -> bool:
        """Return whether a rule requires approval."""
        rules_ask = any(each.asks for each in self.presentations.values())
        return rules_ask or (self.access is not None and self.access.asks)

    @property
    def confines_programs(self) -> bool:
        """Return whether a server runs confined."""
        return any(group.confinement is not None for group in self.groups)

    @property
    def runs_programs(self) -> bool:
        """Return whether a server is a program, which may come from a package."""
        return any(isinstance(group.upstream, Program) for group in self.groups)

    @property
    def profiles_run_scripts(self) -> bool:
        """Return whether clients of a profile may run scripts, whatever the settings say."""
        return any(profile.scripts for profile in self.profiles.values())

    @property
    def has_access_rules(self) -> bool:
        """Return whether rules say who may use what. Without, everybody may, if a person approves it where needed."""
        return self.access is not None and (self.access.default is not Effect.ALLOW or bool(self.access.roles))

    @property
    def known_roles(self) -> frozenset[str]:
        """The roles that access rules, profiles or the page give a meaning."""
        of_rules = self.access.roles if self.access is not None else {}
        of_profiles = (role for profile in self.profiles.values() for role in profile.roles)
        return frozenset((*of_rules, *of_profiles, *(self.ui.roles if self.ui else ())))

    @property
    def has_user_logins(self) -> bool:
        """Return whether any server has a login for each user."""
        return any(group.has_personal_logins for group in self.groups)

    @property
    def exchanged_issuers(self) -> frozenset[str]:
        """The issuers whose tokens callers show, and that servers exchange."""
        remotes = (group.upstream for group in self.groups if isinstance(group.upstream, Remote))
        return frozenset(each.oauth.issuer for each in remotes if each.oauth.exchanges and each.oauth.issuer)

    def for_user(self, user: Principal) -> "Config":
        """Return a config whose servers use the logins of this user, where each user has their own."""
        return replace(self, groups=tuple(group.for_user(user) for group in self.groups))


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _host(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).hostname or "")
