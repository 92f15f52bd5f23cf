"""The sections of the kernel: the file, its settings and its servers, as written.

A server's field that is None has the value of `settings.defaults`. Sections of features are in their own modules.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta, field

from dynamic_mcp.config.access import Access, Profiles, ToolEffects
from dynamic_mcp.config.resolved import (
    DaemonConfig,
    DirectLimit,
    Embeddings,
    Features,
    Log,
    OAuth,
    Retry,
    Timeouts,
    ToolFilter,
)
from dynamic_mcp.config.section import (
    Everyday,
    OfFeature,
    PresentFields,
    Section,
    Switch,
    TaggedUnion,
    Value,
    deferred,
    read,
)
from dynamic_mcp.config.types import (
    Direct,
    Globs,
    GroupName,
    Headers,
    IdleTime,
    Inherited,
    Limit,
    Names,
    PathText,
    QueryFields,
    SourceName,
    Strings,
    Text,
    Url,
    Variables,
    check_names,
    unique,
)
from dynamic_mcp.features.table import section_of, section_of_confinement

if TYPE_CHECKING:  # read where a config has them
    from dynamic_mcp.config.command_line import Cli
    from dynamic_mcp.config.http import Http
    from dynamic_mcp.config.resolved import ServerPlugin
    from dynamic_mcp.config.secret_programs import SecretProgram
    from dynamic_mcp.config.ui import Ui

    # Each feature defines its own section.
    Approval = Section
    Audit = Section
    Cluster = Section
    Metrics = Section
    Plugin = ServerPlugin
    Registries = tuple[Section, ...]
    Sandbox = Section
    Scripts = Section
    Telemetry = Section
else:
    Cli = deferred("dynamic_mcp.config.command_line:Cli")
    Http = deferred("dynamic_mcp.config.http:Http")
    SecretProgram = deferred("dynamic_mcp.config.secret_programs:SecretProgram")
    Ui = deferred("dynamic_mcp.config.ui:Ui")
    Approval = deferred(section_of("settings.approval"))
    Audit = deferred(section_of("settings.audit"))
    Cluster = deferred(section_of("settings.cluster"))
    Metrics = deferred(section_of("settings.metrics"))
    Plugin = deferred(section_of("settings.middleware"))
    Registries = deferred(section_of("settings.registries"))
    Sandbox = deferred(section_of_confinement())
    Scripts = deferred(section_of("settings.scripts"))
    Telemetry = deferred(section_of("settings.telemetry"))

# The tag of servers. A file cannot set it, since keys with `x-` are ignored.
_KIND = "x-kind"

_TAGS = {"cli": "cli", "openapi": "openapi", "url": "remote", "command": "stdio", "skills": "skills"}

# Other tools have other names for streamable HTTP.
_RemoteType = Annotated[
    Literal["http", "sse"],
    Value(
        lambda word: "sse" if word == "sse" else "http",
        written=Literal["http", "streamable-http", "streamable_http", "streamableHttp", "sse"],
        type_name="`http` or `sse`",
    ),
]
_Folders = Annotated[
    tuple[str, ...], Value(check_names, written=list[str], schema={"minItems": 1}, type_name="a list of paths")
]
_URL_TEXT = "The URL of the server. With `openapi`, the default is the one that the document names."
_Description = Annotated[
    str | None, "What this server is for, in one line. The model reads it to choose a server.", Everyday()
]
_TrustAnnotations = Annotated[
    bool,
    "Trust the server's own annotations (`readOnlyHint`) about which tools only read, where `effects` does not name"
    " them. Default: false.",
    Everyday(),
]
_Sandbox = Annotated[
    Sandbox | None,
    OfFeature("sandbox"),
    "What the program may use: `write` lets it write only in its own places, `strict` lets it read only there, too,"
    " and use no network; an object says more. Default: off.",
]
_Effects = Annotated[ToolEffects, "Which of the tools only read, and which may change something.", Everyday()]


def root(tree: object) -> "Root":
    """Return the config in a JSON value. Raises ValueError if it is invalid."""
    return read(Root, tree)


def kind(server: object) -> str | None:
    """Return the tag of a server's section by the field that says what it is; None for an unknown type."""
    if not isinstance(server, dict):
        return "stdio"
    match server.get("type"):
        case None:
            return next((tag for field, tag in _TAGS.items() if field in server), "stdio")
        case "stdio":
            return "stdio"
        case "http" | "streamable-http" | "streamable_http" | "streamableHttp" | "sse":
            return "remote"
    return None


