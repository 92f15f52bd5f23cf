"""The form of the config file: which fields there are and what each may hold.

A field that is left out, or null, is None here; the defaults are filled in by `resolve`. Keys that
start with `x-` belong to the person who wrote the file and are ignored in every object.
"""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from dynamic_mcp.config import values
from dynamic_mcp.config.environment import Inherit

_SECONDS: dict[str, object] = {"type": "number", "minimum": 0, "maximum": values.LONGEST_S}
_LENGTH = r"(\+?[0-9]+(\.[0-9]+)?\s*([mM]?[sS]|[mM]|[mM][iI][nN]|[hH])?)?"
_NEVER = "[nN][eE][vV][eE][rR]"
_STRINGS: dict[str, object] = {"type": "array", "items": {"type": "string"}}
_NULL: dict[str, object] = {"type": "null"}


def _duration(value: object) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return values.seconds(value)


def _idle_time(value: object) -> float | None:
    is_never = isinstance(value, str) and value.strip().lower() == "never"
    return float("inf") if is_never else _duration(value)


def _size(value: object) -> int | None:
    if value is None:
        return None
    is_off = isinstance(value, str) and value.strip() == "off"
    return values.NO_LIMIT if is_off else values.size(value)


def _inherit(value: object) -> Inherit | None:
    match value:
        case None | "safe" | "all":
            return value
        case list() if all(isinstance(name, str) for name in value):
            return tuple(value)
    raise values.FlawError("must be `safe`, `all` or a list of names of variables")


def _one_or_many(value: object) -> object:
    if value is not None and not isinstance(value, (str, list)):
        raise values.FlawError("must be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def _literal_url(text: str) -> str:
    return text if "${" in text else values.url(text)


def _kind(server: object) -> str | None:
    if not isinstance(server, dict):
        return "stdio"
    match server.get("type"):
        case None:
            return "remote" if "url" in server else "stdio"
        case "stdio":
            return "stdio"
        case "http" | "sse":
            return "remote"
    return None


Duration = Annotated[
    float | None,
    PlainValidator(_duration),
    WithJsonSchema({"anyOf": [_SECONDS, {"type": "string", "pattern": rf"^\s*{_LENGTH}\s*$"}, _NULL]}),
]
IdleTime = Annotated[
    float | None,
    PlainValidator(_idle_time),
    WithJsonSchema({"anyOf": [_SECONDS, {"type": "string", "pattern": rf"^\s*({_LENGTH}|{_NEVER})\s*$"}, _NULL]}),
]
Size = Annotated[
    int | None,
    PlainValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": values.SMALLEST_LIMIT},
                {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*([kKmM]i?)?[bB]?|off)\s*$"},
                _NULL,
            ]
        }
    ),
]
InheritEnv = Annotated[
    Inherit | None,
    PlainValidator(_inherit),
    WithJsonSchema({"anyOf": [{"enum": ["safe", "all"]}, _STRINGS, _NULL]}),
]
EnvFiles = Annotated[
    list[str] | None,
    BeforeValidator(_one_or_many),
    WithJsonSchema({"anyOf": [{"type": "string"}, _STRINGS, _NULL]}),
]
Variables = Annotated[
    dict[str, str],
    AfterValidator(values.variables),
    Field(json_schema_extra={"propertyNames": {"pattern": values.VARIABLE_NAME}}),
]
Headers = Annotated[
    dict[str, str],
    AfterValidator(values.headers),
    Field(json_schema_extra={"propertyNames": {"pattern": values.HEADER_NAME}}),
]
Url = Annotated[str, AfterValidator(_literal_url)]
Name = Annotated[str, AfterValidator(values.group_name), Field(min_length=1, max_length=values.NAME_LENGTH)]


