"""Detect which tool a file belongs to, by its location, its name and its content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dynamic_mcp.importer.adapter import Adapter, find_values

_SIGNS = (
    ("$.powers.mcpServers", "kiro"),
    ("$.context_servers", "zed"),
    ("$.'amp.mcpServers'", "amp"),
    ("$.'zencoder.mcpServers'", "zencoder"),
    ("$.extensions", "goose"),
    ("$.servers", "vscode"),
    ("$.mcp.servers", "vscode"),
    ("$.'mcp.servers'", "vscode"),
)


def detect_adapter(file: Path, document: object, adapters: Sequence[Adapter], generic: Adapter) -> Adapter:
    """Return the tool whose format the file most likely has."""
    if named := _detect_by_location(file, adapters):
        return named
    name = _detect_by_content(file, document)
    by_name = {adapter.name: adapter for adapter in adapters}
    # the content tells where the servers are, but not reliably which variable syntax applies
    known = by_name.get(name)
    if known is None:
        return generic
    syntax = dict.fromkeys((*generic.variables, *known.variables)) if known.variables else ()
    return replace(known, variables=tuple(syntax), is_bare=True, inherits=None)


def _detect_by_content(file: Path, document: object) -> str:
    for path, name in _SIGNS:
        if any(isinstance(value, dict) for value in find_values(document, path)):
            return name
    if any(find_values(document, f"$.mcp.{name}") for name in ("sse_servers", "shttp_servers", "stdio_servers")):
        return "openhands"
    suffix = file.suffix.lower()
    if suffix == ".toml" and find_values(document, "$.mcp_servers"):
        return "codex" if isinstance(find_values(document, "$.mcp_servers")[0], dict) else "mistral-vibe"
    if suffix in (".yaml", ".yml") and find_values(document, "$.mcp_servers"):
        return "hermes"
    if suffix in (".yaml", ".yml") and any(
        isinstance(value, list) for value in find_values(document, "$.mcpServers")
    ):
        return "continue"
    if file.name.endswith("crushrc"):
        return "crush"
    if any(
        _is_opencode(server)
        for value in find_values(document, "$.mcp")
        if isinstance(value, dict)
        for server in value.values()
    ):
        return "opencode"
    if any(isinstance(server, dict) and "httpUrl" in server for server in find_values(document, "$.mcpServers.*")):
        return "gemini"
    if any(_is_export(servers) for servers in find_values(document, "$.mcpServers")):
        return "cherry-studio"
    return ""


def _is_export(servers: object) -> bool:
    """Tell whether the keys are random and the names are in the servers."""
    values = list(servers.values()) if isinstance(servers, dict) else []
    return bool(values) and all(
        isinstance(each, dict) and "name" in each and "isActive" in each and "key" not in each for each in values
    )


def _is_opencode(server: object) -> bool:
    return isinstance(server, dict) and (
        isinstance(server.get("command"), list) or server.get("type") in ("local", "remote")
    )


def _detect_by_location(file: Path, adapters: Sequence[Adapter]) -> Adapter | None:
    """Return the only tool that has a file of this name in a directory of this name."""
    ending = "/".join(file.absolute().parts[-2:]).lower()
    found = {
        adapter.name: adapter
        for adapter in adapters
        if any(_has_ending(place.path, ending) for place in adapter.places if not place.borrowed)
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _has_ending(template: str, ending: str) -> bool:
    parts = re.sub(r"\{[^}]*\|([^}]*)\}", r"\1", template).lower().split("/")
    return len(parts) > 2 and "*" not in template and "/".join(parts[-2:]) == ending