class Shared(Section, frozen=True):
    """The fields of every server and of `settings.defaults`."""

    place: ClassVar = "server"
    rules: Mapping[str, object] = field(default={}, name="x-rules")  # those of features, by their keys

    enabled: Annotated[
        bool | None, "`false` ignores the server, as if it were not in the file. Default: true.", Everyday()
    ] = None
    features: Annotated[
        Mapping[str, bool],
        PresentFields(Features),
        "Enables or disables all tools, resources or prompts.",
    ] = {}
    timeout: Annotated[
        Mapping[str, float], PresentFields(Timeouts), "How long to wait for the server.", Everyday()
    ] = {}
    tools: Annotated[
        Mapping[str, tuple[str, ...]], PresentFields(ToolFilter), "Which tools can be listed and called.", Everyday()
    ] = {}
    connect: Annotated[
        Literal["lazy", "eager"] | None,
        "`lazy` connects on first use, `eager` at startup. Default: lazy.",
    ] = None
    idle_timeout: Annotated[
        IdleTime | None,
        "Stop the server, or disconnect from it, after this much time without use. Default: 30min.",
        Everyday(),
    ] = None
    share: Annotated[
        Literal["auto", "session", "user", "all"] | None,
        "Which clients share one running copy of the server: `session` gives each client its own, `user` each"
        " person, `all` everyone the same one. `auto` shares it between clients that would start it"
        " identically, and between different AI tools if it offers them the same, until it asks one of them"
        " something. Default: auto.",
        Everyday(),
    ] = None
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        "The maximum number of requests to the server at once; further ones wait. `limits` are about single tools"
        " and persons. Default: 64.",
    ] = None
    retry: Annotated[Mapping[str, int], PresentFields(Retry), "How often to try to connect."] = {}
    direct: Annotated[
        Direct | None,
        "`true` lists all tools of the server directly, as `<server>__<tool>`, instead of behind the two tools;"
        " a list of names or globs lists these tools directly as well; `auto` lists all to AI tools that search"
        " listed tools themselves. Default: false.",
        Everyday(),
    ] = None
    validate_: Annotated[
        Literal["assist", "strict", "off"] | None,
        "What happens to arguments that do not fit the tool's schema and cannot be corrected: `assist` sends them and"
        " explains the server's error, `strict` refuses the call, `off` sends all arguments as they are. Default:"
        " assist, but strict for tools whose arguments the config judges, for command line programs and for services"
        " with an OpenAPI document.",
    ] = field(default=None, name="validate")
    approve: Annotated[
        Globs | None,
        "Tools whose calls a person must approve first, by the names that the server gives them. It gives no one"
        " access to a tool. Access rules and guards with the effect `ask` are about some persons, or some arguments."
        " Default: none.",
        Everyday(),
    ] = None
    definitions: Annotated[
        Literal["trust", "warn", "hold"] | None,
        OfFeature("pins"),
        "What to do when the server changes the description or schema of a tool or a prompt, or its own"
        " instructions: `trust` takes the change, `warn` logs it and holds back dangerous ones, `hold` holds"
        " it back until a person approves it. Default: `hold` if clients authenticate, else `warn`.",
        Everyday(),
    ] = None
    result_limit: Annotated[
        Limit | None,
        "The maximum size of a result's text. A longer text is cut, and the whole text is available as a"
        " resource. Default: 100kB.",
    ] = None
    result_format: Annotated[
        Literal["original", "compact"] | None,
        "`compact` removes white space from JSON in results. Default: original.",
    ] = None


class Launch(Shared, frozen=True):
    """The fields for starting a program."""

    env: Annotated[
        Variables,
        "Environment variables for the program. They override those of `env_file`, which override those that"
        " `inherit_env` passes on.",
        Everyday(),
    ] = {}
    env_file: Annotated[
        Strings | None,
        "Files with `NAME=value` lines, relative to the config. Later files override earlier ones.",
        Everyday(),
    ] = None
    cwd: Annotated[
        PathText | None,
        "The working directory of the program, relative to the config. Default: the one where the AI tool has"
        " started dynamic-mcp.",
        Everyday(),
    ] = None
    inherit_env: Annotated[
        Inherited | None,
        "Which of your environment variables the program gets: `safe` means those that programs need to run"
        " (PATH, HOME, locale, proxies), `all` means all, and a list adds these to the safe ones. Names can be"
        " globs, such as `AWS_*`; `!*TOKEN*` withholds what other globs pass on. Default: safe.",
        Everyday(),
    ] = None
    sandbox: _Sandbox = None


class ProgramEntry(Launch, frozen=True, kw_only=True, tag_field=_KIND, tag="stdio"):
    """A server that runs as a program and communicates over stdin and stdout."""

    command: Annotated[str, "The program to start, without a shell.", Everyday()]
    args: Annotated[tuple[str, ...], "The arguments of the program.", Everyday()] = ()
    description: _Description = None
    trust_annotations: _TrustAnnotations = False
    effects: _Effects = ToolEffects()
    type: Annotated[Literal["stdio"] | None, "It can be left out."] = None
    home: Annotated[
        bool,
        "With `settings.cluster`: each replica runs this server by itself, on purpose. It is for servers that answer"
        " the same wherever they run: a client without a session calls them at any replica. Default: false, and"
        " `check` refuses the server.",
    ] = False