class Section(BaseModel):
    """An object of the file."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_extra={"patternProperties": {"^x-": {}}},
    )

    @model_validator(mode="before")
    @classmethod
    def _without_own_keys(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        return {key: value for key, value in fields.items() if not key.startswith("x-")}


class Features(Section):
    """Switches for what a server may offer."""

    tools: bool | None = Field(None, description="Offer the server's tools. Default: true.")
    resources: bool | None = Field(None, description="Offer the server's resources. Default: true.")
    prompts: bool | None = Field(None, description="Offer the server's prompts. Default: true.")


class Timeout(Section):
    """How long to wait: `500ms`, `30s`, `1.5s`, `2m`, `1h`, or a number of seconds."""

    connect: Duration = Field(None, description="To start or reach the server. Default: 30s.")
    tools: Duration = Field(None, description="For a tool call. Default: 60s.")
    resources: Duration = Field(None, description="For reading or listing resources. Default: 10s.")
    prompts: Duration = Field(None, description="For getting or listing prompts. Default: 10s.")


class Tools(Section):
    """Which tools may be listed and called; the patterns are globs, as `read_*`."""

    include: list[str] | None = Field(None, description="Only these tools; an empty list is none. Default: all.")
    exclude: list[str] | None = Field(None, description="Never these tools, even if included.")


class Retry(Section):
    """How often to try to connect."""

    attempts: int | None = Field(
        None, ge=1, le=20, description="Attempts before the server counts as down. Default: 3."
    )


class OAuth(Section):
    """What cannot be found out about logging in to the server."""

    client_id: str | None = Field(None, description="The client's id, if it was registered by hand.")
    client_secret: str | None = Field(None, description="The client's secret; write `${VARIABLE}`, not the secret.")
    scopes: list[str] | None = Field(None, description="The scopes to ask for. Default: what the server asks for.")
    redirect_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="The local port that the browser comes back to. Default: any free one.",
    )
    metadata_url: Url | None = Field(
        None, description="The authorization server's metadata document, if the server does not name it."
    )
    issuer: Url | None = Field(
        None, description="The one authorization server that may get the secret, if it is on another host."
    )
    account: str | None = Field(
        None, description="A word of yours; servers with the same `url` and another word log in separately."
    )
    grant: Literal["authorization_code", "client_credentials"] | None = Field(
        None,
        description="`client_credentials` logs in as the client itself, without a person."
        " Default: authorization_code.",
    )
    private_key_file: str | None = Field(
        None, description="A key in PEM form, relative to this file, that proves who the client is (private_key_jwt)."
    )
    private_key_alg: Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"] | None = Field(
        None, description="How to sign with the key. Default: RS256, or what the key's curve asks for."
    )
    client_metadata_url: Url | None = Field(
        None,
        description="The client's metadata document: it is the client's id where the authorization server takes one.",
    )


class Shared(Section):
    """The fields of every server, and of the settings."""

    enabled: bool | None = Field(
        None, description="False takes the server out as if it were not there. Default: true."
    )
    features: Features | None = Field(None, description="Switches for tools, resources and prompts.")
    timeout: Timeout | None = Field(None, description="How long to wait for the server.")
    tools: Tools | None = Field(None, description="Which tools may be listed and called.")
    connect: Literal["lazy", "eager"] | None = Field(
        None, description="`lazy` connects at first use, `eager` at the start. Default: lazy."
    )
    idle_timeout: IdleTime = Field(
        None, description="Close the connection after so long without use, or `never`. Default: 30min."
    )
    concurrency: int | None = Field(
        None, ge=1, le=1024, description="Requests in flight at once; more wait for their turn. Default: 64."
    )
    retry: Retry | None = Field(None, description="How often to try to connect.")
    expose: Literal["group", "direct"] | None = Field(
        None,
        description="`direct` lists the server's tools by themselves, as `<server>__<tool>`, instead of behind"
        " the two tools. Default: group.",
    )
    validate_: Literal["on", "off"] | None = Field(
        None,
        alias="validate",
        description="Whether arguments are checked against the tool's schema before they are sent. Default: on.",
    )
    result_limit: Size = Field(
        None,
        description="The most text of a result; more is cut and kept as a resource. `100kB`, a number of bytes,"
        " or `off`. Default: 100kB.",
    )
    result_format: Literal["original", "compact"] | None = Field(
        None, description="`compact` takes the white space out of JSON in results. Default: original."
    )


class Launch(Shared):
    """The fields about the surroundings of a program."""

    env: Variables | None = Field(
        None, description="Variables for the program; these win over `env_file` and `inherit_env`."
    )
    env_file: EnvFiles = Field(
        None,
        description="Files of `NAME=value` lines, relative to this file; later ones win over earlier ones.",
    )
    cwd: str | None = Field(None, description="The program's directory, relative to this file.")
    inherit_env: InheritEnv = Field(
        None,
        description="`safe` passes on what programs need to run (PATH, HOME, locale, proxies), `all` everything,"
        " a list the safe ones and these; names may be globs, as `AWS_*`, and `!*TOKEN*` holds back what others"
        " pass on. Default: safe.",
    )


class Program(Launch):
    """A server that is a program, talking over its standard input and output."""

    type: Literal["stdio"] | None = Field(None, description="May be left out.")
    description: str | None = Field(None, description="One line for the model: what this server is good for.")
    pinned: list[str] | None = Field(
        None, description="Tools that are listed by themselves too, as `<server>__<tool>`; names or globs."
    )
    command: str = Field(description="The program to start; no shell is involved.")
    args: list[str] | None = Field(None, description="Its arguments.")


class Remote(Shared):
    """A server that is reached over HTTP."""

    type: Literal["http", "sse"] | None = Field(
        None, description="`http` is streamable HTTP, `sse` the older transport. Default: found out."
    )
    description: str | None = Field(None, description="One line for the model: what this server is good for.")
    pinned: list[str] | None = Field(
        None, description="Tools that are listed by themselves too, as `<server>__<tool>`; names or globs."
    )
    url: Url = Field(description="Where the server answers.")
    headers: Headers | None = Field(None, description="Sent with every request.")
    oauth: OAuth | None = Field(None, description="For servers that want a login.")
    oauth_client_id: str | None = Field(None, description="Short for `oauth.client_id`.")
    oauth_scopes: list[str] | None = Field(None, description="Short for `oauth.scopes`.")


class Log(Section):
    """What is said while serving, and where; `--log-level`, `--log-format` and `DYNAMIC_MCP_LOG` win over it."""

    level: Literal["debug", "info", "warning", "error"] | None = Field(
        None, description="How much goes to stderr. Default: info."
    )
    format: Literal["text", "json"] | None = Field(
        None, description="`text` for people, `json` for programs: one object a line. Default: text."
    )
    file: bool | None = Field(None, description="Keep the log in a file too, for `dynamic-mcp logs`. Default: true.")


class Embeddings(Section):
    """An embeddings endpoint of your own, in OpenAI's protocol; tools' descriptions and queries are sent to it."""

    url: Url = Field(description="Where it answers, as `http://localhost:11434/v1`.")
    model: str = Field(min_length=1, description="The name of the model.")
    api_key: str | None = Field(None, description="Sent as a bearer token; write `${VARIABLE}`, not the key.")


class Search(Section):
    """How tools are found."""

    embeddings: Embeddings | None = Field(None, description="Find by meaning too. Default: by words alone.")


class Settings(Launch):
    """Defaults for all servers; a server's own fields win."""

    split_calls: bool | None = Field(
        None,
        description="Offer `call_dynamic_tool_read` and `call_dynamic_tool_write` instead of one tool, so that"
        " a client can approve reading by itself. Default: false.",
    )
    log: Log | None = Field(None, description="What is said while serving, and where.")
    variables_file: EnvFiles = Field(
        None,
        description="Files of `NAME=value` lines, relative to this file, that fill in `${NAME}` in it; they win over"
        " the environment, later ones over earlier ones, and reach a program only where it is given a variable.",
    )
    max_message_bytes: int | None = Field(
        None, ge=65536, description="The largest message that is accepted. Default: 67108864 (64 MiB)."
    )
    open_browser: Literal["auto", "never"] | None = Field(
        None,
        description="`auto` opens a browser once for a server that needs a login, where there is one. Default: auto.",
    )
    token_store: Literal["file", "keyring"] | None = Field(
        None,
        description="Where the tokens of logins are kept: private files, or the system's keychain. Default: file.",
    )
    search: Search | None = Field(None, description="How tools are found.")


Server = Annotated[
    Annotated[Program, Tag("stdio")] | Annotated[Remote, Tag("remote")],
    Discriminator(_kind),
]


class Root(Section):
    """The config of dynamic-mcp."""

    schema_: str | None = Field(None, alias="$schema", description="The schema of this file, for editors.")
    servers: dict[Name, Server] = Field(alias="mcpServers", description="The servers, by name.")
    settings: Settings | None = Field(None, description="Defaults for all servers.")
