"""Which servers `install --replace` switches off, and which it says stay on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.importer.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def claude(world: World) -> tuple[Path, Path]:
    """Claude Code with a server in each of its three scopes."""
    local = {str(world.project): {"mcpServers": {"mine": {"command": "l"}}, "allowedTools": []}}
    users = world.write(".claude.json", {"mcpServers": {"users": {"command": "u"}}, "projects": local})
    projects = world.project / ".mcp.json"
    projects.write_text(json.dumps({"mcpServers": {"projects": {"command": "p"}}}, indent=2), encoding="utf-8")
    return users, projects


def test_servers_of_other_scopes_are_named_with_the_scope_that_replaces_them(world: World) -> None:
    users, projects = claude(world)
    world.run("import", "claude", "--scope", "all", "--yes")
    before = projects.read_bytes()
    ran = world.run("install", "claude", "--replace", "-c", str(world.output))
    assert "removed there: users" in ran.err
    assert f"projects (project, `{projects}`)" in ran.err
    assert f"mine (local, `{users}`)" in ran.err
    assert "`--scope all` replaces them too" in ran.err
    assert projects.read_bytes() == before
    assert list(json.loads(users.read_text(encoding="utf-8"))["projects"][str(world.project)]["mcpServers"]) == [
        "mine"
    ]


def test_all_scopes_are_replaced_in_one_change_and_come_back_in_one(world: World) -> None:
    users, projects = claude(world)
    world.run("import", "claude", "--scope", "all", "--yes")
    before = [file.read_bytes() for file in (users, projects)]
    ran = world.run("install", "claude", "--replace", "--scope", "all", "-c", str(world.output))
    assert ran.code == 0, ran.err
    assert "still on" not in ran.err
    assert f"also changed: `{projects}`" in ran.err
    made = json.loads(users.read_text(encoding="utf-8"))
    assert list(made["mcpServers"]) == ["dynamic-mcp"]
    assert made["projects"][str(world.project)]["mcpServers"] == {}
    assert json.loads(projects.read_text(encoding="utf-8"))["mcpServers"] == {}
    world.run("undo", "--yes")
    assert [file.read_bytes() for file in (users, projects)] == before


def test_a_server_that_is_not_in_the_config_stays_and_is_named(world: World) -> None:
    world.cursor(a={"command": "a"}, b={"command": "b"})
    world.run("import", "cursor", "--only", "a", "--yes")
    ran = world.run("install", "cursor", "--replace", "-c", str(world.output))
    assert "removed there: a" in ran.err
    assert "not in the config: b (user, " in ran.err


def test_a_server_that_a_projects_shadows_stays_because_the_config_does_not_have_it(world: World) -> None:
    users = world.write(".claude.json", {"mcpServers": {"memory": {"command": "m"}, "other": {"command": "o"}}})
    projects = world.project / ".mcp.json"
    projects.write_text(
        json.dumps({"mcpServers": {"memory": {"command": "m", "env": {"FILE": "p"}}}}), encoding="utf-8"
    )
    world.run("import", "claude", "--scope", "all", "--yes")
    for scopes in ("user", "all"):
        ran = world.run("install", "claude", "--replace", "--scope", scopes, "-c", str(world.output))
        assert "not in the config: memory (user, " in ran.err
        assert "`dynamic-mcp import claude --scope user` imports them, or shows why not" in ran.err
    assert list(json.loads(users.read_text(encoding="utf-8"))["mcpServers"]) == ["memory", "dynamic-mcp"]
    ran = world.run("import", "claude", "--scope", "user", "--yes")
    assert "differs: memory from claude (user): env" in ran.err


def test_a_server_that_the_config_has_with_another_token_is_not_replaced(world: World) -> None:
    hub = {"command": "hub", "env": {"TOKEN": "one"}}
    world.cursor(hub=hub, other={"command": "other"})
    world.run("import", "cursor", "--yes")
    file = world.cursor(hub={**hub, "env": {"TOKEN": "two"}}, other={"command": "other"})
    ran = world.run("install", "cursor", "--replace", "-c", str(world.output))
    assert "not in the config: hub (user, " in ran.err
    assert list(json.loads(file.read_text(encoding="utf-8"))["mcpServers"]) == ["hub", "dynamic-mcp"]


def test_nothing_is_replaced_of_a_tool_that_was_not_imported(world: World) -> None:
    file = world.cursor(a={"command": "a"})
    before = file.read_bytes()
    world.write(".gemini/settings.json", {"mcpServers": {"g": {"command": "g"}}})
    world.run("import", "gemini", "--scope", "user", "--yes")
    for scope in ("user", "all"):
        ran = world.run("install", "cursor", "--replace", "--scope", scope, "-c", str(world.output))
        assert ran.code == 1
        assert f"dynamic-mcp import cursor --scope {scope}" in ran.err
        assert file.read_bytes() == before


def test_a_scope_that_was_not_imported_is_refused_with_the_one_that_was(world: World) -> None:
    users, _ = claude(world)
    world.run("import", "claude", "--scope", "project", "--yes")
    before = users.read_bytes()
    ran = world.run("install", "claude", "--replace", "-c", str(world.output))
    assert ran.code == 1
    assert "`--scope project`" in ran.err
    assert users.read_bytes() == before


def test_all_scopes_without_replace_are_refused(world: World) -> None:
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("install", "claude", "--scope", "all").code == 2


@pytest.mark.parametrize(
    ("tool", "file"),
    [
        ("gemini", ".gemini/settings.json"),
        ("kimi-code", ".kimi-code/mcp.json"),
        ("crush", ".config/crush/crush.json"),
    ],
)
def test_what_was_switched_off_for_our_entry_stays_on_in_the_config_when_it_is_imported_again(
    world: World, tool: str, file: str
) -> None:
    root = "mcp" if tool == "crush" else "mcpServers"
    world.write(file, {root: {"a": {"type": "stdio", "command": "a"}}})
    world.run("import", tool, "--scope", "user", "--yes")
    installed = world.run("install", tool, "--replace", "-c", str(world.output))
    assert "disabled there: a" in installed.err
    before = world.output.read_bytes()
    assert world.run("import", tool, "--scope", "user", "--yes").code == 0
    assert world.output.read_bytes() == before


def test_a_server_that_its_tool_had_off_from_the_first_stays_off(world: World) -> None:
    world.write(".gemini/settings.json", {"mcpServers": {"a": {"command": "a"}}, "mcp": {"excluded": ["a"]}})
    world.run("import", "gemini", "--yes")
    world.run("install", "gemini", "--replace", "-c", str(world.output))
    world.run("import", "gemini", "--yes")
    assert world.servers()["a"]["enabled"] is False
