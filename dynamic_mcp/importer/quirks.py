"""What data cannot say about a tool: each function brings a document into the form that its adapter describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynamic_mcp.importer import claude
from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.brought import Brought, Object, fill_in
from dynamic_mcp.importer.found import Machine, Source

Quirk = Callable[[Brought, Source, Machine], None]


def bring(adapter: Adapter, document: Object, source: Source, machine: Machine) -> Brought:
    """The document in the form that the adapter describes."""
    brought = Brought(dict(document))
    if adapter.quirk:
        QUIRKS[adapter.quirk](brought, source, machine)
    return brought


def _opencode(brought: Brought, source: Source, machine: Machine) -> None:
    """Servers may stand under `mcp.servers`, beside or instead of `mcp`; switches for tools are elsewhere."""
    mcp = brought.document.get("mcp")
    if isinstance(mcp, dict):
        inner = mcp.get("servers")
        servers = {name: server for name, server in mcp.items() if not _is_section(name, server)}
        if isinstance(inner, dict) and not _is_server(inner):
            servers = {**servers, **inner}
        brought.document["mcp"] = servers
        _switch_tools(brought, servers)


def _is_section(name: str, value: object) -> bool:
    """Whether a member of `mcp` is a part of the later layout and no server of that name."""
    return name in ("servers", "timeout") and not _is_server(value)


def _is_server(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    is_typed = isinstance(value.get("type"), str)
    return is_typed or isinstance(value.get("command"), (str, list)) or isinstance(value.get("url"), str)


def _switch_tools(brought: Brought, servers: Object) -> None:
    tools = brought.document.get("tools")
    for pattern, is_on in tools.items() if isinstance(tools, dict) else ():
        owners = [name for name in servers if pattern.startswith(f"{name}_")]
        server = servers[max(owners, key=len)] if owners else None
        if is_on is not False or not isinstance(server, dict):
            continue
        name = max(owners, key=len)
        known = server.get("excludeTools")
        excluded = [*(known if isinstance(known, list) else []), pattern.removeprefix(f"{name}_")]
        servers[name] = {**server, "excludeTools": excluded}


def _kilocode(brought: Brought, source: Source, machine: Machine) -> None:
    """Before version 7 another file, with `mcpServers`, seconds, and `sse` where there is no type."""
    _opencode(brought, source, machine)
    servers = brought.document.get("mcpServers")
    if isinstance(servers, dict):
        brought.document["mcpServers"] = {name: _old_kilo(server) for name, server in servers.items()}


def _old_kilo(server: object) -> object:
    if not isinstance(server, dict):
        return server
    changed = dict(server)
    if "timeout" in changed:
        changed["tool_timeout_sec"] = changed.pop("timeout")
    if "url" in changed and "type" not in changed:
        changed["type"] = "sse"
    return changed


def _gemini(brought: Brought, source: Source, machine: Machine) -> None:
    """An extension's servers may refer to where it is."""
    if source.file.name == "gemini-extension.json":
        fill_in(brought, {"extensionPath": str(source.file.parent), "workspacePath": str(machine.project)})


QUIRKS: Mapping[str, Quirk] = {
    "opencode": _opencode,
    "kilocode": _kilocode,
    "gemini": _gemini,
    "claude": claude.bring,
}
