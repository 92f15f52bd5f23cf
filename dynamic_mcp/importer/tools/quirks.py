"""What data cannot express about a tool: functions that bring a document into the form of its adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert import naming
from dynamic_mcp.importer.model import Machine, Source
from dynamic_mcp.importer.tools import claude, goose, options
from dynamic_mcp.importer.tools.document import Object, ToolDocument, fill_in

Quirk = Callable[[ToolDocument, Source, Machine], None]


def normalize(adapter: Adapter, settings: Object, source: Source, machine: Machine) -> ToolDocument:
    """Return the document in the form that the adapter describes."""
    document = ToolDocument(dict(settings))
    if adapter.quirk:
        QUIRKS[adapter.quirk](document, source, machine)
    return document


def _normalize_opencode(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Merge `mcp.servers` of the later layout with `mcp`, and apply the separate switches for tools."""
    mcp = document.settings.get("mcp")
    if isinstance(mcp, dict):
        inner = mcp.get("servers")
        servers = {name: server for name, server in mcp.items() if not _is_section(name, server)}
        if isinstance(inner, dict) and not _is_server(inner):
            servers = {**servers, **inner}
        document.settings["mcp"] = servers
        _switch_tools(document, servers)


def _is_section(name: str, value: object) -> bool:
    """Tell whether a member of `mcp` is a section of the later layout and not a server of that name."""
    return name in ("servers", "timeout") and not _is_server(value)


def _is_server(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    is_typed = isinstance(value.get("type"), str)
    return is_typed or isinstance(value.get("command"), (str, list)) or isinstance(value.get("url"), str)


def _switch_tools(document: ToolDocument, servers: Object) -> None:
    tools = document.settings.get("tools")
    for pattern, is_on in tools.items() if isinstance(tools, dict) else ():
        owners = [name for name in servers if pattern.startswith(f"{name}_")]
        server = servers[max(owners, key=len)] if owners else None
        if is_on is not False or not isinstance(server, dict):
            continue
        name = max(owners, key=len)
        known = server.get("excludeTools")
        excluded = [*(known if isinstance(known, list) else []), pattern.removeprefix(f"{name}_")]
        servers[name] = {**server, "excludeTools": excluded}


def _normalize_kilocode(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Convert the file of versions before 7: `mcpServers`, seconds, and `sse` as the default type."""
    _normalize_opencode(document, source, machine)
    servers = document.settings.get("mcpServers")
    if isinstance(servers, dict):
        document.settings["mcpServers"] = {name: _convert_old_kilo(server) for name, server in servers.items()}


def _convert_old_kilo(server: object) -> object:
    if not isinstance(server, dict):
        return server
    changed = dict(server)
    if "timeout" in changed:
        changed["tool_timeout_sec"] = changed.pop("timeout")
    if "url" in changed and "type" not in changed:
        changed["type"] = "sse"
    return changed


def _normalize_gemini(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Fill in the directory of an extension, which its servers may refer to."""
    if source.file.name == "gemini-extension.json":
        separator = "\\" if machine.platform == "win32" else "/"
        places = {"extensionPath": str(source.file.parent), "workspacePath": str(machine.project)}
        fill_in(document, {**places, "/": separator, "pathSeparator": separator})


def _normalize_claude_desktop(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Add remarks about URLs: Claude Desktop only starts programs, so it ignores them."""
    servers = document.settings.get("mcpServers")
    for name, server in servers.items() if isinstance(servers, dict) else ():
        if isinstance(server, dict) and server.get("url") and not server.get("command"):
            document.add_remark(
                name, "url", "is ignored by Claude Desktop, which only starts programs; here it is used"
            )


def _normalize_zed(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Leave out the servers of extensions: the file has only their settings."""
    servers = document.settings.get("context_servers")
    if not isinstance(servers, dict):
        return
    kept: Object = {}
    for name, server in servers.items():
        is_defined = isinstance(server, dict) and bool(server.keys() & {"command", "url"})
        if isinstance(server, dict) and not is_defined and server.keys() & {"settings", "source"}:
            document.remarks.append(
                (name, "is provided by an extension of Zed, which knows its command; it is left out")
            )
        else:
            kept[name] = server
    document.settings["context_servers"] = kept


def _normalize_openhands(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Merge the lists of TOML files, one for each transport; most servers have a URL and no name."""
    mcp = document.settings.get("mcp")
    if not isinstance(mcp, dict):
        return
    listed: list[tuple[str, object]] = []
    for key, kind in (("sse_servers", "sse"), ("shttp_servers", "http"), ("stdio_servers", "stdio")):
        section = mcp.get(key)
        for each in section if isinstance(section, list) else ():
            server = {"url": each} if isinstance(each, str) else each
            listed.append((kind, {"type": kind, **server} if isinstance(server, dict) else server))
    urls = list(dict.fromkeys(url for _, server in listed if (url := _nameless_url(server))))
    by_url = dict(zip(urls, naming.derive_names(urls), strict=True))
    servers: Object = {}
    for kind, server in listed:
        given = server.get("name") if isinstance(server, dict) else None
        name = given if isinstance(given, str) and given else by_url.get(_nameless_url(server), kind)
        servers[naming.make_unique(name, servers)] = server
    document.settings = {"mcpServers": servers}


def _nameless_url(server: object) -> str:
    """Return the URL of a server without a name, or an empty text."""
    if not isinstance(server, dict) or server.get("name"):
        return ""
    url = server.get("url")
    return url if isinstance(url, str) else ""


QUIRKS: Mapping[str, Quirk] = {
    "claude": claude.normalize,
    "claude-desktop": _normalize_claude_desktop,
    "continue": options.normalize_continue,
    "gemini": _normalize_gemini,
    "goose": goose.normalize,
    "hermes": options.normalize_hermes,
    "kilocode": _normalize_kilocode,
    "librechat": options.normalize_librechat,
    "mistral-vibe": options.normalize_mistral_vibe,
    "opencode": _normalize_opencode,
    "openhands": _normalize_openhands,
    "zed": _normalize_zed,
}
