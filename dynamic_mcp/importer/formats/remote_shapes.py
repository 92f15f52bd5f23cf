"""How each tool writes an entry for a server with a URL (streamable HTTP), as far as that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.formats.shapes import DESCRIPTION, NAME, Shape, shape_of

_NOTHING: Mapping[str, object] = MappingProxyType({})
_HTTP: Mapping[str, object] = {"type": "http"}
_STREAMABLE: Mapping[str, object] = {"type": "streamable-http"}
_REMOTE: Mapping[str, object] = {"type": "remote"}
_TRANSPORT: Mapping[str, object] = {"transport": "http"}

# The fields before the URL, and the name of its own.
_BEFORE: Mapping[str, tuple[Mapping[str, object], str]] = {
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


def remote_shape_of(adapter: Adapter, container: Keys) -> Shape | None:
    """Return the shape of an entry with a URL in this container; None if the tool is not known to take one."""
    if adapter.name not in _BEFORE:
        return None
    shape, (fixed, address) = shape_of(adapter, container), _BEFORE[adapter.name]
    if adapter.name == "kilocode" and container == ("mcpServers",):
        fixed = _STREAMABLE  # before version 7
    rest = {key: value for key, value in shape.rest.items() if key != "env"}
    return replace(shape, fixed=fixed, rest=rest, command=address, is_argv=False)
