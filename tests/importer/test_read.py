"""Which files are read: the scopes, the systems, what is owned by whom, and names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dynamic_mcp.errors import NotFound
from dynamic_mcp.importer.model import SettingsSource, ToolScope
from dynamic_mcp.importer.reader import find_tool, list_sources, read_all, read_file, read_tool
from dynamic_mcp.importer.tools.catalog import TOOLS
from tests.importer.machines import PLATFORMS, machine

SERVERS = {"mcpServers": {"a": {"command": "demo"}}}


def put(file: Path, document: object = SERVERS) -> Path:
    """Write a file and the directories above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return file


def test_the_projects_file_counts_where_there_is_one_else_the_users(tmp_path: Path) -> None:
    here = machine(tmp_path)
    user = put(here.home / ".cursor/mcp.json")
    assert [each.source.file for each in read_tool(find_tool("cursor"), None, here)] == [user]
    project = put(here.project / ".cursor/mcp.json")
    readings = read_tool(find_tool("cursor"), None, here)
    assert [each.source.file for each in readings if each.servers] == [project]
    everything = read_tool(find_tool("cursor"), tuple(ToolScope), here)
    assert [each.source.file for each in everything] == [project, user]


def test_a_projects_settings_without_servers_do_not_hide_the_users(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.project / ".vscode/settings.json", {"editor.tabSize": 2})
    user = put(here.home / ".config/Code/User/mcp.json", {"servers": SERVERS["mcpServers"]})
    readings = read_tool(find_tool("vscode"), None, here)
    assert [each.source for each in readings] == [SettingsSource("vscode", "VS Code", ToolScope.USER, user)]


def test_a_projects_file_that_only_switches_servers_does_not_hide_the_users(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.project / ".codex/config.toml", "[mcp_servers.a]\nenabled = false\n")
    user = put(here.home / ".codex/config.toml", '[mcp_servers.a]\ncommand = "demo"\n')
    readings = read_tool(find_tool("codex"), None, here)
    assert [each.source.file for each in readings if each.servers] == [user]
    assert any("only enables or disables a server" in str(notice) for each in readings for notice in each.notices)


def test_the_config_of_openhands_in_a_project_counts_only_with_its_servers_in_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    project = put(here.project / "config.toml", '[mcp]\nsse_servers = ["https://s.example.test/x"]\n')
    (reading,) = read_tool(find_tool("openhands"), None, here)
    assert (reading.source.file, [server.name for server in reading.servers]) == (project, ["s-example-test"])
    put(project, "title = {{ the template of another program }}\n")
    user = put(here.home / ".openhands/mcp.json")
    (reading,) = read_tool(find_tool("openhands"), None, here)
    assert (reading.source.file, [server.name for server in reading.servers]) == (user, ["a"])


def test_a_project_below_a_directory_named_plugins_is_no_plugin(tmp_path: Path) -> None:
    root = tmp_path / "plugins"
    root.mkdir()
    here = machine(root)
    put(here.project / ".mcp.json", {"mcpServers": {"a": {"command": "${CLAUDE_PLUGIN_ROOT}/a"}}})
    (reading,) = read_tool(find_tool("claude"), (ToolScope.PROJECT,), here)
    assert reading.servers[0].entry["command"] == "${CLAUDE_PLUGIN_ROOT}/a"


