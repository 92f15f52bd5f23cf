"""What our entry asks of a tool: variables that it would withhold, and tools that it would hide from the model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.importer.formats.documents import parse_document
from dynamic_mcp.importer.installer import find_target
from dynamic_mcp.importer.model import ToolScope
from dynamic_mcp.importer.reader import find_tool
from tests.importer.world import Json, World

EV = {"command": "ev", "env": {"EVTOK": "${EVTOK}"}}
REMOTE = {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${MY_BEARER}"}}
PLAIN = {"command": "x", "args": ["${HOME}/a"]}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def config(world: World, **servers: Json) -> None:
    world.output.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


def entry(tool: str) -> Json:
    file = find_target(find_tool(tool), ToolScope.USER, local_machine(None)).file
    made: Json = parse_document(file, file.read_bytes()).get(())
    for key in ("mcpServers", "mcp_servers", "mcp"):
        if key in made:
            return made[key]["dynamic-mcp"]
    raise AssertionError(made)


@pytest.mark.parametrize(
    ("tool", "field", "expected"),
    [
        ("codex", "env_vars", ["EVTOK", "MY_BEARER"]),
        ("gemini", "env", {"EVTOK": "$EVTOK", "MY_BEARER": "$MY_BEARER"}),
        ("roo-code", "env", {"EVTOK": "${env:EVTOK}", "MY_BEARER": "${env:MY_BEARER}"}),
        ("hermes", "env", {"EVTOK": "${EVTOK}", "MY_BEARER": "${MY_BEARER}"}),
        ("claude", "env", None),
        ("opencode", "environment", None),
        ("qwen-code", "env", None),
    ],
)
def test_the_entry_asks_for_what_the_config_needs_and_the_tool_withholds(
    world: World, tool: str, field: str, expected: Json
) -> None:
    config(world, ev=EV, remote=REMOTE, plain=PLAIN)
    ran = world.run("install", tool)
    assert ran.code == 0, ran.err
    assert entry(tool).get(field) == expected
    assert ("asked to pass on: EVTOK, MY_BEARER" in ran.err) is (expected is not None)


@pytest.mark.parametrize("tool", ["codex", "gemini"])
def test_installing_again_adds_what_the_config_needs_by_now_and_undo_takes_just_that_out(
    world: World, tool: str
) -> None:
    config(world, ev=EV)
    world.run("install", tool)
    file = find_target(find_tool(tool), ToolScope.USER, local_machine(None)).file
    first = file.read_bytes()
    config(world, ev=EV, remote=REMOTE)
    ran = world.run("install", tool)
    assert "asked to pass on: MY_BEARER" in ran.err
    made = entry(tool)
    assert list(made.get("env_vars") or made["env"]) == ["EVTOK", "MY_BEARER"]
    second = file.read_bytes()
    assert "already has the entry" in world.run("install", tool).err
    assert file.read_bytes() == second
    world.run("undo", "--yes")
    assert file.read_bytes() == first
    world.run("undo", "--yes")
    assert not file.exists()


def test_uninstalling_takes_out_what_several_installations_brought(world: World) -> None:
    text = '# mine\nmodel = "x"\n'
    file = world.write(".codex/config.toml", text)
    for servers in ({"ev": EV}, {"ev": EV, "remote": REMOTE}):
        config(world, **servers)
        world.run("install", "codex")
    file.write_text(file.read_text(encoding="utf-8") + "\n[later]\nx = 1\n", encoding="utf-8")
    assert world.run("uninstall", "codex").code == 0
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {"model": "x", "later": {"x": 1}}
    assert file.read_text(encoding="utf-8").startswith(text)


def test_what_a_user_wrote_into_our_entry_stays_when_it_is_installed_again(world: World) -> None:
    text = (
        '[mcp_servers.dynamic-mcp]\ncommand = "old" # mine\nargs = []\nstartup_timeout_sec = 99 # long\n'
        'env_vars = ["OTHER"]\nenabled = true\n'
    )
    file = world.write(".codex/config.toml", text)
    config(world, ev=EV)
    assert world.run("install", "codex").code == 0
    made = tomllib.loads(file.read_text(encoding="utf-8"))["mcp_servers"]["dynamic-mcp"]
    assert made["env_vars"] == ["OTHER", "EVTOK"]
    assert made["args"] == [str(world.output)]
    assert "startup_timeout_sec = 99 # long" in file.read_text(encoding="utf-8")
    world.run("undo", "--yes")
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("tool", ["claude-desktop", "copilot-cli"])
def test_a_tool_that_cannot_be_asked_is_said_to_withhold_them(world: World, tool: str) -> None:
    config(world, ev={"command": "ev", "env": {"T": "${GITHUB_TOKEN}"}})
    ran = world.run("install", tool)
    assert "cannot ask for GITHUB_TOKEN" in ran.err
    assert "env" not in entry(tool)


def test_servers_that_want_every_variable_are_said_to_get_only_what_the_tool_passes(world: World) -> None:
    config(world, all={"command": "x", "inherit_env": "all"})
    assert "get no more than that: all" in world.run("install", "codex").err
    assert "get no more" not in world.run("install", "claude").err


def test_servers_that_want_no_more_than_the_tool_passes_are_not_warned_of(world: World) -> None:
    world.write(".gemini/settings.json", {"mcpServers": {"own": {"command": "g"}}})
    world.run("import", "gemini", "--yes")
    assert "get no more" not in world.run("install", "gemini", "-c", str(world.output)).err
    config(world, all={"command": "x", "inherit_env": "all"}, most={"command": "y", "inherit_env": ["*", "!A"]})
    assert "get no more than that: all, most" in world.run("install", "gemini").err


@pytest.mark.parametrize(("tool", "field"), [("claude", "alwaysLoad"), ("qwen-code", "alwaysLoadTools")])
def test_the_two_tools_stay_in_the_models_sight_unless_a_user_says_otherwise(
    world: World, tool: str, field: str
) -> None:
    config(world, plain=PLAIN)
    world.run("install", tool)
    assert entry(tool)[field] is True
    file = find_target(find_tool(tool), ToolScope.USER, local_machine(None)).file
    file.write_bytes(file.read_bytes().replace(b"true", b"false"))
    before = file.read_bytes()
    assert "already has the entry" in world.run("install", tool).err
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "settings", [{"settings": {"defaults": {"direct": "auto"}}}, {"profiles": {"p": {"direct": "auto"}}}]
)
@pytest.mark.parametrize(("tool", "field"), [("claude", "alwaysLoad"), ("qwen-code", "alwaysLoadTools")])
def test_a_tool_that_is_listed_all_tools_may_hide_them_behind_its_search(
    world: World, tool: str, field: str, settings: Json
) -> None:
    config(world, plain=PLAIN)
    options = ["--profile", "p"] if "profiles" in settings else []
    world.run("install", tool)  # while the two tools were to stay in sight
    world.output.write_text(json.dumps({"mcpServers": {"plain": PLAIN}, **settings}), encoding="utf-8")

    ran = world.run("install", tool, *options)

    assert '`"direct": "auto"` lists' in ran.err
    assert field not in entry(tool)


@pytest.mark.parametrize(("tool", "field"), [("claude", "alwaysLoad"), ("qwen-code", "alwaysLoadTools")])
@pytest.mark.parametrize(
    ("url", "is_named", "may_hide"),
    [
        ("http://127.0.0.1:8000/mcp", False, True),
        ("https://mcp.example.com/mcp", False, False),
        ("https://mcp.example.com/mcp", True, True),
    ],
)
def test_an_entry_with_a_url_goes_by_the_config_that_is_known_to_be_served_there(
    world: World, tool: str, field: str, url: str, *, is_named: bool, may_hide: bool
) -> None:
    settings = {"defaults": {"direct": "auto"}}
    world.output.write_text(json.dumps({"mcpServers": {"plain": PLAIN}, "settings": settings}), encoding="utf-8")

    ran = world.run("install", tool, "--url", url, *(["-c", str(world.output)] if is_named else []))

    assert ran.code == 0, ran.err
    assert (field not in entry(tool)) is may_hide
    assert ('`"direct": "auto"` lists' in ran.err) is may_hide


def test_a_tool_that_is_not_known_to_search_is_said_to_get_the_two_tools(world: World) -> None:
    settings = {"defaults": {"direct": "auto"}}
    world.output.write_text(json.dumps({"mcpServers": {"plain": PLAIN}, "settings": settings}), encoding="utf-8")

    assert "gives Gemini CLI the two tools, since it puts all listed" in world.run("install", "gemini").err
    assert "gives Cursor the two tools, since it tells its model the names" in world.run("install", "cursor").err
    assert "gives Windsurf the two tools, since it is not known" in world.run("install", "windsurf").err
    config(world, plain=PLAIN)
    assert "the two tools" not in world.run("install", "gemini").err


def test_a_config_that_is_wrong_is_installed_with_a_word_about_its_variables(world: World) -> None:
    world.output.write_text('{"mcpServers": {"a": {}}}', encoding="utf-8")
    ran = world.run("install", "codex")
    assert ran.code == 0
    assert "variables that it needs are not known" in ran.err


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_what_an_installed_tool_withholds_by_now_is_found_with_the_command_that_mends_it(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    config(world)
    for tool in ("codex", "gemini", "claude", "claude-desktop"):
        world.run("install", tool)
    clean = world.run(command, "--json").out
    assert " not pass " not in clean
    monkeypatch.setenv("MY_BEARER", "set")
    config(world, remote={**REMOTE, "url": "http://127.0.0.1:1/mcp"})
    found = world.run(command, "--json").json()
    findings = found if command == "check" else found["findings"]
    hints = {each["what"].partition(" pass `MY_BEARER`")[0]: each["hint"] for each in findings[1:]}
    assert hints["Codex does not"] == "run `dynamic-mcp install codex`"
    assert hints["Gemini CLI may not"] == "run `dynamic-mcp install gemini`"
    assert "variables_file" in hints["Claude Desktop does not"]
    assert "Claude Code does not" not in hints
    for tool in ("codex", "gemini"):
        world.run("install", tool)
    assert "Codex does not" not in world.run(command, "--json").out
    assert "Gemini CLI may not" not in world.run(command, "--json").out


def test_the_command_that_mends_names_the_scope_and_the_config_where_they_are_not_the_usual(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.project / "other.json"
    other.write_text('{"mcpServers": {}}', encoding="utf-8")
    world.run("install", "codex", "--scope", "project", "-c", str(other))
    other.write_text(json.dumps({"mcpServers": {"ev": EV}}), encoding="utf-8")
    command = f"dynamic-mcp install codex --scope project -c {other}"
    assert f"run `{json.dumps(command)[1:-1]}`" in world.run("check", str(other)).out
