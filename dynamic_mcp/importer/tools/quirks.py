"""The quirks of tools: functions that convert a document to the form of its adapter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from dynamic_mcp.importer.adapter import Adapter
from dynamic_mcp.importer.convert import naming
from dynamic_mcp.importer.model import Machine, SettingsSource
from dynamic_mcp.importer.tools import claude
from dynamic_mcp.importer.tools.document import Object, ToolDocument, fill_in

Quirk = Callable[[ToolDocument, SettingsSource, Machine], None]
_PARTS = ("builtin", "platform", "frontend", "inline_python")


def normalize(adapter: Adapter, settings: Object, source: SettingsSource, machine: Machine) -> ToolDocument:
    """Return the document in the form that the adapter describes."""
    document = ToolDocument(dict(settings))
    if adapter.quirk:
        QUIRKS[adapter.quirk](document, source, machine)
    return document


def _normalize_opencode(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
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
    """Return whether a member of `mcp` is a section of the later layout and not a server of that name."""
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
        earlier = server.get("excludeTools")
        excluded = [*(earlier if isinstance(earlier, list) else []), pattern.removeprefix(f"{name}_")]
        servers[name] = {**server, "excludeTools": excluded}


def _normalize_kilocode(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Convert the file of versions before 7: `mcpServers`, seconds, and `sse` as the default type."""
    _normalize_opencode(document, source, machine)
    document.change_servers("mcpServers", _convert_old_kilo)


def _convert_old_kilo(name: str, server: Object) -> Object:
    changed = dict(server)
    if "timeout" in changed:
        changed["tool_timeout_sec"] = changed.pop("timeout")
    if "url" in changed and "type" not in changed:
        changed["type"] = "sse"
    return changed


