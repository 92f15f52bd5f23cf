"""The form of the config file: which fields there are and what each may hold.

A field that is left out, or null, is None here; the defaults are filled in by `resolve`. Keys that
start with `x-` belong to the person who wrote the file and are ignored in every object.

A field's annotation says all about it: its type, its bounds, the function that judges it, and its description.
`root` takes a config that is right. `model` makes pydantic models of these sections, to find all that is wrong.
"""

from typing import Annotated, Literal

from msgspec import Meta, convert, field

from dynamic_mcp.config import access_form, access_values, approval_form, cli_form, observe_form, rules_form, values
from dynamic_mcp.config.http_form import Http
from dynamic_mcp.config.oauth_form import OAuth
from dynamic_mcp.config.registry_form import Registries
from dynamic_mcp.config.section import Duration, Section, Url

# Where msgspec finds a server's kind; no file can set it, since keys with `x-` are taken out first.
_KIND = "x-kind"
# The objects whose keys are names, in which `x-` means nothing.
_MAPS = ("env", "headers", "mcpServers", "profiles", "roles", "people", "map", "arguments", "overrides", "effects")
# What is passed on as it is.
_OPAQUE = ("fixed", "default", "options")

IdleTime = Annotated[str | float | None, values.parse_idle_time]
Size = Annotated[str | int | None, values.parse_limit]
InheritEnv = Annotated[str | list[str] | None, values.parse_inherit]
EnvFiles = Annotated[str | list[str] | None, values.parse_list]
Variables = Annotated[dict[str, str], values.check_variables]
Headers = Annotated[dict[str, str], values.check_headers]
Name = Annotated[str, values.check_group_name]
ProfileName = Annotated[str, access_values.check_profile_name]
Description = Annotated[str | None, "One line that tells the model what this server is for."]
Pinned = Annotated[list[str] | None, "Tools to list directly as well, as `<server>__<tool>`; names or globs."]
Trusted = Annotated[
    bool | None,
    "Believe what the server's own annotations say about whether a tool only reads. Default: false.",
]
Overrides = Annotated[
    rules_form.Overrides | None, "How tools are shown to clients, by the server's names for them; names or globs."
]
OwnAccess = Annotated[access_form.ToolAccess | None, "Which of the tools only read, whatever else says so."]


def root(tree: object) -> "Root":
    """The config in a JSON value. Raises msgspec.ValidationError for one that is not right."""
    return convert(_prepared(tree), Root)


def kind(server: object) -> str | None:
    """`stdio` for a program, `remote` for a server with a URL, `cli` for commands, None for an unknown type."""
    if not isinstance(server, dict):
        return "stdio"
    match server.get("type"):
        case None:
            return "cli" if "cli" in server else "remote" if "url" in server else "stdio"
        case "stdio":
            return "stdio"
        case "http" | "sse":
            return "remote"
    return None


def without_own_keys(section: object) -> object:
    """A section without the keys that belong to the person who wrote it."""
    if not isinstance(section, dict):
        return section
    return {key: value for key, value in section.items() if not key.startswith("x-")}


def _prepared(tree: object) -> object:
    """The value as msgspec needs it: without own keys, and with the kind of each server."""
    prepared = _stripped(tree)
    servers = prepared.get("mcpServers") if isinstance(prepared, dict) else None
    if not isinstance(prepared, dict) or not isinstance(servers, dict):
        return prepared
    return {**prepared, "mcpServers": {name: _with_kind(server) for name, server in servers.items()}}


def _stripped(value: object) -> object:
    stripped = without_own_keys(value)
    match stripped:
        case dict():
            return {key: _stripped_member(key, each) for key, each in stripped.items()}
        case list():
            return [_stripped(each) for each in stripped]
    return stripped


def _stripped_member(key: str, value: object) -> object:
    if key in _OPAQUE:
        return value
    return _stripped_map(value) if key in _MAPS else _stripped(value)


def _stripped_map(value: object) -> object:
    return {key: _stripped(each) for key, each in value.items()} if isinstance(value, dict) else _stripped(value)


def _with_kind(server: object) -> object:
    return {**server, _KIND: kind(server)} if isinstance(server, dict) else server


