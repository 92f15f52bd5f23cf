"""The clients, as data: how each is set up, run and asked, and what it cannot do by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from tests.clients.model import Call

Json = Any  # whatever JSON a client's file holds
VERSIONS: dict[str, str] = json.loads(Path(__file__).with_name("package.json").read_text())["dependencies"]
OURS = "dynamic-mcp"


@dataclass(frozen=True)
class Server:
    """An MCP server as a client is told of it: a program, or a URL with headers."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


Servers = Mapping[str, Server]
Write = Callable[[str, Servers], dict[str, str]]


@dataclass(frozen=True)
class Client:
    """One AI client.

    `name` is the program's own name for it, `title` its maker's. `write` returns its files below the home, from the
    model's URL and the servers; `named` the name under which the model sees a server's tool. `cannot` has, by
    promise, why the client itself cannot keep it.
    """

    name: str
    title: str
    package: str
    program: str
    write: Write
    go: tuple[str, ...]
    named: Callable[[str, str], str]
    variables: Callable[[str], dict[str, str]]
    file: str
    lists: tuple[str, ...] = ()
    prepare: Callable[[str], tuple[str, ...]] | None = None
    reveal: Callable[[list[str]], Call] | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    know: str = ""

    @property
    def version(self) -> str:
        """The version that is installed for the tests."""
        return VERSIONS[self.package]


def _select(tool: str) -> Callable[[list[str]], Call]:
    return lambda names: Call(tool, {"query": f"select:{','.join(names)}"})


def _claude(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {"type": "http", "url": each.url, "headers": dict(each.headers)}
        if each.url
        else {"type": "stdio", "command": each.command[0], "args": list(each.command[1:]), "env": dict(each.env)}
        for name, each in servers.items()
    }
    return {".claude.json": _json({"hasCompletedOnboarding": True, "mcpServers": entries})}


def _codex(url: str, servers: Servers) -> dict[str, str]:
    provider = {"name": "scripted", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "SCRIPTED_KEY"}
    document: dict[str, Json] = {
        "model": "scripted",
        "model_provider": "scripted",
        "check_for_update_on_startup": False,
        "analytics": {"enabled": False},
        "model_providers": {"scripted": provider},
        "mcp_servers": {
            name: {"url": each.url, "http_headers": dict(each.headers)}
            if each.url
            else {"command": each.command[0], "args": list(each.command[1:]), "env": dict(each.env)}
            for name, each in servers.items()
        },
    }
    return {".codex/config.toml": tomlkit.dumps(document)}


def _gemini(url: str, servers: Servers) -> dict[str, str]:
    document = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcpServers": {name: _plain(each, url="httpUrl") for name, each in servers.items()},
    }
    return {".gemini/settings.json": _json(document)}


def _qwen(url: str, servers: Servers) -> dict[str, str]:
    document = {
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "mcpServers": {name: _plain(each, url="httpUrl") for name, each in servers.items()},
    }
    return {".qwen/settings.json": _json(document)}


def _opencode(url: str, servers: Servers, name: str = "opencode") -> dict[str, str]:
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


def _kilo(url: str, servers: Servers) -> dict[str, str]:
    return _opencode(url, servers, "kilo")


def _copilot(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {"type": "http" if each.url else "local", **_plain(each), "tools": ["*"]}
        for name, each in servers.items()
    }
    return {".copilot/mcp-config.json": _json({"mcpServers": entries})}


def _cline(url: str, servers: Servers) -> dict[str, str]:
    entries = {
        name: {**({"type": "streamableHttp"} if each.url else {}), **_plain(each)} for name, each in servers.items()
    }
    return {".cline/data/settings/cline_mcp_settings.json": _json({"mcpServers": entries})}


def _plain(server: Server, url: str = "url") -> dict[str, Json]:
    """Return an entry in the form that most clients have."""
    if server.url:
        return {url: server.url, "headers": dict(server.headers)}
    return {"command": server.command[0], "args": list(server.command[1:]), "env": dict(server.env)}


def _json(document: Json) -> str:
    return json.dumps(document, indent=2) + "\n"


CLIENTS = (
    Client(
        name="claude",
        title="Claude Code",
        package="@anthropic-ai/claude-code",
        program="claude",
        write=_claude,
        go=("-p", "go", "--dangerously-skip-permissions"),
        named=lambda server, tool: f"mcp__{server}__{tool}",
        variables=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        },
        file=".claude.json",
        lists=("mcp", "list"),
        reveal=_select("ToolSearch"),
    ),
    Client(
        name="codex",
        title="Codex",
        package="@openai/codex",
        program="codex",
        write=_codex,
        go=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"),
        named=lambda server, tool: f"mcp__{server.replace('-', '_')}/{tool}",
        variables=lambda url: {"SCRIPTED_KEY": "key"},
        file=".codex/config.toml",
        lists=("mcp", "list"),
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        package="@google/gemini-cli",
        program="gemini",
        write=_gemini,
        go=("-y", "--skip-trust", "-m", "gemini-2.5-pro", "-p", "go"),
        named=lambda server, tool: f"mcp_{server}_{tool}",
        variables=lambda url: {"GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": url},
        file=".gemini/settings.json",
        lists=("mcp", "list"),
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        package="@qwen-code/qwen-code",
        program="qwen",
        write=_qwen,
        go=("--auth-type", "openai", "-y", "-p", "go"),
        named=lambda server, tool: f"mcp__{server}__{tool}",
        variables=lambda url: {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-4o"},
        file=".qwen/settings.json",
        lists=("mcp", "list"),
        reveal=_select("tool_search"),
    ),
    Client(
        name="opencode",
        title="opencode",
        package="opencode-ai",
        program="opencode",
        write=_opencode,
        go=("run", "--model", "scripted/scripted", "go"),
        named=lambda server, tool: f"{server}_{tool}",
        variables=lambda url: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        file=".config/opencode/opencode.json",
        lists=("mcp", "list"),
    ),
    Client(
        name="copilot-cli",
        title="Copilot CLI",
        package="@github/copilot",
        program="copilot",
        write=_copilot,
        go=("-p", "go", "--allow-all-tools"),
        named=lambda server, tool: f"{server}-{tool}",
        variables=lambda url: {
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "key",
            "COPILOT_MODEL": "gpt-4",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_OFFLINE": "true",
        },
        file=".copilot/mcp-config.json",
        lists=("mcp", "list"),
    ),
    Client(
        name="kilocode",
        title="Kilo",
        package="@kilocode/cli",
        program="kilo",
        write=_kilo,
        go=("run", "--auto", "--model", "scripted/scripted", "go"),
        named=lambda server, tool: f"{server}_{tool}",
        variables=lambda url: {"KILO_DISABLE_AUTOUPDATE": "1", "KILO_DISABLE_MODELS_FETCH": "1", "KILO_TELEMETRY_LEVEL": "off"},
        file=".config/kilo/kilo.json",
        lists=("mcp", "list"),
    ),
    Client(
        name="cline",
        title="Cline",
        package="cline",
        program="cline",
        write=_cline,
        go=("--json", "-P", "openai-compatible", "-m", "gpt-4o", "go on"),
        prepare=lambda url: ("auth", "-p", "openai", "-k", "key", "-m", "gpt-4o", "-b", f"{url}/v1"),
        named=lambda server, tool: f"{server}__{tool}",
        variables=lambda url: {},
        file=".cline/data/settings/cline_mcp_settings.json",
    ),
)
