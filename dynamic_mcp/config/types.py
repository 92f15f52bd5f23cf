"""The types of config values: their written form, their JSON Schema, and the errors for invalid ones.

A message never repeats a possible secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Raw, Struct

from dynamic_mcp.config.addresses import PATTERN, parse_address
from dynamic_mcp.config.addresses import Address as _Address
from dynamic_mcp.config.flaws import FlawError, printable
from dynamic_mcp.config.section import Value
from dynamic_mcp.mcp import wire

T = TypeVar("T")
LONGEST_S = 10 * 365 * 24 * 3600
NAME_LENGTH = 64
SMALLEST_LIMIT = 1000
NO_LIMIT = 1 << 62  # the value of `off` for a size
UNIX_PEER = "unix"  # among the trusted proxies: any process that connects to the Unix socket
VARIABLE_NAME = r"^[^=\x00]+$"
_SOURCE_NAME = r"^[a-z][a-z0-9_-]*$"
# These have a meaning of their own, here or in the configs of other programs.
_TAKEN_NAMES = ("credential", "keyring", "env", "input")
QUERY_NAME = r"^[^\x00-\x20]+$"
HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"

# --- durations, sizes, rates ----------------------------------------------------------------------------------------

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)?"
_DURATION_HINT = "write `500ms`, `30s`, `2min` (or `2m`), `1h`, `7d` or a number of seconds"
_SIZE = r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)(i?)[bB]?"
_SIZE_HINT = "write `100kB`, `1MB`, a number of bytes, or `off`"
_RATE = r"^\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*(s|min|m|h|d)\s*$"
_RATE_HINT = "write `5/s`, `60/min`, `1000/h` or `10000/d`"
_MAX_RATE = 1_000_000.0


def parse_seconds(value: object) -> float:
    """Parse a duration into seconds: `500ms`, `30s`, `1.5s`, `2min` (or `2m`), `1h`, `7d`, or a number of seconds."""
    if isinstance(value, str):
        amount = _parse_amount(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = value
    else:
        raise FlawError("must be a duration", hint=_DURATION_HINT)
    if amount < 0:
        raise FlawError("must not be negative")
    if not amount <= LONGEST_S:
        raise FlawError("must not be longer than ten years")
    return float(amount)


def _parse_amount(text: str) -> float:
    match = re.fullmatch(_DURATION, text.strip().lower())
    if match is None:
        raise FlawError(f"is not a duration: `{printable(text)}`", hint=_DURATION_HINT)
    return float(match[1]) * _UNITS[match[2] or "s"]


def parse_duration(value: object) -> float | None:
    """Parse a duration into seconds; a blank string means that it was left out."""
    return None if isinstance(value, str) and not value.strip() else parse_seconds(value)


def parse_idle_time(value: object) -> float | None:
    """Parse a duration into seconds; `never` is infinity."""
    is_never = isinstance(value, str) and value.strip().lower() == "never"
    return math.inf if is_never else parse_duration(value)


def parse_size(value: object) -> int:
    """Parse a size into bytes: `100kB`, `1.5 MB`, `64KiB`, or a number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := re.fullmatch(_SIZE, value.strip())):
        amount = int(float(match[1]) * (1024 if match[3] else 1000) ** ("", "k", "m").index(match[2].lower()))
    else:
        raise FlawError("must be a size", hint=_SIZE_HINT)
    if amount < SMALLEST_LIMIT:
        raise FlawError(f"must be at least {SMALLEST_LIMIT} bytes", hint=_SIZE_HINT)
    return amount


def parse_limit(value: object) -> int:
    """Parse a size into bytes; `off` is `NO_LIMIT`."""
    is_off = isinstance(value, str) and value.strip() == "off"
    return NO_LIMIT if is_off else parse_size(value)


def parse_rate(text: str) -> float:
    """Parse a rate into calls per second."""
    match = re.fullmatch(_RATE, text)
    if match is None:
        raise FlawError(f"is not a rate: `{printable(text)}`", hint=_RATE_HINT)
    rate = float(match[1]) / _UNITS[match[2]]
    if not 0 < rate <= _MAX_RATE:
        raise FlawError("must be greater than 0 and at most 1000000 calls per second", hint=_RATE_HINT)
    return rate


