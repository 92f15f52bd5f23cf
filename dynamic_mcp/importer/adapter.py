"""A tool as data: the locations of its servers, its field names, variable syntax and unit of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from dynamic_mcp.config.types import Inherit
from dynamic_mcp.importer.model import ToolScope

if TYPE_CHECKING:
    from jsonpath_ng import JSONPath

System = Literal["linux", "darwin", "win32"]
SYSTEMS: tuple[System, ...] = ("linux", "darwin", "win32")
SECONDS, MILLISECONDS = 1.0, 0.001


class Meaning(Enum):
    """The meaning of a foreign server's field."""

    COMMAND = "command"
    ARGS = "args"
    ENV = "env"
    ENV_NAMES = "names of variables to pass on"
    ENV_FILE = "env_file"
    CWD = "cwd"
    URL = "url"
    HTTP_URL = "url of a streamable HTTP server"
    WS_URL = "url of a websocket"
    HEADERS = "headers"
    HEADERS_FROM_ENV = "headers whose values are names of variables"
    BEARER = "bearer token"
    BEARER_FROM_ENV = "name of the variable with the bearer token"
    TYPE = "type"
    ENABLED = "enabled"
    DISABLED = "the opposite of enabled"
    INCLUDE = "tools.include"
    EXCLUDE = "tools.exclude"
    TOOLS = "tools, as a list or as include and exclude"
    OAUTH = "oauth"
    CLIENT_ID = "oauth.client_id"
    CLIENT_SECRET = "oauth.client_secret"  # noqa: S105 -- a name
    SCOPES = "oauth.scopes"
    REDIRECT_PORT = "oauth.redirect_port"
    METADATA_URL = "oauth.metadata_url"
    DESCRIPTION = "description"
    NAME = "name"
    APPROVAL = "approval"
    TOKENS = "stored tokens"
    HELPER = "a program that generates headers"
    NOTHING = "no counterpart"
    SILENT = "nothing worth a notice"


@dataclass(frozen=True)
class TimeoutField:
    """A field with a duration: the timeout that it sets, and its unit; None is the tool's default unit."""

    part: Literal["tools", "connect"]
    unit_s: float | None = None


class Syntax(Enum):
    """A syntax for variables, or something like it, in a tool's files."""

    BRACES = "${VAR}"
    LENIENT = "${VAR}, which the tool itself leaves as it is"
    DEFAULT = "${VAR:-default}"
    DASH = "${VAR-default}"
    ENV = "${env:VAR}"
    POWERSHELL = "$env:VAR"
    CURLY = "{env:VAR}"
    DOLLAR = "$VAR"
    PERCENT = "%VAR%"
    ACTIONS = "${{ secrets.VAR }}"
    MUSTACHE = "{{VAR}}"
    INPUT = "${input:id}"
    EDITOR = "${workspaceFolder}"
    FILE = "${file:path}"
    CURLY_FILE = "{file:path}"
    SHELL = "$(command)"
    CMD = "${cmd: command}"
    BANG = "!command"


@dataclass(frozen=True)
class FileLocation:
    """A path where a tool may have a file.

    `path` starts with `~` (home), `.` (project), `{appdata}`, `{config}`, `{data}`, `{localappdata}`,
    `{programdata}`, `{VARIABLE}` or `{VARIABLE|else}`; a part of it may be a glob. `up` also looks in the
    directories above the project, up to the root of its repository. A `legacy` file counts only if its scope has no
    newer file. A `borrowed` file belongs to another tool and never decides which scope is meant. An `ambiguous`
    file has a name that other programs use too: it counts only if it has servers, and is never written. A
    `packaged` file is the one that a tool from a package of Windows (MSIX) reads: it does not see the one in the
    usual place. `servers`, `variables` and `inherits` are set where they differ from those of the tool.
    """

    scope: ToolScope
    path: str
    systems: tuple[System, ...] = SYSTEMS
    up: bool = False
    legacy: bool = False
    borrowed: bool = False
    ambiguous: bool = False
    packaged: bool = False
    servers: tuple[str, ...] = ()
    variables: tuple[Syntax, ...] | None = None
    inherits: Inherit | None = None