class Features(Section, frozen=True):
    """Enables or disables what a server offers."""

    tools: Annotated[bool | None, "Offer the server's tools. Default: true."] = None
    resources: Annotated[bool | None, "Offer the server's resources. Default: true."] = None
    prompts: Annotated[bool | None, "Offer the server's prompts. Default: true."] = None


class Timeout(Section, frozen=True):
    """How long to wait: `500ms`, `30s`, `1.5s`, `2min` (or `2m`), `1h`, `7d`, or a number of seconds."""

    connect: Annotated[Duration, "For starting the server or connecting to it. Default: 30s."] = None
    tools: Annotated[Duration, "For a tool call. Default: 60s."] = None
    resources: Annotated[Duration, "For reading or listing resources. Default: 10s."] = None
    prompts: Annotated[Duration, "For getting or listing prompts. Default: 10s."] = None


class Tools(Section, frozen=True):
    """Which tools can be listed and called. The patterns are globs, such as `read_*`."""

    include: Annotated[list[str] | None, "Only these tools; an empty list means none. Default: all."] = None
    exclude: Annotated[list[str] | None, "These tools never, even if `include` matches them."] = None


class Retry(Section, frozen=True):
    """How often to try to connect."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=20)] | None,
        "The number of attempts before the server counts as down. Default: 3.",
    ] = None


class Shared(Section, frozen=True):
    """The fields of every server and of the settings."""

    enabled: Annotated[bool | None, "False ignores the server, as if it were not in the file. Default: true."] = None
    features: Annotated[Features | None, "Enables or disables tools, resources and prompts."] = None
    timeout: Annotated[Timeout | None, "How long to wait for the server."] = None
    tools: Annotated[Tools | None, "Which tools can be listed and called."] = None
    connect: Annotated[
        Literal["lazy", "eager"] | None,
        "`lazy` connects on first use, `eager` at startup. Default: lazy.",
    ] = None
    idle_timeout: Annotated[
        IdleTime,
        "Close the connection after this much time without use, or `never`. Default: 30min.",
    ] = None
    share: Annotated[
        Literal["auto", "session", "user", "all"] | None,
        "Who shares one running copy of the server: `session` gives each client its own, `user` each person,"
        " `all` one for everybody. `auto` shares it between clients that would start it identically, and between"
        " different AI tools if it offers them the same, until it asks one of them something. Default: auto.",
    ] = None
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        "The maximum number of concurrent requests; further ones wait. Default: 64.",
    ] = None
    retry: Annotated[Retry | None, "How often to try to connect."] = None
    expose: Annotated[
        Literal["group", "direct"] | None,
        "`direct` lists the server's tools directly, as `<server>__<tool>`, instead of behind the two meta-tools."
        " Default: group.",
    ] = None
    validate_: Annotated[
        Literal["assist", "strict", "off"] | None,
        "What happens to arguments that do not fit the tool's schema and cannot be corrected: `assist` sends them and"
        " explains the server's error, `strict` refuses the call, `off` sends all arguments as they are. Default:"
        " assist, but strict for tools whose arguments the config judges, and for command line programs.",
    ] = field(default=None, name="validate")
    approve: Annotated[
        access_form.Globs | None,
        "Tools that a person must approve before each call by those who may use them; globs of the names that the"
        " server gives them. It allows nobody anything. Default: none.",
    ] = None
    guards: Annotated[
        rules_form.Guards | None, "What the arguments of calls must be, and must not be. Default: none."
    ] = None
    limits: Annotated[rules_form.Limits | None, "How often tools may be called. Default: no limits."] = None
    cache: Annotated[rules_form.Caches | None, "Which results are kept, and for how long. Default: none."] = None
    redact: Annotated[
        rules_form.Redacts | None, "What is replaced in texts of results and arguments. Default: nothing."
    ] = None
    definitions: Annotated[
        Literal["trust", "warn", "hold"] | None,
        "What follows if the server changes what it says of a tool, a prompt or itself: `trust` takes it, `warn` logs"
        " it and holds back what is dangerous, `hold` holds it back until somebody approves it. Default: `hold` for"
        " clients that authenticate, else `warn`.",
    ] = None
    result_limit: Annotated[
        Size,
        "The maximum text of a result: `100kB`, a number of bytes, or `off`. A longer text is cut, and all of it is"
        " available as a resource. Default: 100kB.",
    ] = None
    result_format: Annotated[
        Literal["original", "compact"] | None,
        "`compact` removes white space from JSON in results. Default: original.",
    ] = None


class Launch(Shared, frozen=True):
    """The fields for starting a program."""

    env: Annotated[
        Variables | None, "Environment variables for the program. They override `env_file` and `inherit_env`."
    ] = None
    env_file: Annotated[
        EnvFiles,
        "Files with `NAME=value` lines, relative to this file. Later files override earlier ones.",
    ] = None
    cwd: Annotated[str | None, "The working directory of the program, relative to this file."] = None
    inherit_env: Annotated[
        InheritEnv,
        "`safe` passes on the variables that programs need to run (PATH, HOME, locale, proxies), `all` passes on all"
        " variables, and a list adds these to the safe ones. Names can be globs, such as `AWS_*`; `!*TOKEN*`"
        " withholds what other globs pass on. Default: safe.",
    ] = None


class Program(Launch, frozen=True, kw_only=True, tag_field=_KIND, tag="stdio"):
    """A server that runs as a program and communicates over stdin and stdout."""

    type: Annotated[Literal["stdio"] | None, "Optional."] = None
    description: Description = None
    pinned: Pinned = None
    trusted: Trusted = None
    access: OwnAccess = None
    overrides: Overrides = None
    command: Annotated[str, "The program to run, without a shell."]
    args: Annotated[list[str] | None, "The arguments of the program."] = None


class Remote(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="remote"):
    """A server that is reached over HTTP."""

    type: Annotated[
        Literal["http", "sse"] | None,
        "`http` is streamable HTTP, `sse` the older transport. Default: detected.",
    ] = None
    description: Description = None
    pinned: Pinned = None
    trusted: Trusted = None
    access: OwnAccess = None
    overrides: Overrides = None
    url: Annotated[Url, "The URL of the server."]
    headers: Annotated[Headers | None, "HTTP headers for every request."] = None
    oauth: Annotated[OAuth | None, "Settings for servers that need a login."] = None
    oauth_client_id: Annotated[str | None, "Short for `oauth.client_id`."] = None
    oauth_scopes: Annotated[list[str] | None, "Short for `oauth.scopes`."] = None


class CommandLine(Shared, frozen=True, kw_only=True, tag_field=_KIND, tag="cli"):
    """A command line program that is no MCP server; its commands are the tools."""

    description: Description = None
    pinned: Pinned = None
    access: OwnAccess = None
    overrides: Overrides = None
    cli: Annotated[cli_form.Cli, "The program, and what of it can be used."]


class Log(Section, frozen=True):
    """The log of a serving proxy. `--log-level`, `--log-format` and `DYNAMIC_MCP_LOG` override this."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        "The lowest level to log to stderr. Default: info.",
    ] = None
    format: Annotated[
        Literal["text", "json"] | None,
        "`text` for people, `json` for programs (one object per line). Default: text.",
    ] = None
    file: Annotated[bool | None, "Also log to a file, for `dynamic-mcp logs`. Default: true."] = None


