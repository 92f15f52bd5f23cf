"""Each tool's form of an entry, and of a disabled one, as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.adapter import Adapter, Syntax
from dynamic_mcp.importer.formats.tree import NOTHING, at

NAME = "dynamic-mcp"
DESCRIPTION = "All MCP servers of dynamic-mcp"

_STEP = re.compile(r"\.(?:'([^']+)'|([A-Za-z0-9_-]+))")
_NOTHING: Mapping[str, object] = MappingProxyType({})
_HTTP: Mapping[str, object] = {"type": "http"}
_STREAMABLE: Mapping[str, object] = {"type": "streamable-http"}
_REMOTE: Mapping[str, object] = {"type": "remote"}
_TRANSPORT: Mapping[str, object] = {"transport": "http"}
# The fields before the URL, and the name of the URL's field.
_BEFORE_URL: Mapping[str, tuple[Mapping[str, object], str]] = {
    **dict.fromkeys(("opencode", "kilocode", "codearts"), (_REMOTE, "url")),
    **dict.fromkeys(
        (
            "claude", "vscode", "vscode-insiders", "vscodium", "visual-studio", "copilot-cli", "amazon-q", "crush",
            "factory-droid", "augment", "fx", "qoder", "shared",
        ),
        (_HTTP, "url"),
    ),
    **dict.fromkeys(("roo-code", "continue", "librechat"), (_STREAMABLE, "url")),
    **dict.fromkeys(("devin", "kimi-code", "openhands"), (_TRANSPORT, "url")),
    **dict.fromkeys(
        (
            "cursor", "codex", "zed", "kiro", "copilot-jetbrains", "junie", "trae", "mcphub-nvim", "amp", "warp",
            "grok-build", "hermes", "pi", "mastracode", "lm-studio",
        ),
        (_NOTHING, "url"),
    ),
    **dict.fromkeys(("gemini", "qwen-code", "iflow", "tabnine"), (_NOTHING, "httpUrl")),
    **dict.fromkeys(("windsurf", "antigravity"), (_NOTHING, "serverUrl")),
    "cline": ({"type": "streamableHttp"}, "url"),
    "goose": ({"enabled": True, "type": "streamable_http", "name": NAME, "description": DESCRIPTION}, "uri"),
    "mistral-vibe": ({"transport": "streamable-http"}, "url"),
    "mcporter": (_NOTHING, "baseUrl"),
    "5ire": ({"name": NAME, "key": NAME, "type": "remote"}, "url"),
}  # fmt: skip
_HEADER_PLACES: Mapping[str, Keys] = {
    "codex": ("http_headers",),
    "continue": ("requestOptions", "headers"),
    "copilot-jetbrains": ("requestInit", "headers"),
}
# Their documentation does not say whether a server with a URL may have headers.
_UNKNOWN_HEADERS = frozenset(("5ire", "fx", "mastracode", "visual-studio"))
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# The form of a variable in each syntax; for a tool with several, the first one is used.
_VARIABLE_FORMS: Mapping[Syntax, str] = {
    Syntax.BRACES: "${NAME}",
    Syntax.DEFAULT: "${NAME}",
    Syntax.ENV: "${env:NAME}",
    Syntax.CURLY: "{env:NAME}",
    Syntax.DOLLAR: "$NAME",
    Syntax.ACTIONS: "${{ secrets.NAME }}",
}


@dataclass(frozen=True)
class Shape:
    """The fields of an entry: `fixed` come before the command, `rest` after it.

    `command` names the field with the command, or with the URL. With `is_argv` the command and its arguments are one
    list; with `has_name` the entry is an item of a list. `off` is the field that disables a server and its value,
    `off_list` the path of a list with the names of disabled servers; without either, a server is removed instead. A
    file that `must_exist` is never created. `visibility` keeps our tools in the model's prompt where the tool would
    hide them behind its own search; users may change it. `remark` is a note for the user who installs into the tool.
    """

    fixed: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    rest: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    visibility: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    command: str = "command"
    is_argv: bool = False
    has_name: bool = False
    off: tuple[str, object] | None = None
    off_list: Keys = ()
    must_exist: bool = False
    remark: str = ""

    def make_entry(self, command: str, args: Sequence[str]) -> dict[str, object]:
        start = {self.command: [command, *args]} if self.is_argv else {self.command: command, "args": list(args)}
        return self._make_entry(start)

    def make_remote_entry(self, url: str, headers: Mapping[str, object] = MappingProxyType({})) -> dict[str, object]:
        """Return an entry that connects to a URL, with these `header_fields`; only for a remote shape."""
        return self._make_entry({self.command: url, **headers})

    def _make_entry(self, start: Mapping[str, object]) -> dict[str, object]:
        name = {"name": NAME} if self.has_name else {}
        return {**name, **self.fixed, **start, **self.rest}

    def is_ours_to_set(self, key: str) -> bool:
        """Return whether a field selects the program or disables it; the other fields belong to the user."""
        return key not in self.rest or key in _SWITCHES


_SWITCHES = ("enabled", "isActive")
_DISABLED = ("disabled", True)
_NOT_ENABLED = ("enabled", False)
_TYPED: Mapping[str, object] = {"type": "stdio"}
_LOCAL = Shape({"type": "local"}, {"enabled": True}, is_argv=True, off=_NOT_ENABLED)
_PLAIN_OFF = Shape(off=_DISABLED)

_SHAPES: Mapping[str, Shape] = {
    "opencode": _LOCAL,
    "kilocode": _LOCAL,
    "codearts": _LOCAL,
    "fx": Shape({"type": "local"}, is_argv=True),
    "claude": Shape(_TYPED, visibility={"alwaysLoad": True}),
    "vscode": Shape(_TYPED),
    "vscode-insiders": Shape(_TYPED),
    "vscodium": Shape(_TYPED),
    "visual-studio": Shape(_TYPED),
    "copilot-jetbrains": Shape(_TYPED),
    "copilot-cli": Shape({"type": "local"}, {"tools": ["*"]}, visibility={"deferTools": "never"}),
    "librechat": Shape(_TYPED, must_exist=True),
    # not written: a Codex version that does not know the setting refuses to start
    "codex": Shape(
        off=_NOT_ENABLED,
        remark="with most models Codex hides the tools of all servers behind its own search; from late 2026"
        ' `direct_only_tool_namespaces = ["mcp__dynamic_mcp"]` under `[features.code_mode]` shows these two directly',
    ),
    "hermes": Shape(off=_NOT_ENABLED),
    "kimi-code": Shape(off=_NOT_ENABLED),
    "zed": Shape({"source": "custom"}, {"env": {}}, off=_NOT_ENABLED),
    "crush": Shape(_TYPED, off=_DISABLED),
    "factory-droid": Shape(_TYPED, off=_DISABLED),
    # Cline waits only three seconds for a server's first answer, unless the entry has a timeout
    "cline": Shape(rest={"timeout": 60}, off=_DISABLED),
    "roo-code": _PLAIN_OFF,
    "windsurf": _PLAIN_OFF,
    "antigravity": _PLAIN_OFF,
    "kiro": _PLAIN_OFF,
    "amazon-q": _PLAIN_OFF,
    "pi": _PLAIN_OFF,
    "mcphub-nvim": _PLAIN_OFF,
    "gemini": Shape(off_list=("mcp", "excluded")),
    "qwen-code": Shape(visibility={"alwaysLoadTools": True}, off_list=("mcp", "excluded")),
    "goose": Shape(
        {"enabled": True, "type": "stdio", "name": NAME, "description": DESCRIPTION},
        {"envs": {}, "timeout": 300},
        command="cmd",
        off=_NOT_ENABLED,
    ),
    "continue": Shape(has_name=True, must_exist=True),
    "mistral-vibe": Shape({"transport": "stdio"}, has_name=True),
    "5ire": Shape({"name": NAME, "key": NAME, "type": "local"}, {"isActive": True}, off=("isActive", False)),
}


def shape_of(adapter: Adapter, container: Keys) -> Shape:
    """Return the shape of the servers in this container."""
    if adapter.name == "kilocode" and container == ("mcpServers",):
        return _PLAIN_OFF  # before version 7
    if container == ("mcp", "servers"):
        return Shape({"type": "local"}, is_argv=True, off=_DISABLED)  # OpenCode's later layout
    return _SHAPES.get(adapter.name, Shape())


def has_switch(adapter: Adapter) -> bool:
    """Return whether a tool can disable a server without removing it."""
    shape = _SHAPES.get(adapter.name, Shape())
    return shape.off is not None or bool(shape.off_list)


def container_of(adapter: Adapter, document: object, paths: Sequence[str]) -> Keys:
    """Return the path of the object or list for servers, existing or not."""
    containers = [keys_of(path) for path in paths]
    if adapter.quirk in ("opencode", "kilocode"):
        inner = at(document, ("mcp", "servers"))
        if isinstance(inner, dict) and not inner.keys() & {"command", "url", "type"}:
            return ("mcp", "servers")
    return next((keys for keys in containers if at(document, keys) is not NOTHING), containers[0])


def keys_of(path: str) -> Keys:
    """Return the keys of one of our JSONPaths: `$.mcp.servers`, `$.'amp.mcpServers'`."""
    return tuple(quoted or plain for quoted, plain in _STEP.findall(path))


def remote_shape_of(adapter: Adapter, container: Keys) -> Shape | None:
    """Return the shape of an entry with a URL in this container; None if the tool is not known to support one."""
    if adapter.name not in _BEFORE_URL:
        return None
    shape, (fixed, address) = shape_of(adapter, container), _BEFORE_URL[adapter.name]
    if adapter.name == "kilocode" and container == ("mcpServers",):
        fixed = _STREAMABLE  # before version 7
    rest = {key: value for key, value in shape.rest.items() if key != "env"}
    return replace(shape, fixed=fixed, rest=rest, command=address, is_argv=False)


def variables_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that headers refer to as `${NAME}`."""
    return tuple(dict.fromkeys(name for value in headers.values() for name in _VARIABLE.findall(value)))


