"""Tools that describe the connection of a server in nested fields."""

from __future__ import annotations

from dynamic_mcp.importer.model import Machine, Source
from dynamic_mcp.importer.tools.document import Object, ToolDocument


def normalize_continue(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Continue: blocks of its hub are not in the file, and a file may be a single server."""
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


def normalize_hermes(document: ToolDocument, source: Source, machine: Machine) -> None:
    """Hermes: the filter of tools also has switches for resources and prompts."""
    servers = document.settings.get("mcp_servers")
    if not isinstance(servers, dict):
        return
    changed: Object = dict(servers)
    for name, server in servers.items():
        tools = server.get("tools") if isinstance(server, dict) else None
        if isinstance(server, dict) and isinstance(tools, dict):
            off = [switch for switch in ("resources", "prompts") if tools.get(switch) is False]
            for switch in off:
                document.add_remark(name, f"tools.{switch}", "has no counterpart here and is left out")
            rest = {key: value for key, value in tools.items() if key not in ("resources", "prompts")}
            changed[name] = {**server, "tools": rest}
    document.settings["mcp_servers"] = changed


def normalize_librechat(document: ToolDocument, source: Source, machine: Machine) -> None:
    """LibreChat: a key is an object that names its header and its owner."""
    servers = document.settings.get("mcpServers")
    if isinstance(servers, dict):
        changed = {name: _with_key(document, name, server) for name, server in servers.items()}
        document.settings["mcpServers"] = changed


def normalize_mistral_vibe(document: ToolDocument, source: Source, machine: Machine) -> None:
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


def _with_key(document: ToolDocument, name: str, server: object) -> object:
    key = server.get("apiKey") if isinstance(server, dict) else None
    if not isinstance(server, dict) or not isinstance(key, dict):
        return server
    rest = {field: value for field, value in server.items() if field != "apiKey"}
    header = {"custom": key.get("custom_header"), "bearer": "Authorization"}.get(str(key.get("authorization_type")))
    text = key.get("key")
    if not (isinstance(text, str) and isinstance(header, str)):
        document.add_remark(name, "apiKey", "comes from each user or in a custom way and is left out: set the header")
        return rest
    known = rest.get("headers")
    headers = known if isinstance(known, dict) else {}
    return {**rest, "headers": {**headers, header: f"Bearer {text}" if header == "Authorization" else text}}


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