class RemoteEntry(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="remote"):
    """A server that is reached over HTTP."""

    url: Annotated[Url, _URL_TEXT, Everyday()]
    type: Annotated[
        _RemoteType | None,
        "`http` is streamable HTTP, also under its other names, `sse` the older transport. Default: detected.",
        Everyday(),
    ] = None
    headers: Annotated[Headers, "HTTP headers for every request. Write `${VARIABLE}` for a secret.", Everyday()] = {}
    description: _Description = None
    trust_annotations: _TrustAnnotations = False
    effects: _Effects = ToolEffects()
    oauth: Annotated[OAuth, "Settings for servers that need a login."] = OAuth()


class CommandLineEntry(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="cli"):
    """A command line program that is no MCP server; its commands are the tools."""

    cli: Annotated[Cli, "The program, and what of it can be used.", Everyday()]
    description: _Description = None
    sandbox: _Sandbox = None


class OpenApiEntry(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="openapi"):
    """An HTTP service with an OpenAPI document; its operations are the tools."""

    openapi: Annotated[
        Text,
        "The OpenAPI document of a service: a file, relative to the config, or a URL; JSON or YAML.",
        Everyday(),
    ]
    url: Annotated[Url | None, _URL_TEXT, Everyday()] = None
    include: Annotated[
        Names,
        "With `openapi`: the operations that become tools, by `operationId`, as `GET /pets/*`, or by a tag; names or"
        " globs. Default: all.",
    ] = ("*",)
    exclude: Annotated[
        Globs, "With `openapi`: operations that become none, even if `include` has them. Default: none."
    ] = ()
    slashes: Annotated[
        Globs,
        "With `openapi`: operations whose path arguments may contain `/`, which is sent as `%2F`, such as those that"
        " take the path of a file. Default: none.",
    ] = ()
    headers: Annotated[Headers, "HTTP headers for every request. Write `${VARIABLE}` for a secret.", Everyday()] = {}
    query: Annotated[
        QueryFields,
        "With `openapi`: parameters in the query of every request, such as a key. Write `${VARIABLE}` for a secret.",
    ] = {}
    description: _Description = None
    effects: _Effects = ToolEffects()
    oauth: Annotated[OAuth | None, "Settings for servers that need a login."] = None


class SkillsEntry(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="skills"):
    """Folders of skills, which dynamic-mcp serves itself."""

    skills: Annotated[
        _Folders,
        "Folders, relative to the config, in which each directory with a `SKILL.md` is a skill. Changes are noticed.",
        Everyday(),
    ]
    description: _Description = None


class Search(Section, frozen=True):
    """How `get_dynamic_tools` searches."""

    embeddings: Annotated[Embeddings | None, "Also search by meaning. Default: by words only."] = None


class Defaults(Launch, frozen=True):
    """What applies to the servers that do not say it themselves.

    A server overrides single members of `env`, `features`, `timeout`, `tools` and `retry`, and the whole of any other
    field.
    """

    place: ClassVar = "defaults"


