"""No server of a tool is lost: what two scopes or two tools have is one server only where it behaves as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from tests.importer.world import Json, World

MEMORY = {"command": "mcp-server-memory"}
OF_PROJECT = {"command": "mcp-server-memory", "env": {"MEMORY_FILE_PATH": "./memory.json"}}
WEB = {"url": "https://web.example.test/mcp"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def claude(world: World, *, user: Json = None, project: Json = None, local: Json = None) -> None:
    """Write what Claude Code has in each scope."""
    part = {str(world.project): {"mcpServers": local or {}}}
    world.write(".claude.json", {"mcpServers": user or {}, "projects": part})
    if project is not None:
        world.write("../project/.mcp.json", {"mcpServers": project})


def test_one_program_with_other_variables_is_another_server(world: World) -> None:
    claude(world, user={"memory": MEMORY}, project={"notes": OF_PROJECT})
    assert world.run("import", "claude", "--scope", "all").code == 0
    assert {name: entry.get("env") for name, entry in world.servers().items()} == {
        "notes": OF_PROJECT["env"],
        "memory": None,
    }


def test_one_address_with_other_headers_is_another_server(world: World) -> None:
    world.cursor(web={**WEB, "headers": {"X-Workspace": "a"}})
    world.write(".gemini/settings.json", {"mcpServers": {"web": {**WEB, "headers": {"X-Workspace": "b"}}}})
    assert world.run("import", "cursor", "gemini").code == 0
    headers = {name: entry["headers"]["X-Workspace"] for name, entry in world.servers().items()}
    assert headers == {"web": "a", "web-gemini": "b"}


def test_headers_of_the_same_name_in_other_letters_and_a_bridge_with_them_are_one_server(world: World) -> None:
    bridge = {"command": "npx", "args": ["mcp-remote", WEB["url"], "--header", "X-Key:${KEY}"], "env": {"KEY": "k"}}
    world.cursor(web={**WEB, "headers": {"x-key": "k"}})
    world.write(".gemini/settings.json", {"mcpServers": {"bridge": bridge, "other": {**bridge, "env": {"KEY": "l"}}}})
    assert world.run("import", "cursor", "gemini").code == 0
    assert list(world.servers()) == ["web", "other"]
    assert world.servers()["web"] == {**world.servers()["web"], **WEB, "headers": {"x-key": "k"}}
    again = world.run("import", "cursor", "gemini", "--dry-run", "--force").err
    warnings = [line for line in again.splitlines() if line.startswith("warning: gemini/user/bridge")]
    assert [line for line in warnings if "stays" in line or "environment" in line] == []
    assert read(world.output, {}).groups


def test_a_secret_is_the_same_written_out_and_by_the_variable_that_holds_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "s3cret-of-mine")
    world.cursor(hub={"command": "hub", "env": {"TOKEN": "s3cret-of-mine"}})
    world.write(".qwen/settings.json", {"mcpServers": {"hub": {"command": "hub", "env": {"TOKEN": "${HUB_TOKEN}"}}}})
    world.write(".claude.json", {"mcpServers": {"hub": {"command": "hub", "env": {"TOKEN": "another"}}}})
    assert world.run("import", "cursor", "qwen", "claude", "--secrets", "env").code == 0
    assert list(world.servers()) == ["hub", "hub-claude"]


def test_what_a_scope_shadows_in_its_tool_is_named_with_the_reason(world: World) -> None:
    claude(world, user={"memory": MEMORY, "web": WEB}, project={"memory": OF_PROJECT})
    ran = world.run("import", "claude", "--scope", "all")
    assert ran.code == 0
    assert world.servers()["memory"]["env"] == OF_PROJECT["env"]
    assert set(world.servers()) == {"memory", "web"}
    assert "skipped: memory from claude (user): " in ran.err
    assert str(world.project / ".mcp.json") in ran.err


def test_what_a_user_has_for_one_project_comes_before_what_the_project_has(world: World) -> None:
    claude(world, project={"memory": OF_PROJECT}, local={"memory": MEMORY})
    ran = world.run("import", "claude", "--scope", "all")
    assert "env" not in world.servers()["memory"]
    assert "skipped: memory from claude (project): " in ran.err


def test_a_server_of_the_project_that_the_user_has_refused_shadows_nothing(world: World) -> None:
    claude(world, user={"memory": MEMORY}, project={"memory": OF_PROJECT})
    world.write(".claude/settings.json", {"disabledMcpjsonServers": ["memory"]})
    assert world.run("import", "claude", "--scope", "all").code == 0
    enabled = {name: entry.get("enabled", True) for name, entry in world.servers().items()}
    assert enabled == {"memory": False, "memory-claude": True}


def test_the_same_server_of_another_tool_is_named_with_the_one_that_it_is(world: World) -> None:
    world.cursor(web=WEB)
    world.write(".gemini/settings.json", {"mcpServers": {"site": {"httpUrl": WEB["url"] + "/", "timeout": 5000}}})
    ran = world.run("import", "cursor", "gemini")
    assert list(world.servers()) == ["web"]
    assert "same: site from gemini (user), which is `web` from cursor (user)" in ran.err


def test_a_field_that_two_scopes_of_one_tool_differ_in_is_not_said_to_be_another_tools(world: World) -> None:
    claude(world, user={"a": {**MEMORY, "timeout": 1000}}, project={"a": {**MEMORY, "timeout": 2000}})
    ran = world.run("import", "claude", "--scope", "all")
    assert "claude/user/a.timeout.tools: `a` keeps the value from claude (project), which differs" in ran.err


def test_a_server_that_was_there_before_any_import_is_the_one_of_its_name(world: World) -> None:
    world.output.write_text(
        '{"mcpServers": {"memory": {"command": "mcp-server-memory", "env": {"A": "mine"}}}}', encoding="utf-8"
    )
    world.cursor(memory=MEMORY)
    assert world.run("import", "cursor", "--yes").code == 0
    assert world.servers()["memory"]["env"] == {"A": "mine"}
    assert list(world.servers()) == ["memory"]


def test_a_server_that_the_user_has_changed_is_still_the_one_that_it_was(world: World) -> None:
    world.cursor(hub=OF_PROJECT)
    world.run("import", "cursor")
    world.output.write_text(
        world.output.read_text(encoding="utf-8").replace("./memory.json", "/mine.json"), encoding="utf-8"
    )
    world.write(".gemini/settings.json", {"mcpServers": {"hub": OF_PROJECT}})
    assert world.run("import", "gemini").code == 0
    assert {name: entry["env"]["MEMORY_FILE_PATH"] for name, entry in world.servers().items()} == {
        "hub": "/mine.json"
    }


def test_servers_of_the_user_that_a_projects_file_hides_are_counted_with_the_command_for_them(world: World) -> None:
    claude(world, user={"a": MEMORY, "b": WEB}, project={"c": OF_PROJECT})
    ran = world.run("import", "claude")
    assert list(world.servers()) == ["c"]
    assert "claude/user: 2 servers are left out" in ran.err
    command = "dynamic-mcp import claude --scope all"
    assert f"`{command}`" in ran.err
    assert world.run(*command.split()[1:]).code == 0
    assert set(world.servers()) == {"a", "b", "c"}


def test_a_file_that_another_tool_reads_too_is_left_out_with_its_owner(world: World) -> None:
    world.write(".copilot/mcp-config.json", {"mcpServers": {"a": {**MEMORY, "env": {"T": "$T"}}, "off": MEMORY}})
    world.write(".copilot/settings.json", {"disabledMcpServers": ["off"]})
    claude(world, project={"c": OF_PROJECT})
    ran = world.run("import", "--all", "--yes")
    assert list(world.servers()) == ["c"]
    assert "copilot-cli/user: 2 servers are left out: `dynamic-mcp import copilot-cli --scope all`" in ran.err


def test_without_a_projects_file_nothing_is_left_out(world: World) -> None:
    claude(world, user={"a": MEMORY})
    assert "left out" not in world.run("import", "claude").err


def test_a_server_that_gets_another_name_from_its_neighbours_stays_one_entry(world: World) -> None:
    world.write("../project/config.toml", '[mcp]\nsse_servers = ["https://s.example.test/x"]\n')
    world.run("import", "openhands")
    world.write(
        "../project/config.toml", '[mcp]\nsse_servers = ["https://s.example.test/y", "https://s.example.test/x"]\n'
    )
    assert world.run("import", "openhands").code == 0
    assert {name: entry["url"] for name, entry in world.servers().items()} == {
        "s-example-test": "https://s.example.test/x",
        "s-example-test-y": "https://s.example.test/y",
    }
    world.write("../project/config.toml", '[mcp]\nsse_servers = ["https://s.example.test/y"]\n')
    assert world.run("import", "openhands").code == 0
    assert {name: entry["url"] for name, entry in world.servers().items()} == {
        "s-example-test": "https://s.example.test/x",
        "s-example-test-y": "https://s.example.test/y",
    }


def test_scopes_can_be_imported_again_and_change_no_byte(world: World) -> None:
    claude(
        world, user={"memory": MEMORY, "web": WEB}, project={"memory": OF_PROJECT}, local={"web": WEB, "x": MEMORY}
    )
    world.cursor(memory={**MEMORY, "env": {"A": "1"}}, hub={**WEB, "headers": {"A": "b"}})
    for _ in range(2):
        before = world.output.read_bytes() if world.output.exists() else b""
        assert world.run("import", "claude", "cursor", "--scope", "all").code == 0
    assert world.output.read_bytes() == before