class Embeddings(Section, frozen=True, kw_only=True):
    """Your own embeddings endpoint with OpenAI's API. It receives the descriptions of tools, and queries."""

    url: Annotated[Url, "The URL of the endpoint, such as `http://localhost:11434/v1`."]
    model: Annotated[Annotated[str, Meta(min_length=1)], "The name of the model."]
    api_key: Annotated[str | None, "Sent as a bearer token. Write `${VARIABLE}`, not the key itself."] = None


class Search(Section, frozen=True):
    """How `get_dynamic_tools` searches."""

    embeddings: Annotated[Embeddings | None, "Also search by meaning. Default: by words only."] = None


class Daemon(Section, frozen=True):
    """The process that runs the servers for all AI tools which use this config."""

    linger: Annotated[
        IdleTime,
        "How long it stays after the last AI tool has left, or `never` to stay until it is stopped. Default: 5min.",
    ] = None


class Settings(Launch, frozen=True):
    """Defaults for all servers. A server's own fields override them."""

    split_calls: Annotated[
        bool | None,
        "Offer `call_dynamic_tool_read` and `call_dynamic_tool_write` instead of one tool, so that a client can"
        " approve reads separately. Default: false.",
    ] = None
    log: Annotated[Log | None, "The log of a serving proxy."] = None
    daemon: Annotated[
        Annotated[bool | Daemon | None, values.expand_switch],
        "Run the servers in a process of their own, the daemon, and share them between the AI tools and windows that"
        " use this config. Default: false.",
    ] = None
    http: Annotated[
        Annotated[bool | Http | None, values.expand_switch],
        "Also serve clients that connect by URL; `true` takes all defaults. Default: false.",
    ] = None
    variables_file: Annotated[
        EnvFiles,
        "Files with `NAME=value` lines, relative to this file, that provide the values of `${NAME}` in it. They"
        " override the environment, and later files override earlier ones. Programs receive the values only through"
        " `${NAME}`.",
    ] = None
    max_message_bytes: Annotated[
        Annotated[int, Meta(ge=65536)] | None,
        "The maximum size of a message. Default: 67108864 (64 MiB).",
    ] = None
    access: Annotated[access_form.Access | None, "Who may use what. Default: no rules."] = None
    approval: Annotated[approval_form.Approval | None, "How a person is asked before a call."] = None
    audit: Annotated[
        Annotated[bool | observe_form.Audit | None, values.expand_switch],
        "Record who called what; `true` takes all defaults. Default: false.",
    ] = None
    telemetry: Annotated[
        Annotated[bool | observe_form.Telemetry | None, values.expand_switch],
        "Send traces and metrics to an OpenTelemetry collector. Needs the extra `otel`. Default: true"
        " if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.",
    ] = None
    metrics: Annotated[
        Annotated[bool | observe_form.Metrics | None, values.expand_switch],
        "Serve metrics for Prometheus; `true` takes all defaults. Default: false.",
    ] = None
    lock_file: Annotated[
        str | None,
        "A file, relative to this one, with the approved definitions of all servers, to be committed with it, such as"
        " `dynamic-mcp.lock.json`. Default: in the state directory.",
    ] = None
    middleware: Annotated[
        list[rules_form.Middleware] | None, "Plug-ins on the way of calls, in this order. Default: none."
    ] = None
    registries: Annotated[
        Registries | None, "The registries that `registry` and `add` ask. Default: the official one."
    ] = None
    open_browser: Annotated[
        Literal["auto", "never"] | None,
        "`auto` opens a browser, if there is one, once for each server that needs a login. Default: auto.",
    ] = None
    token_store: Annotated[
        Literal["file", "keyring"] | None,
        "Where to store login tokens: in private files, or in the system keychain. Default: file.",
    ] = None
    search: Annotated[Search | None, "How `get_dynamic_tools` searches."] = None
    roots: Annotated[
        Annotated[str | list[str] | None, values.parse_list],
        "Directories, relative to this file, or URIs, that a server is told when it asks for roots and its client"
        " cannot be asked: clients of MCP 2026-07-28 outside of a call. Default: none.",
    ] = None


Server = Annotated[Program | Remote | CommandLine, kind]


class Root(Section, frozen=True, kw_only=True):
    """The config of dynamic-mcp."""

    schema_: Annotated[str | None, "The JSON schema of this file, for editors."] = field(default=None, name="$schema")
    servers: Annotated[dict[Name, Server], "The servers, by name."] = field(name="mcpServers")
    profiles: Annotated[
        dict[ProfileName, access_form.Profile] | None,
        "Selections of servers and tools, by name: for `--profile` and `/mcp/profile/<name>`.",
    ] = None
    settings: Annotated[Settings | None, "Defaults for all servers."] = None

    def __post_init__(self) -> None:
        """Judge the names of the servers and the profiles too. Raises FlawError."""
        super().__post_init__()
        for name in self.servers:
            values.check_group_name(name)
        for name in self.profiles or ():
            access_values.check_profile_name(name)
