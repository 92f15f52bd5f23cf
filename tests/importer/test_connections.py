"""What a person is told who connects an AI tool by hand."""

from __future__ import annotations

import base64
import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from dynamic_mcp.importer.connections import TOKEN_PLACEHOLDER, ConnectionTarget, ToolConnection, describe_connection
from dynamic_mcp.importer.formats import yaml_edit
from dynamic_mcp.importer.installer import plan_installation
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.reader import find_tool
from dynamic_mcp.importer.tools.catalog import TOOLS

URL = "https://mcp.example.com/mcp/profile/review"
START = ("/opt/dynamic mcp/dynamic-mcp", "/home/ann/dynamic-mcp.json")
BY_START = ConnectionTarget(START)
BY_URL = ConnectionTarget(("dynamic-mcp", "connect", URL), URL)
BY_TOKEN = ConnectionTarget(("dynamic-mcp", "connect", URL), URL, "MY_TOKEN", ("MY_TOKEN",))


def connection(tool: str, target: ConnectionTarget) -> ToolConnection:
    found = describe_connection(find_tool(tool), target)
    assert found is not None
    return found


def test_every_tool_with_a_file_is_told_something_that_its_format_can_be_read_as() -> None:
    parsers: Mapping[str, Callable[[str], object]] = {
        "JSON": json.loads,
        "TOML": tomllib.loads,
        "YAML": yaml_edit.parse,
    }
    for adapter in TOOLS:
        for target in (BY_START, BY_URL, BY_TOKEN):
            found = describe_connection(adapter, target)
            if found is not None:
                assert "dynamic-mcp" in json.dumps(parsers[found.language](found.text)), adapter.name
                assert URL in found.text or not found.is_remote, adapter.name


@pytest.mark.parametrize("tool", ["cursor", "claude", "codex", "vscode", "goose", "zed", "windsurf", "copilot-cli"])
@pytest.mark.parametrize("target", [BY_START, BY_URL])
def test_a_text_is_what_install_writes_into_a_new_file(tool: str, target: ConnectionTarget, tmp_path: Path) -> None:
    machine = Machine(tmp_path, tmp_path / "project", {}, "linux")
    plan = plan_installation(find_tool(tool), ToolScope.USER, machine, start=target.start, url=target.url or None)
    assert connection(tool, target).text == plan.diffs[0].after


def test_the_place_of_a_file_is_told_for_each_system() -> None:
    assert [(each.path, each.systems) for each in connection("vscode", BY_URL).places] == [
        ("~/.config/Code/User/mcp.json", ("Linux",)),
        ("~/Library/Application Support/Code/User/mcp.json", ("macOS",)),
        (r"%APPDATA%\Code\User\mcp.json", ("Windows",)),
    ]


def test_a_token_is_taken_from_a_variable_in_the_syntax_of_the_tool() -> None:
    for tool, text in (
        ("cursor", '"Bearer ${env:MY_TOKEN}"'),
        ("claude", '"Bearer ${MY_TOKEN}"'),
        ("opencode", '"Bearer {env:MY_TOKEN}"'),
        ("codex", 'bearer_token_env_var = "MY_TOKEN"'),
    ):
        found = connection(tool, BY_TOKEN)
        assert text in found.text
        assert (found.variable, found.has_placeholder) == ("MY_TOKEN", False)


def test_a_tool_without_variables_gets_a_placeholder_for_the_token() -> None:
    found = connection("lm-studio", BY_TOKEN)
    assert f"Bearer {TOKEN_PLACEHOLDER}" in found.text
    assert (found.variable, found.has_placeholder) == ("", True)


def test_links_open_the_tool_with_the_entry() -> None:
    entry = {"url": URL}
    for tool, scheme in (("cursor", "cursor"), ("lm-studio", "lmstudio")):
        link = urlsplit(connection(tool, BY_URL).link)
        query = parse_qs(link.query)
        assert link.scheme == scheme
        assert (query["name"], json.loads(base64.b64decode(query["config"][0]))) == (["dynamic-mcp"], entry)
    for tool in ("vscode", "vscode-insiders"):
        scheme, _, rest = connection(tool, BY_URL).link.partition(":mcp/install?")
        assert (scheme, json.loads(unquote(rest))) == (tool, {"name": "dynamic-mcp", "type": "http", **entry})
    goose = parse_qs(urlsplit(connection("goose", BY_START).link).query)
    assert (goose["cmd"], goose["arg"]) == ([START[0]], [START[1]])


def test_commands_of_tools_are_quoted_for_a_shell() -> None:
    mark = '"' if sys.platform == "win32" else "'"
    program = f"{mark}/opt/dynamic mcp/dynamic-mcp{mark}"
    assert connection("claude", BY_START).commands == (
        f"claude mcp add --scope user dynamic-mcp -- {program} /home/ann/dynamic-mcp.json",
    )
    assert connection("codex", BY_TOKEN).commands == (
        f"codex mcp add dynamic-mcp --url {URL} --bearer-token-env-var MY_TOKEN",
    )
    assert (
        connection("gemini", BY_TOKEN)
        .commands[0]
        .endswith(f"dynamic-mcp {URL} --header {mark}Authorization: Bearer ${{MY_TOKEN}}{mark}")
    )


def test_a_tool_that_keeps_its_servers_in_a_database_has_no_file_to_edit() -> None:
    assert describe_connection(find_tool("cherry-studio"), BY_URL) is None
