"""A server goes on getting the environment that its tool gave it, unless a person has said otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Program
from tests.importer.world import Json, World

SHELL = {"PATH": "/bin", "AWS_PROFILE": "mine", "GITHUB_TOKEN": "t", "MY_API_KEY": "k"}
SETTINGS = "AppData/Roaming" if sys.platform == "win32" else ".config"
HUB = {"command": "hub"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def given(world: World, server: str = "hub") -> set[str]:
    """Return the names of the variables of the shell that a server is given."""
    upstream = next(group.upstream for group in read(world.output, SHELL).groups if group.name == server)
    assert isinstance(upstream, Program)
    return set(upstream.env) & set(SHELL)


@pytest.mark.parametrize(
    ("tool", "file", "names"),
    [
        ("claude", ".claude.json", set(SHELL)),
        ("qwen", ".qwen/settings.json", set(SHELL)),
        ("copilot", ".copilot/mcp-config.json", {"PATH", "AWS_PROFILE", "MY_API_KEY"}),
        ("gemini", ".gemini/settings.json", {"PATH", "AWS_PROFILE"}),
        ("claude-desktop", f"{SETTINGS}/Claude/claude_desktop_config.json", {"PATH"}),
        ("cursor", ".cursor/mcp.json", {"PATH"}),
    ],
)
def test_a_server_gets_what_its_tool_gave_it(world: World, tool: str, file: str, names: set[str]) -> None:
    world.write(file, {"mcpServers": {"hub": HUB, "web": {"url": "https://web.example.test/mcp"}}})
    assert world.run("import", tool).code == 0
    assert given(world) == names
    assert "inherit_env" not in world.servers()["web"]


def test_one_line_says_what_is_passed_on_and_how_to_pass_less(world: World) -> None:
    claude(world, **{f"s{number}": {"command": f"c{number}"} for number in range(9)})
    ran = world.run("import", "claude", "--strict")
    assert ran.code == 0, "it is no warning"
    [line] = [line for line in ran.err.splitlines() if "inherit_env" in line]
    assert "Claude Code passed on (`inherit_env` in the config)" in line
    assert "9 servers" in line
    assert "`safe`" in line
    assert "inherit_env" not in world.run("import", "claude").err, "nothing has changed"


def claude(world: World, **servers: Json) -> None:
    world.write(".claude.json", {"mcpServers": servers})


def change(world: World, **fields: Json) -> None:
    """Change fields of the server in the output, as its user would."""
    document = json.loads(world.output.read_text(encoding="utf-8"))
    server = {**document["mcpServers"]["hub"], **fields}
    document["mcpServers"]["hub"] = {key: value for key, value in server.items() if value is not None}
    world.output.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("choice", ["safe", ["AWS_*"], None])
def test_what_a_person_chose_for_a_server_stays(world: World, choice: Json) -> None:
    claude(world, hub=HUB)
    world.run("import", "claude")
    change(world, inherit_env=choice)
    claude(world, hub={**HUB, "args": ["--new"]})
    for _ in range(2):
        assert world.run("import", "claude", "--replace", "hub").code == 0
        assert world.servers()["hub"].get("inherit_env") == choice
    assert world.servers()["hub"]["args"] == ["--new"]


@pytest.mark.parametrize("settings", ['{"defaults": {"inherit_env": ["AWS_*"]}}', '{"inherit_env": ["AWS_*"]}'])
def test_what_the_defaults_choose_for_all_servers_counts(world: World, settings: str) -> None:
    world.output.write_text(f'{{"mcpServers": {{}}, "settings": {settings}}}', encoding="utf-8")
    claude(world, hub=HUB)
    for _ in range(2):
        assert world.run("import", "claude").code == 0
        assert "inherit_env" not in world.servers()["hub"]


def test_a_server_that_a_person_wrote_keeps_its_environment(world: World) -> None:
    world.output.write_text('{"mcpServers": {"hub": {"command": "hub"}}}', encoding="utf-8")
    claude(world, hub=HUB)
    ran = world.run("import", "claude", "--yes")
    assert "differs" not in ran.err
    assert "inherit_env" not in world.servers()["hub"]
    assert "`hub` gets less of your environment than Claude Code passes on" in ran.err


@pytest.mark.parametrize("tools", [["codex", "claude"], ["claude", "codex"]])
def test_of_two_tools_the_one_that_passes_more_counts_and_it_is_said(world: World, tools: list[str]) -> None:
    world.write(".codex/config.toml", '[mcp_servers.hub]\ncommand = "hub"\n')
    claude(world, hub=HUB)
    ran = world.run("import", *tools)
    assert world.servers()["hub"]["inherit_env"] == "all"
    assert "`hub` comes from two tools, and gets the environment variables that Claude Code passes on;" in ran.err
    assert "; Codex passes on fewer" in ran.err
    before = world.output.read_bytes()
    for order in (tools, tools[::-1]):
        assert world.run("import", *order).code == 0
        assert world.output.read_bytes() == before


def test_a_tool_that_passes_more_does_not_change_what_a_person_chose(world: World) -> None:
    world.write(".codex/config.toml", '[mcp_servers.hub]\ncommand = "hub"\n')
    world.run("import", "codex")
    change(world, inherit_env=["AWS_*"])
    claude(world, hub=HUB)
    assert world.run("import", "claude").code == 0
    assert world.servers()["hub"]["inherit_env"] == ["AWS_*"]