def _duration_schema(more: str = "") -> Mapping[str, object]:
    length = r"(\+?[0-9]+(\.[0-9]+)?\s*([mM]?[sS]|[mM]|[mM][iI][nN]|[hH]|[dD])?)?"
    text = rf"^\s*({length}|{more})\s*$" if more else rf"^\s*{length}\s*$"
    seconds = {"type": "number", "minimum": 0, "maximum": LONGEST_S}
    return {"anyOf": [seconds, {"type": "string", "pattern": text}]}


def _size_schema(pattern: str) -> Mapping[str, object]:
    number = {"type": "integer", "minimum": SMALLEST_LIMIT}
    return {"anyOf": [number, {"type": "string", "pattern": pattern}]}


# Seconds.
Duration = Annotated[float, Value(parse_duration, schema=_duration_schema(), type_name="a duration such as `30s`")]
IdleTime = Annotated[
    float,
    Value(
        parse_idle_time,
        schema=_duration_schema("[nN][eE][vV][eE][rR]"),
        type_name="a duration such as `30min`, or `never`",
    ),
]
# Bytes.
Size = Annotated[
    int,
    Value(
        parse_size,
        schema=_size_schema(r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmM]i?)?[bB]?\s*$"),
        type_name="a size such as `1MB`",
    ),
]
Limit = Annotated[
    int,
    Value(
        parse_limit,
        schema=_size_schema(r"^\s*([0-9]+(\.[0-9]+)?\s*([kKmM]i?)?[bB]?|off)\s*$"),
        type_name="a size such as `100kB`, or `off`",
    ),
]
# Calls a second.
Rate = Annotated[
    float, Value(parse_rate, written=str, schema={"pattern": _RATE}, type_name="a rate such as `60/min`")
]


# --- names, globs, texts, JSON --------------------------------------------------------------------------------------

_MAX_GLOB = 1000
_FLAG_GLOB = r"^(-[!-,.-<>-~]|--?[A-Za-z0-9*?][A-Za-z0-9*?._-]*)$"
_PLUGIN_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
# Headers with a fixed meaning, regardless of the sender.
_TAKEN_HEADERS = frozenset({"authorization", "host", "origin", "cookie", "content-type", "content-length", "accept"})

Inherit = Literal["safe", "all"] | tuple[str, ...]


def _parse_inherit(value: object) -> Inherit:
    """Parse the variables that a program inherits: `safe`, `all`, or a list of further names."""
    match value:
        case "safe" | "all":
            return value
        case list() if all(isinstance(name, str) for name in value):
            return tuple(value)
    raise FlawError("must be `safe`, `all` or a list of variable names")


