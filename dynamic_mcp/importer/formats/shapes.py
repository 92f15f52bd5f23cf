"""How each tool writes an entry, and how it disables one; `remote_shapes` has what differs for a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats.tree import NOTHING, at

NAME = "dynamic-mcp"
DESCRIPTION = "All MCP servers of dynamic-mcp"

_STEP = re.compile(r"\.(?:'([^']+)'|([A-Za-z0-9_-]+))")


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
        """Return an entry that starts a program."""
        start = {self.command: [command, *args]} if self.is_argv else {self.command: command, "args": list(args)}
        return self._make_entry(start)

    def make_remote_entry(self, url: str, headers: Mapping[str, object] = MappingProxyType({})) -> dict[str, object]:
        """Return an entry that connects to a URL, with fields of `remote_headers`; for a shape of `remote_shapes`."""
        return self._make_entry({self.command: url, **headers})

    def _make_entry(self, start: Mapping[str, object]) -> dict[str, object]:
        name = {"name": NAME} if self.has_name else {}
        return {**name, **self.fixed, **start, **self.rest}

    def is_ours_to_set(self, key: str) -> bool:
        """Tell whether a field decides what is started or whether it is; the other fields belong to the user."""
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
    """Tell whether a tool can disable a server without removing it."""
    shape = _SHAPES.get(adapter.name, Shape())
    return shape.off is not None or bool(shape.off_list)


def container_of(adapter: Adapter, document: object, paths: Sequence[str]) -> Keys:
    """Return the path of the object or list that holds the servers, or would hold them."""
    known = [keys_of(path) for path in paths]
    if adapter.quirk in ("opencode", "kilocode"):
        inner = at(document, ("mcp", "servers"))
        if isinstance(inner, dict) and not inner.keys() & {"command", "url", "type"}:
            return ("mcp", "servers")
    return next((keys for keys in known if at(document, keys) is not NOTHING), known[0])


def keys_of(path: str) -> Keys:
    """Return the keys of one of our JSONPaths: `$.mcp.servers`, `$.'amp.mcpServers'`."""
    return tuple(quoted or plain for quoted, plain in _STEP.findall(path))
