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
)