@dataclass(frozen=True)
class SwitchFile:
    """A file that disables servers which are defined in another file.

    `names` are JSONPaths of names of disabled servers. `flags` are JSONPaths of objects with one member per server,
    whose field `key` is false if the server is disabled. `path` is written as in a `Place`; a project's file disables
    the user's servers for that project only.
    """

    path: str
    names: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    key: str = "enabled"


@dataclass(frozen=True)
class Adapter:
    """A tool, described by data.

    `servers` are JSONPaths of the objects or lists that hold servers; all are read, and the first of two servers with
    one name counts. `fallback` paths are tried if none of those exists; with `is_bare` a file is taken as a whole if
    everything in it looks like a server. `off` are JSONPaths of names, or globs, of disabled servers, and
    `off_elsewhere` other files with such names; `is_off_in_any_case` ignores the case of the names. A server that is
    missing in the lists at `allowed` gets a notice. `inputs` are JSONPaths of the values that the tool prompts for.

    `fields` are those that are its own, or mean something else than in `COMMON`; `ignored` ones have no counterpart.

    `variables` are expanded everywhere, `env_variables` only in variables and headers; `empties` are the places where
    an unset variable becomes an empty text instead of staying unchanged. `inherits` is the part of the tool's
    environment that programs get, None if unknown. `untyped` is the type of a `url` without one; None is detected at
    run time. `timeout_unit_s` is the unit of a plain `timeout`, None if unknown. `quirk` names the function in
    `quirks` that converts a file to this form. `source` is the page with the facts, `checked` the date when it was
    read.
    """

    name: str
    title: str
    places: tuple[FileLocation, ...]
    source: str
    aliases: tuple[str, ...] = ()
    servers: tuple[str, ...] = ("$.mcpServers",)
    fallback: tuple[str, ...] = ()
    is_bare: bool = False
    fields: Mapping[str, Meaning | TimeoutField] = field(default_factory=lambda: MappingProxyType({}))
    ignored: tuple[str, ...] = ()
    variables: tuple[Syntax, ...] = ()
    env_variables: tuple[Syntax, ...] = ()
    empties: Literal["nowhere", "env", "everywhere"] = "nowhere"
    inherits: Inherit | None = None
    timeout_unit_s: float | None = None
    untyped: Literal["http", "sse"] | None = None
    off: tuple[str, ...] = ()
    off_elsewhere: tuple[SwitchFile, ...] = ()
    is_off_in_any_case: bool = False
    allowed: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    named_by: str = ""
    quirk: str = ""
    passes_empty: bool = False
    notes: str = ""
    checked: str = "2026-11"


def _places(
    scope: ToolScope,
    *paths: str,
    systems: tuple[System, ...] = SYSTEMS,
    up: bool = False,
    legacy: bool = False,
    borrowed: bool = False,
    ambiguous: bool = False,
    packaged: bool = False,
    servers: tuple[str, ...] = (),
    variables: tuple[Syntax, ...] | None = None,
    inherits: Inherit | None = None,
) -> tuple[FileLocation, ...]:
    return tuple(
        FileLocation(scope, path, systems, up, legacy, borrowed, ambiguous, packaged, servers, variables, inherits)
        for path in paths
    )


# The places of the user's files, of a project's, and of those with the user's settings for one project.
user = partial(_places, ToolScope.USER)
project = partial(_places, ToolScope.PROJECT)
local = partial(_places, ToolScope.LOCAL)


def find_values(document: object, path: str) -> list[object]:
    """Return the values at a JSONPath. The path must be one of the program's, never a foreign one."""
    return [match.value for match in _compile(path).find(document)]


@cache
def _compile(path: str) -> JSONPath:
    from jsonpath_ng.parser import parse

    return parse(path)
