"""Fields that are easy to lose: each is carried, or there is a line about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dynamic_mcp.importer.model import ForeignServer
from dynamic_mcp.importer.reader import find_tool, read_tool
from tests.importer.machines import Platform, machine


def found(tmp_path: Path, tool: str, file: str, document: object, platform: Platform = "linux") -> ForeignServer:
    """Return the one server of a tool with this file in its home."""
    here = machine(tmp_path, platform)
    path = here.home / file
    path.parent.mkdir(parents=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    servers = [server for each in read_tool(find_tool(tool), None, here) for server in each.servers]
    (server,) = servers
    return server


def of(server: dict[str, Any]) -> dict[str, Any]:  # Any: whatever JSON the tool takes
    """Return a file with one server."""
    return {"mcpServers": {"a": server}}


def test_kiro_writes_the_redirect_as_host_and_port_without_a_scheme(tmp_path: Path) -> None:
    server = found(
        tmp_path,
        "kiro",
        ".kiro/settings/mcp.json",
        of({"url": "https://a.example", "oauth": {"redirectUri": "127.0.0.1:7778"}}),
    )
    assert server.entry["oauth"] == {"redirect_port": 7778}


def test_a_certificate_that_is_not_checked_is_a_line(tmp_path: Path) -> None:
    text = "mcp_servers:\n  a: {url: 'https://a.example', ssl_verify: false}\n"
    server = found(tmp_path, "hermes", ".hermes/config.yaml", text)
    assert [notice.where for notice in server.notices] == ["hermes/user/a.ssl_verify"]


def test_that_a_token_is_a_bearer_token_is_no_loss(tmp_path: Path) -> None:
    server = found(
        tmp_path,
        "pi",
        ".pi/agent/mcp.json",
        of({"url": "https://a.example", "auth": "bearer", "bearerTokenEnv": "T"}),
    )
    assert (server.entry["headers"], server.notices) == ({"Authorization": "Bearer ${T}"}, ())


def test_an_extension_of_gemini_may_write_the_separator_of_paths(tmp_path: Path) -> None:
    document = of({"command": "node", "args": ["${extensionPath}${/}dist${pathSeparator}s.js"]})
    file = ".gemini/extensions/x/gemini-extension.json"
    server = found(tmp_path, "gemini", file, document, "win32")
    assert server.entry["args"] == [f"{tmp_path / 'home/.gemini/extensions/x'}\\dist\\s.js"]


def test_a_second_time_to_wait_for_the_same_is_a_line(tmp_path: Path) -> None:
    timeout = {"execution": 60000, "request": 30000}
    document = {"mcp": {"servers": {"a": {"type": "local", "command": ["a"], "timeout": timeout}}}}
    server = found(tmp_path, "opencode", ".config/opencode/opencode.json", document)
    assert server.entry["timeout"] == {"tools": "60s"}
    assert [notice.where for notice in server.notices] == ["opencode/user/a.timeout.request"]


def test_a_variable_that_codex_has_from_elsewhere_is_a_line(tmp_path: Path) -> None:
    text = '[mcp_servers.a]\ncommand = "a"\nenv_vars = ["T", {name = "U", source = "remote"}]\n'
    server = found(tmp_path, "codex", ".codex/config.toml", text)
    assert server.entry["env"] == {"T": "${T}", "U": "${U}"}
    assert [notice.where for notice in server.notices] == ["codex/user/a.env_vars[1].source"]