def test_a_plugin_of_unknown_origin_has_a_variable_for_its_data_and_a_notice(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(
        here.home / ".claude/plugins/repos/owner/.mcp.json",
        {"a": {"command": "x", "env": {"D": "${CLAUDE_PLUGIN_DATA}"}}},
    )
    (reading,) = read_tool(find_tool("claude"), (ToolScope.USER,), here)
    (server,) = reading.servers
    assert server.entry["env"] == {"D": "${CLAUDE_PLUGIN_DATA}"}
    assert [str(notice) for notice in server.notices] == [
        "claude/user/a: uses `${CLAUDE_PLUGIN_DATA}`, whose directory is not known for this plugin: set the variable"
    ]


def test_servers_for_one_project_only_are_mentioned_where_they_were_not_asked_for(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".claude.json", {"projects": {str(here.project): SERVERS}})
    readings = read_tool(find_tool("claude"), None, here)
    assert [server.name for each in readings for server in each.servers] == []
    (notice,) = (notice for each in readings for notice in each.notices)
    assert "`dynamic-mcp import claude --scope all`" in notice.reason


def test_what_a_project_switches_off_of_the_users_is_said_and_stays_on(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".qwen/settings.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    put(here.project / ".qwen/settings.json", {"mcp": {"excluded": ["a*"]}})
    (reading,) = (each for each in read_tool(find_tool("qwen"), (ToolScope.USER,), here) if each.servers)
    assert [server.entry.get("enabled") for server in reading.servers] == [None, None]
    assert [str(notice) for server in reading.servers for notice in server.notices] == [
        "qwen-code/user/a: is disabled for this project in Qwen Code; it stays enabled here"
    ]


def test_local_settings_are_found_by_the_projects_path_however_windows_writes_it(tmp_path: Path) -> None:
    here = machine(tmp_path, "win32")
    key = str(here.project).upper().replace("/", "\\") + "\\"
    put(here.home / ".claude.json", {"projects": {key: SERVERS}})
    (reading,) = read_tool(find_tool("claude"), (ToolScope.LOCAL,), here)
    assert [server.name for server in reading.servers] == ["a"]


def test_files_above_the_project_are_read_as_far_as_the_repository_reaches(tmp_path: Path) -> None:
    here = machine(tmp_path)
    below = put(here.project / "src/app/.mcp.json")
    above = put(here.project / ".mcp.json")
    outside = put(tmp_path / ".mcp.json")
    inner = machine(tmp_path)
    inner = type(inner)(inner.home, here.project / "src/app", {}, "linux")
    assert [each.source.file for each in read_tool(find_tool("claude"), None, inner)] == [below]
    (here.project / ".git").mkdir()
    files = [each.source.file for each in read_tool(find_tool("claude"), None, inner)]
    assert files == [below, above]
    assert outside not in files


def test_a_file_that_several_tools_read_is_reported_once_by_the_one_that_owns_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.project / ".cursor/mcp.json", {"mcpServers": {"b": {"command": "demo"}}})
    put(here.project / ".mcp.json")
    found = [(each.source.tool, server.name) for each in read_all(here) for server in each.servers]
    assert found == [("cursor", "b"), ("claude", "a")]


def test_the_key_and_not_the_name_says_whose_file_it_is(tmp_path: Path) -> None:
    here = machine(tmp_path)
    asked = {"inputs": [{"id": "pat"}], "servers": {"g": {"command": "d", "env": {"PAT": "${input:pat}"}}}}
    put(here.project / ".mcp.json", asked)
    (reading,) = (each for each in read_all(here) if each.servers)
    assert reading.source.tool == "visual-studio"
    assert reading.servers[0].exports == ("PAT",)


def test_one_broken_file_among_ten_is_one_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    here = machine(tmp_path)
    broken = put(here.home / ".cursor/mcp.json", '{\n "mcpServers": {,}}')
    for tool in (
        ".codeium/windsurf/mcp_config",
        ".kiro/settings/mcp",
        ".junie/mcp/mcp",
        ".factory/mcp",
        ".boltai/mcp",
    ):
        put(here.home / f"{tool}.json")
    readings = read_all(here)
    errors = [(each.source.file, each.error) for each in readings if each.error]
    assert errors == [(broken, "line 2, column 17: is not JSON: expecting property name enclosed in double quotes")]
    assert len([server for each in readings for server in each.servers]) == 5


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".cursor/mcp.json").chmod(0)
    (reading,) = read_tool(find_tool("cursor"), None, here)
    assert reading.error == "cannot be read: permission denied"


def test_keys_that_are_there_twice_are_mentioned_where_they_are_about_servers(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(
        here.home / ".gemini/settings.json",
        '{"theme": 1, "theme": 2, "mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
    )
    (reading,) = read_tool(find_tool("gemini"), None, here)
    assert [notice.where for notice in reading.notices] == ["gemini/user/mcpServers.a"]
    assert reading.servers[0].entry["command"] == "y"


def test_a_list_instead_of_settings_is_an_error(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".cursor/mcp.json", [1])
    (reading,) = read_tool(find_tool("cursor"), None, here)
    assert reading.error == "has no settings: it is not an object"


def test_tools_are_known_by_name_and_alias_however_they_are_spelt() -> None:
    spellings = ("claude-code", "Claude_Code", "claude-cli", "CLAUDE")
    assert {find_tool(name).name for name in spellings} == {"claude"}
    for name, alias in {
        "opencode": "open-code",
        "vscode": "vs-code",
        "codex": "codex-cli",
        "gemini": "gemini-cli",
    }.items():
        assert find_tool(alias).name == name
    assert find_tool("visualstudiocode").name == "vscode"
    assert find_tool("kilo-code").name == "kilocode"


def test_an_unknown_tool_is_answered_with_the_closest_names() -> None:
    with pytest.raises(NotFound) as caught:
        find_tool("cursro")
    assert caught.value.near[0] == "cursor"


def test_no_two_tools_share_a_name() -> None:
    names = [name for adapter in TOOLS for name in (adapter.name, *adapter.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_place_that_a_tool_names_is_one_that_is_read(platform: str, tmp_path: Path) -> None:
    system = next(each for each in PLATFORMS if each == platform)
    for adapter in TOOLS:
        here = machine(tmp_path, system)
        for source in list_sources(adapter, here):
            if not source.file.is_relative_to(tmp_path):
                continue
            put(source.file, "").write_bytes(b"\xff no text")
            readings = read_tool(adapter, (source.scope,), here)
            assert source.file in [each.source.file for each in readings if each.error], source
            source.file.unlink()


def test_one_bad_server_does_not_hide_the_others_of_a_named_file(tmp_path: Path) -> None:
    here = machine(tmp_path)
    for key in ("mcpServers", "servers", "mcp", "anything.else"):
        file = put(tmp_path / f"{key}.json", {key: {"good": {"command": "demo"}, "bad": {}}})
        reading = read_file(file, here)
        wanted = [] if key == "anything.else" else ["good"]
        assert [server.name for server in reading.servers] == wanted
        assert bool(reading.notices) == bool(wanted)


def test_a_server_alone_in_a_file_is_named_after_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    reading = read_file(put(tmp_path / "time.json", {"command": "uvx", "args": ["mcp-server-time"]}), here)
    assert [server.name for server in reading.servers] == ["time"]


def test_a_named_file_can_be_read_as_a_certain_tools(tmp_path: Path) -> None:
    here = machine(tmp_path)
    file = put(tmp_path / "x.json", {"mcpServers": {"a": {"command": "demo", "args": ["$A"]}}})
    assert read_file(file, here).servers[0].entry["args"] == ["$A"]
    assert read_file(file, here, find_tool("gemini")).servers[0].entry["args"] == ["${A}"]