def _normalize_gemini(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Fill in the directory of an extension, which its servers may refer to."""
    if source.file.name == "gemini-extension.json":
        separator = "\\" if machine.platform == "win32" else "/"
        places = {"extensionPath": str(source.file.parent), "workspacePath": str(machine.project)}
        fill_in(document, {**places, "/": separator, "pathSeparator": separator})


def _normalize_claude_desktop(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Add remarks about URLs: Claude Desktop only starts programs, so it ignores them."""
    for name, server in document.servers().items():
        if isinstance(server, dict) and server.get("url") and not server.get("command"):
            document.add_remark(
                name, "url", "is ignored by Claude Desktop, which only starts programs; here it is used"
            )


def _normalize_zed(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Leave out the servers of extensions: the file has only their settings."""
    kept: Object = {}
    for name, server in document.servers("context_servers").items():
        is_defined = isinstance(server, dict) and bool(server.keys() & {"command", "url"})
        if isinstance(server, dict) and not is_defined and server.keys() & {"settings", "source"}:
            document.remarks.append(
                (name, "is provided by an extension of Zed, which knows its command; it is left out")
            )
        else:
            kept[name] = server
    if document.servers("context_servers"):
        document.settings["context_servers"] = kept


def _normalize_openhands(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
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
        own_name = server.get("name") if isinstance(server, dict) else None
        name = own_name if isinstance(own_name, str) and own_name else by_url.get(_nameless_url(server), kind)
        servers[naming.make_unique(name, servers)] = server
    document.settings = {"mcpServers": servers}


def _nameless_url(server: object) -> str:
    """Return the URL of a server without a name, or an empty text."""
    if not isinstance(server, dict) or server.get("name"):
        return ""
    url = server.get("url")
    return url if isinstance(url, str) else ""


def _normalize_continue(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Leave out blocks of Continue's hub, which the file does not define; a file may also be a single server."""
    servers = document.settings.get("mcpServers")
    if servers is None and document.settings.keys() & {"command", "url"}:
        document.settings = {"mcpServers": {source.file.stem: document.settings}}
    if not isinstance(servers, list):
        return
    kept: list[object] = []
    for server in servers:
        if isinstance(server, dict) and "uses" in server and not server.keys() & {"command", "url"}:
            document.remarks.append((str(server["uses"]), "is a block of the hub and is not defined in this file"))
        else:
            kept.append(_with_options(document, server))
    document.settings["mcpServers"] = kept


def _normalize_hermes(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Hermes: the filter of tools also has switches for resources and prompts."""

    def change(name: str, server: Object) -> Object:
        tools = server.get("tools")
        if not isinstance(tools, dict):
            return server
        for switch in ("resources", "prompts"):
            if tools.get(switch) is False:
                document.add_remark(name, f"tools.{switch}", "has no counterpart here and is left out")
        rest = {key: value for key, value in tools.items() if key not in ("resources", "prompts")}
        return {**server, "tools": rest}

    document.change_servers("mcp_servers", change)


def _normalize_librechat(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """LibreChat: a key is an object that names its header and its owner."""
    document.change_servers("mcpServers", partial(_with_key, document))


def _normalize_mistral_vibe(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    """Mistral Vibe: a key has its own variable, header and format."""
    servers = document.settings.get("mcp_servers")
    if isinstance(servers, list):
        document.settings["mcp_servers"] = [_with_key_of_env(document, server) for server in servers]


def _with_options(document: ToolDocument, server: object) -> object:
    options = server.get("requestOptions") if isinstance(server, dict) else None
    if not isinstance(server, dict) or not isinstance(options, dict):
        return server
    for name in options:
        if name != "headers":
            reason = "is an option of the HTTP client, which has no counterpart here"
            document.add_remark(str(server.get("name")), f"requestOptions.{name}", reason)
    return {**server, "requestOptions": {"headers": options.get("headers")}}


def _with_key(document: ToolDocument, name: str, server: Object) -> Object:
    key = server.get("apiKey")
    if not isinstance(key, dict):
        return server
    rest = {field: value for field, value in server.items() if field != "apiKey"}
    header = {"custom": key.get("custom_header"), "bearer": "Authorization"}.get(str(key.get("authorization_type")))
    text = key.get("key")
    if not (isinstance(text, str) and isinstance(header, str)):
        document.add_remark(name, "apiKey", "comes from each user or in a custom way and is left out: set the header")
        return rest
    headers = rest.get("headers")
    value = f"Bearer {text}" if header == "Authorization" else text
    return {**rest, "headers": {**(headers if isinstance(headers, dict) else {}), header: value}}


def _with_key_of_env(document: ToolDocument, server: object) -> object:
    if not isinstance(server, dict) or not isinstance(server.get("api_key_env"), str):
        return server
    header, form = server.get("api_key_header", "Authorization"), server.get("api_key_format", "Bearer {token}")
    rest = {key: value for key, value in server.items() if not key.startswith("api_key_")}
    if header == "Authorization" and form == "Bearer {token}":
        return {**rest, "bearer_token_env_var": server["api_key_env"]}
    if isinstance(header, str) and form == "{token}":
        return {**rest, "env_http_headers": {header: server["api_key_env"]}}
    document.add_remark(
        str(server.get("name")), "api_key_format", f"has no counterpart here: set the header `{header}` by hand"
    )
    return rest


def _normalize_goose(document: ToolDocument, source: SettingsSource, machine: Machine) -> None:
    extensions = document.settings.get("extensions")
    if not isinstance(extensions, dict):
        return
    kept: Object = {}
    for name, extension in extensions.items():
        server = _flatten(extension) if isinstance(extension, dict) else extension
        if not isinstance(server, dict):
            kept[name] = server
        elif server.get("type") in _PARTS:
            document.remarks.append(
                (name, f"has the type `{server['type']}`, which is built into Goose, and is left out")
            )
        else:
            kept[name] = _with_headers(server)
    document.settings["extensions"] = kept


def _flatten(extension: Object) -> Object:
    inner = extension.get("config")
    if not isinstance(inner, dict):
        return extension
    return {key: value for key, value in {**extension, **inner}.items() if key != "config"}


def _with_headers(server: Object) -> Object:
    """Fill a remote server's variables into its headers, which are their only use."""
    envs, headers = server.get("envs"), server.get("headers")
    if not server.get("uri"):
        return server
    values = {name: text for name, text in envs.items() if isinstance(text, str)} if isinstance(envs, dict) else {}
    rest = {key: value for key, value in server.items() if key not in ("envs", "env_keys")}
    if isinstance(headers, dict):
        rest["headers"] = {
            name: _inline(text, values) if isinstance(text, str) else text for name, text in headers.items()
        }
    return rest


def _inline(text: str, values: Mapping[str, str]) -> str:
    """Replace references to these values, except by values that look like references themselves."""

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[1] or match[2], match[0])
        return match[0] if "$" in value else value

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", fill, text)


QUIRKS: Mapping[str, Quirk] = {
    "claude": claude.normalize,
    "claude-desktop": _normalize_claude_desktop,
    "continue": _normalize_continue,
    "gemini": _normalize_gemini,
    "goose": _normalize_goose,
    "hermes": _normalize_hermes,
    "kilocode": _normalize_kilocode,
    "librechat": _normalize_librechat,
    "mistral-vibe": _normalize_mistral_vibe,
    "opencode": _normalize_opencode,
    "openhands": _normalize_openhands,
    "zed": _normalize_zed,
}