def _expand_list(value: object) -> object:
    if not isinstance(value, (str, list)):
        raise FlawError("must be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def unique(values: Sequence[T]) -> tuple[T, ...]:
    """Return the values without duplicates."""
    return tuple(dict.fromkeys(values))


def check_group_name(text: str) -> str:
    """Check that a name can be shown to a model: printable characters only, and not too long."""
    if not text.strip() or not text.isprintable() or len(text) > NAME_LENGTH:
        raise FlawError(f"the name of a server must be 1 to {NAME_LENGTH} printable characters")
    return text


def check_profile_name(name: str) -> str:
    """Check that a profile's name can be part of a path: `/mcp/profile/<name>`."""
    is_readable = name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
    if not is_readable or "/" in name or name in (".", ".."):
        raise FlawError(
            f"the name of a profile must be 1 to {NAME_LENGTH} printable characters, without `/`, and not `.` or `..`"
        )
    return name


def check_globs(globs: Sequence[str]) -> tuple[str, ...]:
    """Check names that may contain `*` and `?`."""
    for glob in globs:
        if not glob or len(glob) > _MAX_GLOB or "\0" in glob:
            raise FlawError("must not be empty, and at most 1000 characters", hint="write a name or a glob: `read_*`")
    return tuple(globs)


class DirectTools(Struct, frozen=True):
    """The tools that are listed directly: all, and then not behind the two tools, or those that match the globs.

    `is_auto`: all for clients that search listed tools themselves, and none for the others.
    """

    is_all: bool = False
    globs: tuple[str, ...] = ()
    is_auto: bool = False

    @property
    def shows_some(self) -> bool:
        """Return whether any tool may be listed directly, to some client at least."""
        return self.is_all or self.is_auto or bool(self.globs)

    def shows(self, tool: str) -> bool:
        return self.is_all or self.names(tool)

    def names(self, tool: str) -> bool:
        """Return whether a glob matches a tool."""
        return any(fnmatchcase(tool, glob) for glob in self.globs)


def _parse_direct(value: object) -> DirectTools:
    """Parse `true`, `false`, `auto`, or a list of names or globs."""
    match value:
        case "auto":
            return DirectTools(is_auto=True)
        case bool():
            return DirectTools(value)
        case list() if all(isinstance(each, str) for each in value):
            return DirectTools(globs=check_globs(value))
    raise FlawError(
        "must be true, false, `auto` or a list of tools", hint='write `true`, or names or globs: `["read_*"]`'
    )


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Check a list of names or globs, which must not be empty."""
    if not names:
        raise FlawError("must not be empty", hint="write at least one name or glob")
    return check_globs(names)


def _check_effects(effects: Mapping[str, str]) -> Mapping[str, str]:
    """Check the names of commands, which may contain `*` and `?`."""
    check_globs([*effects])
    return effects


def _check_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Check flags in their written form, which may contain `*` and `?`."""
    for flag in flags:
        if not re.fullmatch(_FLAG_GLOB, flag):
            raise FlawError("must be flags with their dashes", hint="write `--force`, `-f` or a glob: `--no-*`")
    return tuple(flags)


def _check_variables(env: Mapping[str, str]) -> Mapping[str, str]:
    return _check_keys(env, VARIABLE_NAME, "the name of a variable must not be empty or contain `=`")


def check_headers(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Check the names of HTTP headers (RFC 9110, section 5.1)."""
    return _check_keys(fields, HEADER_NAME, "the name of a header must consist of letters, digits and hyphens")


def _check_query_fields(fields: Mapping[str, str]) -> Mapping[str, str]:
    return _check_keys(fields, QUERY_NAME, "the name of a parameter must not be empty")


def _check_keys(values: Mapping[str, str], pattern: str, message: str) -> Mapping[str, str]:
    for name in values:
        if not re.fullmatch(pattern, name):
            raise FlawError(message)  # the name itself may be a misplaced secret
    return values


def _parse_header_name(text: str) -> bytes:
    """Parse the name of a header (RFC 9110, section 5.1)."""
    if re.fullmatch(HEADER_NAME, text) is None:
        raise FlawError("must be the name of a header, such as `X-Forwarded-User`")
    if text.lower() in _TAKEN_HEADERS:
        raise FlawError(f"must not be `{text}`, which has another meaning")
    return text.lower().encode()


def _check_plugin_name(name: str) -> str:
    if re.fullmatch(_PLUGIN_NAME, name, re.ASCII) is None:
        raise FlawError("must be the name of a plug-in, or `module:Class`")
    return name


def _check_command(words: Sequence[str]) -> tuple[str, ...]:
    """Check that a command names a program."""
    if not words or not words[0].strip():
        raise FlawError("must name a program", hint='write `["/path/to/program", "argument"]`')
    return tuple(words)


def check_source_name(name: str) -> str:
    """Check the name of a program that knows secrets, as it stands in references."""
    if name in _TAKEN_NAMES or not re.fullmatch(_SOURCE_NAME, name):
        taken = ", ".join(f"`{each}`" for each in _TAKEN_NAMES)
        hint = f"lower case letters, digits, `-` and `_`, but not {taken}"
        raise FlawError("is not a name for a program that knows secrets", hint=hint)
    return name


def _check_scope(scope: str) -> str:
    """Check one OAuth scope (RFC 6749, section 3.3)."""
    if not scope or not all("!" <= character <= "~" and character not in '"\\' for character in scope):
        raise FlawError("must be one OAuth scope", hint="without spaces and quotation marks")
    return scope


def _check_scalars(values: Sequence[object]) -> tuple[object, ...]:
    """Check that all values are JSON scalars."""
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        raise FlawError("must be a list of texts, numbers, true, false or null")
    return tuple(values)


_NAME_LENGTHS = {"minLength": 1, "maxLength": NAME_LENGTH}
_STRINGS: Mapping[str, object] = {"type": "array", "items": {"type": "string"}}
Inherited = Annotated[
    Inherit,
    Value(
        _parse_inherit,
        schema={"anyOf": [{"enum": ["safe", "all"]}, _STRINGS]},
        type_name="`safe`, `all`, or a list of names",
    ),
]
# A list that may be written as its only item.
Strings = Annotated[
    tuple[str, ...],
    Value(
        tuple,
        written=list[str],
        expand=_expand_list,
        schema={"anyOf": [{"type": "string"}, _STRINGS]},
        type_name="a path, or a list of paths",
    ),
]
GroupName = Annotated[str, Value(check_group_name, written=str, schema=_NAME_LENGTHS)]
SourceName = Annotated[str, Value(check_source_name, written=str, schema={"pattern": _SOURCE_NAME})]
ProfileName = Annotated[str, Value(check_profile_name, written=str, schema=_NAME_LENGTHS)]
Globs = Annotated[tuple[str, ...], Value(check_globs, written=list[str], type_name="a list of names or globs")]
Direct = Annotated[
    DirectTools,
    Value(
        _parse_direct,
        schema={"anyOf": [{"type": "boolean"}, {"const": "auto"}, _STRINGS]},
        type_name="`true`, `false`, `auto`, or a list of names or globs",
    ),
]
Names = Annotated[
    tuple[str, ...],
    Value(check_names, written=list[str], schema={"minItems": 1}, type_name="a list of names or globs"),
]
Flags = Annotated[
    tuple[str, ...],
    Value(
        _check_flags,
        written=list[str],
        schema={"items": {"type": "string", "pattern": _FLAG_GLOB}},
        type_name="a list of flags",
    ),
]
Effects = Annotated[
    Mapping[str, str],
    Value(
        _check_effects,
        written=dict[str, Literal["read", "write", "destructive"]],
        type_name="`read`, `write` or `destructive` by name",
    ),
]
Variables = Annotated[
    Mapping[str, str],
    Value(
        _check_variables,
        written=dict[str, str],
        schema={"propertyNames": {"pattern": VARIABLE_NAME}},
        type_name="texts by name",
    ),
]
QueryFields = Annotated[
    Mapping[str, str],
    Value(
        _check_query_fields,
        written=dict[str, str],
        schema={"propertyNames": {"pattern": QUERY_NAME}},
        type_name="texts by name",
    ),
]
Headers = Annotated[
    Mapping[str, str],
    Value(
        check_headers,
        written=dict[str, str],
        schema={"propertyNames": {"pattern": HEADER_NAME}},
        type_name="texts by name",
    ),
]
# The name of a header, in lower case.
HeaderName = Annotated[
    bytes, Value(_parse_header_name, written=str, schema={"pattern": HEADER_NAME}, type_name="the name of a header")
]
PluginName = Annotated[
    str, Value(_check_plugin_name, written=str, schema={"pattern": _PLUGIN_NAME}, type_name="a name")
]
Command = Annotated[
    tuple[str, ...],
    Value(
        _check_command, written=list[str], schema={"minItems": 1}, type_name="a list: the program, and its arguments"
    ),
]
Scope = Annotated[str, Value(_check_scope, written=str, type_name="a text")]
Scalar = str | int | float | bool | None
Scalars = Annotated[
    tuple[Scalar, ...],
    Value(
        _check_scalars,
        written=list[Any],
        schema={"items": {"type": ["string", "number", "boolean", "null"]}},
        type_name="a list of texts, numbers, `true`, `false` or `null`",
    ),
]
Json = Annotated[object, Value(lambda value: value, written=Any, type_name="any JSON")]
RawJson = Annotated[Raw, Value(lambda value: Raw(wire.encode(value)), written=Any, type_name="any JSON")]


# --- expressions ----------------------------------------------------------------------------------------------------


_LONGEST_EXPRESSION = 2000


def check_json_path(path: str) -> str:
    """Check a JSONPath to an argument."""
    if not path.startswith("$"):
        raise FlawError(f"`{printable(path)}` is not a JSONPath", hint=f"write `$.{printable(path)}`")
    from dynamic_mcp.mcp.selection import BadPath, is_definite  # with the first of them

    try:
        is_definite(path)
    except BadPath as exc:
        raise FlawError(f"`{printable(path)}` is not a JSONPath that can be used: {exc}") from exc
    return path


def check_pattern(pattern: str) -> str:
    """Check a regular expression of RE2, which matches in linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
        raise FlawError(
            f"is not a regular expression of RE2: {reason}", hint="RE2 has no backreferences and no look-around"
        ) from exc
    return pattern


def _check_expression(text: str) -> str:
    from dynamic_mcp.config.cel import check_expression  # with the first of them

    if not text.strip() or len(text) > _LONGEST_EXPRESSION:
        raise FlawError(f"must not be empty, and at most {_LONGEST_EXPRESSION} characters")
    return check_expression(text)


# A JSONPath to arguments.
JsonPath = Annotated[
    str, Value(check_json_path, written=str, schema={"pattern": "^[$]"}, type_name="a JSONPath such as `$.sql`")
]
# A regular expression of RE2.
Pattern = Annotated[str, Value(check_pattern, written=str, type_name="a regular expression")]
# A condition in CEL.
Expression = Annotated[
    str,
    Value(
        _check_expression,
        written=str,
        schema={"minLength": 1, "maxLength": _LONGEST_EXPRESSION},
        type_name="a condition in CEL",
    ),
]


# --- URLs, hosts, ports, files --------------------------------------------------------------------------------------

_SCHEMES = ("http", "https", "http+unix")
_PATH = r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$"
_SOCKET_MODE = r"^0?[0-7]{3}$"
# The paths that the HTTP server answers beside its MCP endpoint.
_TAKEN_PATHS = frozenset({"/health", "/ready", "/sse", "/messages", "/upstream-login"})
_ORIGIN = r"^[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?)(:[0-9]{1,5})?$"
_HOST = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?)(:[0-9]{1,5})?$"


def check_literal_url(text: str) -> str:
    """Check a URL, unless it contains variables: those are substituted first."""
    return text if "${" in text else check_url(text)


def check_url(text: str) -> str:
    """Check that a text is an `http`, `https` or `http+unix` URL with a host."""
    if not _is_url(text):
        raise FlawError(f"is not a URL: `{printable(_redact(text))}`", hint=_url_hint(text))
    return text


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    if any(character <= " " or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        return False


def _redact(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", re.split(r"[?#]", text)[0])


def _url_hint(text: str) -> str:
    near = [guess for guess in _suggest_urls(_redact(text)) if _is_url(guess)]
    if not near:
        return "write `https://host/path` or `http://host/path`"
    return "did you mean " + " or ".join(f"`{printable(guess)}`" for guess in near) + "?"


def _suggest_urls(text: str) -> list[str]:
    from difflib import get_close_matches

    if parts := re.fullmatch(r"([A-Za-z]+)(?::/*|//+)(.+)", text):
        scheme, rest = parts.groups()
        near = [scheme] if scheme in _SCHEMES else get_close_matches(scheme, ("http", "https"))
        if near:
            return [f"{name}://{rest}" for name in near]
    if text.startswith("localhost"):
        return [f"http://{text}"]
    return [f"https://{text}"] if "." in text and "://" not in text else []


def _check_url_path(text: str) -> str:
    """Check the path of the MCP endpoint."""
    if re.fullmatch(_PATH, text, re.ASCII) is None:
        raise FlawError(
            "must be a path such as `/mcp`", hint="letters, digits, `-`, `_`, `.`, `~`; no `/` at the end"
        )
    if any(text == taken or text.startswith(f"{taken}/") for taken in _TAKEN_PATHS):
        raise FlawError(f"must not be `{text}`, which dynamic-mcp uses itself")
    return text


def _parse_socket_mode(text: str) -> int:
    """Parse the mode of a file, in octal."""
    if re.fullmatch(_SOCKET_MODE, text, re.ASCII) is None:
        raise FlawError("must be a file mode such as `0660`")
    return int(text, 8)


def check_root_path(text: str) -> str:
    """Check the path that a reverse proxy adds to all our paths and strips from requests; it may be empty."""
    if text and re.fullmatch(_PATH, text, re.ASCII) is None:
        raise FlawError("must be a path such as `/tools`, or empty", hint="without `/` at the end")
    return text


def check_hosts(names: Sequence[str]) -> tuple[str, ...]:
    """Check names, with or without a port, that clients may use for this server (RFC 9110, section 7.2)."""
    for name in names:
        if "*" in name:
            raise FlawError(
                f"`{printable(name)}` would let any web page reach the servers, by DNS rebinding",
                hint="list each name that clients use, such as `mcp.example.com`",
            )
        if re.fullmatch(_HOST, name, re.ASCII) is None:
            raise FlawError(
                f"`{printable(name)}` is not a host", hint="write `mcp.example.com` or `mcp.example.com:8443`"
            )
    return tuple(names)


def check_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Check origins of web pages that may call this server (RFC 6454, section 6.2)."""
    for origin in origins:
        if "*" in origin or origin == "null":
            raise FlawError(
                f"`{printable(origin)}` would let any web page call the servers",
                hint="list each origin exactly, such as `https://app.example.com`",
            )
        if re.fullmatch(_ORIGIN, origin, re.ASCII) is None:
            raise FlawError(
                f"`{printable(origin)}` is not an origin",
                hint="write `https://app.example.com`, in lower case, with the port unless it is the usual one,"
                " and without a path",
            )
    return tuple(origins)


def _check_public_url(text: str) -> str:
    """Check the URL by which clients reach the MCP endpoint; plain HTTP is for this machine only (RFC 9728)."""
    from urllib.parse import urlsplit

    parts = urlsplit(check_url(text))
    if parts.query or parts.fragment or parts.username is not None or parts.scheme not in ("http", "https"):
        raise FlawError("must be a plain URL, without a query", hint="write `https://mcp.example.com/mcp`")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise FlawError("must begin with `https://`", hint="tokens can be read on the way with `http://`")
    return text


def _check_proxies(peers: Sequence[str]) -> tuple[str, ...]:
    """Check the reverse proxies whose forwarded headers count: addresses, networks, or `unix`."""
    from ipaddress import ip_network

    for peer in peers:
        if peer == UNIX_PEER:
            continue
        try:
            ip_network(peer)
        except ValueError as exc:
            hint = "write `10.0.0.5`, `10.0.0.0/8`, or `unix` for all peers on the Unix socket"
            raise FlawError(f"`{printable(peer)}` is not an address or a network", hint=hint) from exc
    return tuple(peers)


def _check_endpoint(text: str) -> str:
    """Check the URL of an OTLP/HTTP receiver."""
    check_url(text)
    if not text.startswith(("http://", "https://")):
        raise FlawError("must be an `http` or `https` URL")
    return text


def _items(pattern: str) -> Mapping[str, object]:
    return {"items": {"type": "string", "pattern": pattern}}


# A URL that may contain variables.
Url = Annotated[str, Value(check_literal_url, written=str, type_name="a URL")]
Endpoint = Annotated[str, Value(_check_endpoint, written=str, schema={"pattern": "^https?://"}, type_name="a URL")]
PublicUrl = Annotated[str, Value(_check_public_url, written=str, type_name="a URL")]
UrlPath = Annotated[
    str, Value(_check_url_path, written=str, schema={"pattern": _PATH}, type_name="a path such as `/mcp`")
]
RootPath = Annotated[
    str, Value(check_root_path, written=str, schema={"pattern": f"^$|{_PATH}"}, type_name="a path such as `/tools`")
]
Hosts = Annotated[
    tuple[str, ...], Value(check_hosts, written=list[str], schema=_items(_HOST), type_name="a list of host names")
]
Origins = Annotated[
    tuple[str, ...], Value(check_origins, written=list[str], schema=_items(_ORIGIN), type_name="a list of origins")
]
Peers = Annotated[
    tuple[str, ...],
    Value(
        _check_proxies,
        written=list[str],
        schema=_items(r"^(unix|[0-9A-Fa-f.:]+(/[0-9]+)?)$"),
        type_name="a list of addresses, networks or `unix`",
    ),
]
Address = Annotated[
    _Address,
    Value(
        parse_address,
        schema={
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 65535},
                {"type": "string", "pattern": PATTERN},
            ]
        },
        type_name="an address or a port",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535)]
# The path of a file or directory, as text that may contain variables.
PathText = Annotated[str, Value(str, written=str, type_name="a path")]
# A file or directory as written, so relative to the config.
File = Annotated[Path, Value(Path, written=Annotated[str, Meta(min_length=1)], type_name="a path")]
SocketMode = Annotated[
    int,
    Value(_parse_socket_mode, written=str, schema={"pattern": _SOCKET_MODE}, type_name="a file mode such as `0660`"),
]
Text = Annotated[str, Meta(min_length=1)]
LongText = Annotated[str, Meta(min_length=1, max_length=100_000)]
