"""How a tool writes down a server that is a program, and how it is told not to start one: data, by tool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats.tree import NOTHING, at

NAME = "dynamic-mcp"

_STEP = re.compile(r"\.(?:'([^']+)'|([A-Za-z0-9_-]+))")


@dataclass(frozen=True)
class Shape:
    """`fixed` stands before the command; an `argv` is one list; a server that `has_name` is an item of a list.

    `off` is the field that switches a server off, and its value; `off_list` is a list of names that does so. Where
    neither is known a server is taken out instead. A file that `must_be_there` is not made. `shown` keeps a server's
    tools in the model's sight in a tool that would hide them behind a search of its own; a user may change it.
    `remark` is what a person should know who installs into the tool.
    """

    fixed: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    rest: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    shown: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    command: str = "command"
    is_argv: bool = False
    has_name: bool = False
    off: tuple[str, object] | None = None
    off_list: Keys = ()
    must_be_there: bool = False
    remark: str = ""

    def entry(self, command: str, args: Sequence[str]) -> dict[str, object]:
        """Return an entry that starts a program."""
        start = {self.command: [command, *args]} if self.is_argv else {self.command: command, "args": list(args)}
        name = {"name": NAME} if self.has_name else {}
        return {**name, **self.fixed, **start, **self.rest}

    def is_ours_to_set(self, key: str) -> bool:
        """Tell whether a field of an entry decides what is started, and whether; the others are the user's."""
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
    "claude": Shape(_TYPED, shown={"alwaysLoad": True}),
    "vscode": Shape(_TYPED),
    "vscode-insiders": Shape(_TYPED),
    "vscodium": Shape(_TYPED),
    "visual-studio": Shape(_TYPED),
    "copilot-jetbrains": Shape(_TYPED),
    "copilot-cli": Shape({"type": "local"}, {"tools": ["*"]}, shown={"deferTools": "never"}),
    "librechat": Shape(_TYPED, must_be_there=True),
    # not written: a Codex that does not know the setting does not start with it
    "codex": Shape(
        off=_NOT_ENABLED,
        remark="with most models Codex keeps the tools of all servers behind its own search; from late 2026 on"
        ' `direct_only_tool_namespaces = ["mcp__dynamic_mcp"]` below `[features.code_mode]` shows these two at once',
    ),
    "hermes": Shape(off=_NOT_ENABLED),
    "kimi-code": Shape(off=_NOT_ENABLED),
    "zed": Shape({"source": "custom"}, {"env": {}}, off=_NOT_ENABLED),
    "crush": Shape(_TYPED, off=_DISABLED),
    "factory-droid": Shape(_TYPED, off=_DISABLED),
    # Cline waits three seconds for a server's first answer, unless the entry says how many
    "cline": Shape(rest={"timeout": 60}, off=_DISABLED),
    "roo-code": _PLAIN_OFF,
    "windsurf": _PLAIN_OFF,
    "antigravity": _PLAIN_OFF,
    "kiro": _PLAIN_OFF,
    "amazon-q": _PLAIN_OFF,
    "pi": _PLAIN_OFF,
    "mcphub-nvim": _PLAIN_OFF,
    "gemini": Shape(off_list=("mcp", "excluded")),
    "qwen-code": Shape(shown={"alwaysLoadTools": True}, off_list=("mcp", "excluded")),
    "goose": Shape(
        {"enabled": True, "type": "stdio", "name": NAME, "description": "All MCP servers of dynamic-mcp"},
        {"envs": {}, "timeout": 300},
        command="cmd",
        off=_NOT_ENABLED,
    ),
    "continue": Shape(has_name=True, must_be_there=True),
    "mistral-vibe": Shape({"transport": "stdio"}, has_name=True),
    "5ire": Shape({"name": NAME, "key": NAME, "type": "local"}, {"isActive": True}, off=("isActive", False)),
}


def shape_of(adapter: Adapter, container: Keys) -> Shape:
    """Return the shape of a tool's servers in this place."""
    if adapter.name == "kilocode" and container == ("mcpServers",):
        return _PLAIN_OFF  # before version 7
    if container == ("mcp", "servers"):
        return Shape({"type": "local"}, is_argv=True, off=_DISABLED)  # OpenCode's later layout
    return _SHAPES.get(adapter.name, Shape())


def has_switch(adapter: Adapter) -> bool:
    """Tell whether a tool can be told not to start a server that stays in its file."""
    shape = _SHAPES.get(adapter.name, Shape())
    return shape.off is not None or bool(shape.off_list)


def container_of(adapter: Adapter, document: object, paths: Sequence[str]) -> Keys:
    """Return where in a document the tool's servers are, or would be."""
    known = [keys_of(path) for path in paths]
    if adapter.quirk in ("opencode", "kilocode"):
        inner = at(document, ("mcp", "servers"))
        if isinstance(inner, dict) and not inner.keys() & {"command", "url", "type"}:
            return ("mcp", "servers")
    return next((keys for keys in known if at(document, keys) is not NOTHING), known[0])


def keys_of(path: str) -> Keys:
    """Return the keys of one of our JSONPaths: `$.mcp.servers`, `$.'amp.mcpServers'`."""
    return tuple(quoted or plain for quoted, plain in _STEP.findall(path))