class Settings(Section, frozen=True):
    """Settings of dynamic-mcp itself, and `defaults` for the servers."""

    defaults: Annotated[
        Defaults, "Fields of servers, for all servers that do not have them themselves.", Everyday()
    ] = Defaults()
    split_calls: Annotated[
        bool,
        "Offer `call_dynamic_tool_read` and `call_dynamic_tool_write` instead of one tool, so that a client can"
        " approve reads separately. Default: false.",
    ] = False
    max_direct: Annotated[
        Annotated[DirectLimit | Literal[False] | None, Switch()],
        "How much is listed directly at most: named tools and the most used ones first, and the rest behind the two"
        " tools; `false` lifts the limit. Default: 120 tools or 20000 tokens.",
    ] = None
    log: Annotated[Log, "The log of a serving proxy.", Everyday()] = Log()
    daemon: Annotated[
        Annotated[DaemonConfig | Literal[False] | None, Switch()],
        "Run the servers in a background process, the daemon, and share them between the AI tools and windows"
        " that use this config. Default: false.",
        Everyday(),
    ] = None
    http: Annotated[
        Annotated[Http | Literal[False] | None, Switch()],
        "Also serve clients that connect by URL; `true` takes all defaults. Default: false.",
        Everyday(),
    ] = None
    ui: Annotated[
        Annotated[Ui | Literal[False] | None, Switch()],
        "The page for people at `/ui`, wherever HTTP is served, and by `dynamic-mcp ui`; `false` turns it off. Needs"
        " the extra `ui`. Default: true.",
    ] = None
    variables_file: Annotated[
        Strings,
        "Files with `NAME=value` lines, relative to the config, that provide the values of `${NAME}` in it."
        " They override the environment, and later files override earlier ones. Programs receive the values"
        " only through `${NAME}`.",
        Everyday(),
    ] = ()
    secrets: Annotated[
        dict[SourceName, SecretProgram],
        "Programs that print secrets, by the names in references such as `${op:op://vault/item/field}`. Default:"
        " `op`, `vault`, `pass`, `sops`, `bws`, `gcloud`, `aws`, `security` and `secret-tool`.",
    ] = {}
    max_message_bytes: Annotated[
        Annotated[int, Meta(ge=65536)],
        "The maximum size of a message. Default: 67108864 (64 MiB).",
    ] = 64 * 1024 * 1024
    access: Annotated[Access | None, "Who may use what. Default: no rules.", Everyday()] = None
    approval: Annotated[Approval | None, OfFeature("approvals"), "How a user is asked before a call."] = None
    audit: Annotated[
        Annotated[Audit | Literal[False] | None, Switch()],
        OfFeature("audit"),
        "Record who called which tool, with which result; `true` takes all defaults. Default: false.",
        Everyday(),
    ] = None
    telemetry: Annotated[
        Annotated[Telemetry | Literal[False] | None, Switch()],
        OfFeature("telemetry"),
        "Send traces and metrics to an OpenTelemetry collector. Needs the extra `otel`. Default: true"
        " if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.",
        Everyday(),
    ] = None
    metrics: Annotated[
        Annotated[Metrics | Literal[False] | None, Switch()],
        OfFeature("metrics"),
        "Serve metrics for Prometheus; `true` takes all defaults. Default: false.",
        Everyday(),
    ] = None
    cluster: Annotated[
        Cluster | None,
        OfFeature("cluster"),
        "The other replicas of this service, which `serve --http` passes requests of their sessions on to."
        " Default: it serves alone.",
    ] = None
    experimental: Annotated[
        Annotated[tuple[str, ...], Value(unique, written=list[Literal["groups"]])],
        OfFeature("mcp_groups"),
        "Drafts of MCP to serve, which may change or go with any version: `groups` is the extension"
        " `io.modelcontextprotocol/groups`. Default: none.",
    ] = ()
    lock_file: Annotated[
        PathText | None,
        OfFeature("pins"),
        "A file, relative to the config, with the approved definitions of all servers, to be committed with"
        " it, such as `dynamic-mcp.lock.json`. Default: in the state directory.",
    ] = None
    middleware: Annotated[
        tuple[Plugin, ...], OfFeature("plugins"), "Plug-ins that see calls and lists, in this order. Default: none."
    ] = ()
    scripts: Annotated[
        Annotated[Scripts | Literal[False] | None, Switch()],
        OfFeature("scripts"),
        "Offer a third tool, `run_dynamic_script`, that runs a short program with many calls in a sandbox; `true`"
        " takes all defaults. Needs the extra `scripts`. Default: false.",
    ] = None
    registries: Annotated[
        Registries | None,
        OfFeature("registry"),
        "The registries that `registry` and `add` ask. Default: the official one.",
    ] = None
    open_browser: Annotated[
        Literal["auto", "never"],
        "`auto` opens a browser, if there is one, once for each server that needs a login. Default: auto.",
    ] = "auto"
    token_store: Annotated[
        Literal["file", "keyring"],
        "Where to store login tokens: in private files, or in the system keychain. Default: file.",
    ] = "file"  # noqa: S105
    search: Annotated[Search, "How `get_dynamic_tools` searches."] = Search()
    roots: Annotated[
        Strings,
        "Directories, relative to the config, or URIs, that a server is told when it asks for roots and its"
        " client cannot be asked: clients of MCP 2026-07-28 outside of a call. Default: none.",
    ] = ()


Server = ProgramEntry | RemoteEntry | CommandLineEntry | OpenApiEntry | SkillsEntry
_KINDS = TaggedUnion(
    kind,
    key="type",
    message="must be `stdio`, `http` or `sse`",
    hint="`http` is streamable HTTP, `sse` the older transport; leave it out to detect it",
)


class Root(Section, frozen=True, kw_only=True):
    """The config of dynamic-mcp."""

    schema_: Annotated[
        str | None, "The JSON schema of the config, by which editors complete and check it.", Everyday()
    ] = field(default=None, name="$schema")
    servers: Annotated[dict[GroupName, Annotated[Server, _KINDS]], "The servers, by name.", Everyday()] = field(
        name="mcpServers"
    )
    profiles: Annotated[
        Profiles, "Selections of servers and tools, by name: for `--profile` and `/mcp/profile/<name>`.", Everyday()
    ] = {}
    settings: Annotated[Settings, "Settings of dynamic-mcp itself, and defaults for the servers.", Everyday()] = (
        Settings()
    )
