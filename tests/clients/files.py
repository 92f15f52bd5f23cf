"""What stands in each client's own files, for the scripted model at a URL and some servers: paths below the home."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tomlkit

Json = Any  # whatever JSON a client's file holds


@dataclass(frozen=True)
class Server:
    """An MCP server as a client is told of it: a program, or a URL with headers.

    `passed` are variables of the shell to give it, where a client has a field for their names.
    """

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()


Servers = Mapping[str, Server]


def claude(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {"type": "http", "url": each.url, "headers": dict(each.headers)}
        if each.url
        else {"type": "stdio", "command": each.command[0], "args": list(each.command[1:]), "env": dict(each.env)}
        for name, each in servers.items()
    }
    return {".claude.json": _json({"hasCompletedOnboarding": True, "mcpServers": entries})}


def codex(url: str, servers: Servers) -> dict[str, str]:
    provider = {"name": "scripted", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "SCRIPTED_KEY"}
    document: dict[str, Json] = {
        "model": "gpt-5.5",
        "model_provider": "scripted",
        "check_for_update_on_startup": False,
        "analytics": {"enabled": False},
        "model_providers": {"scripted": provider},
        "mcp_servers": {name: _codex_server(each) for name, each in servers.items()},
    }
    return {".codex/config.toml": tomlkit.dumps(document)}


def _codex_server(server: Server) -> dict[str, Json]:
    if server.url:
        headers = {f"V-{name.replace('_', '-')}": name for name in server.passed}
        return {"url": server.url, "http_headers": dict(server.headers), "env_http_headers": headers}
    command, *args = server.command
    return {"command": command, "args": args, "env": dict(server.env), "env_vars": list(server.passed)}


def gemini(url: str, servers: Servers) -> dict[str, str]:
    document = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcpServers": {name: _plain(each, url="httpUrl") for name, each in servers.items()},
    }
    return {".gemini/settings.json": _json(document)}


def qwen(url: str, servers: Servers) -> dict[str, str]:
    document = {
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcpServers": {name: _plain(each, url="httpUrl") for name, each in servers.items()},
    }
    return {".qwen/settings.json": _json(document)}


def opencode(url: str, servers: Servers, name: str = "opencode") -> dict[str, str]:
    model = {
        "name": "scripted",
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 100000, "output": 4000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": "key"},
        "models": {"scripted": model},
    }
    entries: dict[str, Json] = {
        name: {"type": "remote", "url": each.url, "headers": dict(each.headers)}
        if each.url
        else {"type": "local", "command": list(each.command), "environment": dict(each.env)}
        for name, each in servers.items()
    }
    document = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/scripted",
        "provider": {"scripted": provider},
        "mcp": entries,
    }
    return {f".config/{name}/{name}.json": _json(document)}


def kilo(url: str, servers: Servers) -> dict[str, str]:
    return opencode(url, servers, "kilo")


def copilot(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {"type": "http" if each.url else "local", **_plain(each), "tools": ["*"]}
        for name, each in servers.items()
    }
    return {".copilot/mcp-config.json": _json({"mcpServers": entries})}


def cline(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {**({"type": "streamableHttp"} if each.url else {}), **_plain(each)} for name, each in servers.items()
    }
    settings = {"provider": "openai-compatible", "apiKey": "key", "model": "gpt-4o", "baseUrl": f"{url}/v1"}
    provider = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    providers = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "modes": {},
        "providers": {"openai-compatible": provider},
    }
    return {
        ".cline/data/settings/providers.json": _json(providers),
        ".cline/data/settings/cline_mcp_settings.json": _json({"mcpServers": entries}),
    }


def mcporter(url: str, servers: Servers) -> dict[str, str]:
    return {".mcporter/mcporter.json": _json({"mcpServers": {name: _plain(each) for name, each in servers.items()}})}


def inspector(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {"type": "streamable-http" if each.url else "stdio", **_plain(each)} for name, each in servers.items()
    }
    return {".mcp-inspector/mcp.json": _json({"mcpServers": entries})}


def _plain(server: Server, url: str = "url") -> dict[str, Json]:
    """Return an entry in the form that most clients have."""
    if server.url:
        return {url: server.url, "headers": dict(server.headers)}
    return {"command": server.command[0], "args": list(server.command[1:]), "env": dict(server.env)}


def _json(document: Json) -> str:
    return json.dumps(document, indent=2) + "\n"