def header_fields(adapter: Adapter, headers: Mapping[str, str]) -> Mapping[str, object] | None:
    """Return the fields of an entry that sends these headers; None if the tool is not known to support that."""
    if not headers:
        return {}
    if adapter.name in _UNKNOWN_HEADERS:
        return None
    if adapter.name == "codex":
        return _codex_fields(headers)
    syntax = _syntax_of(adapter)
    written: dict[str, str] = {}
    for name, value in headers.items():
        if "$" in value and (syntax is None or "$" in _VARIABLE.sub("", value)):
            return None
        written[name] = _VARIABLE.sub(lambda found: (syntax or "").replace("NAME", found[1]), value)
    return _nested(_HEADER_PLACES.get(adapter.name, ("headers",)), written)


def _syntax_of(adapter: Adapter) -> str | None:
    """Return the tool's format for a variable; None if it is unknown."""
    if Syntax.LENIENT in adapter.variables and Syntax.ACTIONS in adapter.variables:  # the tool accepts any syntax
        return None
    return next((_VARIABLE_FORMS[each] for each in _VARIABLE_FORMS if each in adapter.variables), None)


def _codex_fields(headers: Mapping[str, str]) -> Mapping[str, object] | None:
    """Return the fields for Codex, which expands nothing in headers and has separate fields for variables."""
    fixed: dict[str, str] = {}
    of_variables: dict[str, str] = {}
    fields: dict[str, object] = {}
    for name, value in headers.items():
        whole = _VARIABLE.fullmatch(value)
        bearer = _VARIABLE.fullmatch(value.removeprefix("Bearer "))
        if "$" not in value:
            fixed[name] = value
        elif whole is not None:
            of_variables[name] = whole[1]
        elif bearer is not None and name.lower() == "authorization":
            fields["bearer_token_env_var"] = bearer[1]
        else:
            return None
    groups = {"http_headers": fixed, "env_http_headers": of_variables}
    return {**fields, **{name: group for name, group in groups.items() if group}}


def _nested(place: Keys, value: object) -> Mapping[str, object]:
    for key in reversed(place):
        value = {str(key): value}
    assert isinstance(value, dict)
    return value
