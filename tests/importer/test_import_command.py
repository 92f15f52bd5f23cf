from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.system import paths
from tests.importer.world import World

TOKEN = "ghp_0123456789abcdef0123456789"
GITHUB = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_TOKEN": TOKEN}}
TIME = {"command": "uvx", "args": ["mcp-server-time"]}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


def test_an_import_makes_a_config_that_serves(world: World) -> None:
    world.cursor(github=GITHUB, time=TIME)
    ran = world.run("import", "cursor")
    assert ran.code == 0
    config = read(world.output, os.environ)
    assert [group.name for group in config.groups] == ["github", "time"]
    assert all(shown.description for shown in config.presentations.values())


def test_a_repeated_import_changes_no_byte(world: World) -> None:
    world.cursor(github=GITHUB, time=TIME)
    world.run("import", "cursor")
    before, when = world.output.read_bytes(), world.output.stat().st_mtime_ns
    ran = world.run("import", "cursor")
    assert ran.code == 0
    assert (world.output.read_bytes(), world.output.stat().st_mtime_ns) == (before, when)
    assert "nothing to write" in ran.err


def test_a_server_that_is_there_with_other_content_is_shown_and_stays_until_it_is_replaced(world: World) -> None:
    world.cursor(github=GITHUB, time=TIME)
    world.run("import", "cursor")
    text = world.output.read_text(encoding="utf-8")
    text = text.replace('  "mcpServers": {', '  // mine\n  "mcpServers": {')
    text = text.replace('"command": "uvx",', '"tools": {"include": ["get_*"]}, // few\n      "command": "uvx",')
    world.output.write_text(text, encoding="utf-8")
    world.cursor(github={**GITHUB, "args": ["-y", "@modelcontextprotocol/server-github", "--new"]}, time=TIME)

    ran = world.run("import", "cursor", "--json")

    assert [(server["action"], server["fields"]) for server in ran.json()["servers"]] == [
        ("differs", ["args"]),
        ("same", []),
    ]
    assert '    +    "--new"' in ran.err
    assert "`--replace NAME` takes the tool's server" in ran.err
    assert world.output.read_text(encoding="utf-8") == text

    assert world.run("import", "cursor", "--replace", "git*").code == 0
    assert world.output.read_text(encoding="utf-8") == text.replace('server-github"]', 'server-github", "--new"]')
    assert world.run("import", "cursor", "--json").json()["servers"][0]["action"] == "same"


def test_a_replace_keeps_the_settings_of_the_config_and_shows_all_that_it_takes_away(world: World) -> None:
    world.cursor(hub={"command": "hub", "args": ["a"], "env": {"A": "1"}})
    world.run("import", "cursor")
    mine = {
        "description": "mine",
        "command": "hub",
        "args": ["a"],
        "env": {"A": "1", "B": "mine"},
        "cwd": "/here",
        "enabled": False,
        "tools": {"include": ["x"]},
        "x-note": "own",
    }
    world.output.write_text(json.dumps({"mcpServers": {"hub": mine}}, indent=2), encoding="utf-8")
    world.cursor(hub={"command": "hub", "args": ["b"], "env": {"A": "2"}})

    ran = world.run("import", "cursor", "--dry-run", "--replace", "hub")

    assert "replaced: hub from cursor (user): args, env.A, env.B, cwd" in ran.err
    lines = [line for line in ran.out.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert [each for each in ('"B": "mine"', '"cwd": "/here"') if not any(each in line for line in lines)] == []
    world.run("import", "cursor", "--replace", "hub")
    assert world.servers()["hub"] == {
        **{key: value for key, value in mine.items() if key != "cwd"},
        "args": ["b"],
        "env": {"A": "2"},
    }


def test_the_same_server_of_two_tools_is_one_and_different_ones_of_a_name_are_two(world: World) -> None:
    world.cursor(gh={**GITHUB, "args": ["@modelcontextprotocol/server-github@latest"]}, db={"command": "one-db"})
    world.write(".gemini/settings.json", {"mcpServers": {"github": GITHUB, "db": {"command": "other-db"}}})
    world.run("import", "cursor", "gemini")
    commands = {name: entry["command"] for name, entry in world.servers().items()}
    assert commands == {"gh": "npx", "db": "one-db", "db-gemini": "other-db"}
    before = world.output.read_bytes()
    world.run("import", "gemini")
    assert world.output.read_bytes() == before


def test_two_accounts_of_one_server_stay_two(world: World) -> None:
    other = {**GITHUB, "env": {"GITHUB_TOKEN": TOKEN[::-1]}}
    world.cursor(work=GITHUB, home=other)
    world.run("import", "cursor")
    assert {name: entry["env"]["GITHUB_TOKEN"] for name, entry in world.servers().items()} == {
        "work": TOKEN,
        "home": TOKEN[::-1],
    }


@pytest.mark.not_in_wine("there is no git; with one it is the same on Windows")
def test_the_output_is_private_when_it_holds_a_secret_and_git_is_thought_of(world: World) -> None:
    subprocess.run(["git", "init", "-q", str(world.project)], check=True)
    world.cursor(github=GITHUB)
    ran = world.run("import", "cursor")
    assert sys.platform == "win32" or stat.S_IMODE(world.output.stat().st_mode) == 0o600
    assert "git work tree" in ran.err
    (world.project / ".gitignore").write_text("dynamic-mcp.json\n", encoding="utf-8")
    assert "git work tree" not in world.run("import", "cursor").err


@pytest.mark.not_in_wine("there is no git; with one it is the same on Windows")
def test_a_repository_cannot_make_git_run_anything(world: World) -> None:
    subprocess.run(["git", "init", "-q", str(world.project)], check=True)
    trap = world.project / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {world.project}/sprung\n", encoding="utf-8")
    trap.chmod(0o755)
    subprocess.run(["git", "-C", str(world.project), "config", "core.fsmonitor", str(trap)], check=True)
    world.cursor(github=GITHUB)
    world.run("import", "cursor")
    assert not (world.project / "sprung").exists()


def test_no_secret_is_shown_anywhere(world: World) -> None:
    world.cursor(
        github=GITHUB,
        args={"command": "x", "args": ["--api-key", "open-sesame-1", "--token=open-sesame-2"]},
        web={
            "url": "https://u:open-sesame-3@host/x?api_key=open-sesame-4",
            "headers": {"X-Api-Key": "open-sesame-5"},
        },
    )
    shown = [world.run("import", "cursor", *more) for more in ([], ["--json"], ["--dry-run", "--force"], ["--list"])]
    shown.append(world.run("import", "cursor", "--secrets", "fail"))
    shown.append(world.run("install", "cursor", "--replace", "--dry-run"))
    for ran in shown:
        assert "open-sesame" not in ran.out + ran.err
        assert TOKEN not in ran.out + ran.err
    assert "open-sesame-4" in world.output.read_text(encoding="utf-8"), "what is not shown is written all the same"


def test_a_token_is_shown_nowhere_whatever_field_it_is_in(world: World) -> None:
    world.cursor(
        args={"command": "x", "args": ["serve", TOKEN, "/srv/data"]},
        header={"command": "x", "args": ["--header", f"X-Team: {TOKEN}"]},
        kind={"url": "https://host", "type": TOKEN},
        path={"url": f"https://host/{TOKEN}/mcp"},
        command={"command": f"x {TOKEN}"},
    )
    shown = [world.run("import", "cursor", *more) for more in (["--dry-run"], ["--json"], [], ["--list"])]
    for ran in shown:
        assert TOKEN not in ran.out + ran.err
    assert '"/srv/data"' in shown[0].out
    assert "`***` is an unknown type" in shown[0].err


def test_secrets_move_into_a_private_file_and_serve_from_there(world: World) -> None:
    world.cursor(github=GITHUB, web={"url": "https://host", "headers": {"Authorization": "Bearer it's \\ me"}})
    world.run("import", "cursor", "--secrets", "env")
    file = world.project / "dynamic-mcp.env"
    assert sys.platform == "win32" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TOKEN not in world.output.read_text(encoding="utf-8")
    config = read(world.output, {})
    assert isinstance(config.groups[0].upstream, Program)
    assert config.groups[0].upstream.env["GITHUB_TOKEN"] == TOKEN
    assert config.groups[1].upstream.headers == {"Authorization": "Bearer it's \\ me"}  # type: ignore[union-attr]
    before = world.output.read_bytes(), file.read_bytes()
    world.run("import", "cursor", "--secrets", "env")
    assert (world.output.read_bytes(), file.read_bytes()) == before


def test_a_secret_that_changes_at_its_source_is_named_and_replaced_in_the_private_file(world: World) -> None:
    world.cursor(github=GITHUB)
    world.run("import", "cursor", "--secrets", "env")
    before = world.output.read_bytes()
    world.cursor(github={**GITHUB, "env": {"GITHUB_TOKEN": TOKEN[::-1]}})
    ran = world.run("import", "cursor", "--secrets", "env")
    assert "differs: github from cursor (user): env.GITHUB_TOKEN" in ran.err
    assert TOKEN[::-1] not in ran.err
    assert (world.project / "dynamic-mcp.env").read_text(encoding="utf-8") == f"GITHUB_TOKEN='{TOKEN}'\n"
    world.run("import", "cursor", "--secrets", "env", "--replace", "github")
    assert world.output.read_bytes() == before
    assert (world.project / "dynamic-mcp.env").read_text(encoding="utf-8") == f"GITHUB_TOKEN='{TOKEN[::-1]}'\n"


def test_a_secret_that_was_moved_is_the_one_that_its_tool_has_in_plain_text(world: World) -> None:
    keys = {"command": "x", "args": ["--api-key", "open-sesame-1"]}
    world.cursor(github=GITHUB, keys=keys)
    world.run("import", "cursor", "--secrets", "env")
    before = world.output.read_bytes()
    assert world.run("import", "cursor").code == 0
    assert world.output.read_bytes() == before
    ran = world.run("install", "cursor", "--replace", "-c", str(world.output))
    assert "removed there: github, keys" in ran.err


def test_secrets_fail_writes_nothing(world: World) -> None:
    world.cursor(github=GITHUB)
    ran = world.run("import", "cursor", "--secrets", "fail")
    assert ran.code == 1
    assert "env.GITHUB_TOKEN" in ran.err
    assert not world.output.exists()


def test_strict_takes_a_warning_as_an_error(world: World) -> None:
    world.cursor(time={**TIME, "alwaysAllow": ["now"]})
    ran = world.run("import", "cursor", "--strict")
    assert ran.code == 1
    assert "cursor/user/time.alwaysAllow: " in ran.err
    assert not world.output.exists()
    assert world.run("import", "cursor").code == 0


def test_one_broken_file_among_ten_costs_the_others_nothing(world: World) -> None:
    tools = {
        ".cursor/mcp.json": "cursor",
        ".codeium/windsurf/mcp_config.json": "windsurf",
        ".gemini/settings.json": "gemini",
        ".gemini/config/mcp_config.json": "antigravity",
        ".kiro/settings/mcp.json": "kiro",
        ".qwen/settings.json": "qwen-code",
        ".iflow/settings.json": "iflow",
        ".factory/mcp.json": "factory-droid",
        ".lmstudio/mcp.json": "lm-studio",
    }
    for file, tool in tools.items():
        world.write(file, {"mcpServers": {tool: {"command": f"{tool}-server"}}})
    world.write(".claude.json", '{"mcpServers": {\n  "a": {"command": }\n}}')
    ran = world.run("import", "--all", "--yes")
    assert ran.code == 4
    assert set(world.servers()) == set(tools.values())
    assert ".claude.json: line 2, column 20" in ran.err


def test_a_server_that_cannot_be_used_costs_the_others_nothing(world: World) -> None:
    world.cursor(bad={"command": "x", "env": {"A=B": "1"}}, worse={"args": []}, good=TIME)
    ran = world.run("import", "cursor")
    assert "good" in world.servers()
    assert read(world.output, {}).groups
    assert "worse" in ran.err


@pytest.mark.parametrize(
    ("text", "where"),
    [('{"mcpServers": {]', "column 17"), ("[]", "not an object"), ('{"mcpServers": 1}', "not an object of servers")],
)
def test_an_output_that_cannot_be_merged_into_stays_as_it_is(world: World, text: str, where: str) -> None:
    world.cursor(time=TIME)
    world.output.write_text(text, encoding="utf-8")
    ran = world.run("import", "cursor", "--yes")
    assert ran.code == 2
    assert where in ran.err
    assert world.output.read_text(encoding="utf-8") == text


def test_nothing_found_is_3_and_says_where_was_looked(world: World) -> None:
    ran = world.run("import", "cursor")
    assert ran.code == 3
    assert str(world.home / ".cursor" / "mcp.json") in ran.err
    assert world.run("import", "--all", "--yes").code == 3


@pytest.mark.parametrize(
    "args", [["nosuch"], [], ["--scope", "x"], ["cursor", "--all"], ["cursor", "-g", "--scope", "project"]]
)
def test_a_wrong_command_line_is_2(world: World, args: list[str]) -> None:
    assert world.run("import", *args).code == 2


def test_a_dry_run_and_a_list_write_nothing(world: World) -> None:
    world.cursor(time=TIME)
    assert '+      "command": "uvx"' in world.run("import", "cursor", "--dry-run").out
    assert world.run("import", "--list").json()["servers"][0]["action"] == "new"
    assert not world.output.exists()
    assert world.run("undo", "--yes").code == 2


def test_only_exclude_and_skip_disabled_choose(world: World) -> None:
    world.cursor(a1=TIME, a2={"command": "b"}, b1={"command": "c"}, a3={"command": "d", "disabled": True})
    world.run("import", "cursor", "--only", "a*", "--exclude", "*2", "--skip-disabled")
    assert list(world.servers()) == ["a1"]
    world.run("import", "cursor")
    assert world.servers()["a3"]["enabled"] is False


def test_piped_answers_go_in_the_order_of_the_reference(world: World) -> None:
    world.cursor(b={"command": "x"}, a={"command": "y"})
    ran = world.run("import", "cursor", stdin="first\ny\nsecond\nn\ny\nn\n\n")
    assert ran.code == 0
    assert world.servers() == {
        "a": {"description": "first", "command": "y"},
        "b": {"description": "second", "command": "x", "features": {"resources": False}},
    }
    kept = world.output.read_bytes()
    assert world.run("import", "cursor", stdin="n\n").code == 1
    assert world.run("import", "cursor", stdin="y\n\n").code == 1, "an empty description"
    assert world.run("import", "cursor", "--force", stdin="only one\n").code == 1, "too few answers"
    assert world.output.read_bytes() == kept
    assert world.run("import", "cursor", stdin="y\nother\ny\nnew\ny\n").code == 0
    assert world.servers()["a"]["description"] == "other"


def test_an_import_can_be_undone_and_done_again(world: World) -> None:
    world.cursor(github=GITHUB)
    world.output.write_text('{"mcpServers": {"mine": {"command": "x"}}} // end\n', encoding="utf-8")
    before = world.output.read_bytes()
    world.run("import", "cursor", "--secrets", "env")
    after = world.output.read_bytes()
    assert world.run("undo", "--yes").code == 0
    assert world.output.read_bytes() == before
    assert not (world.project / "dynamic-mcp.env").exists()
    world.run("import", "cursor", "--secrets", "env")
    assert world.output.read_bytes() == after


def test_undoing_an_import_keeps_what_was_added_to_the_config_later(world: World) -> None:
    world.cursor(github=GITHUB, time=TIME)
    world.run("import", "cursor")
    assert world.run("add", "later", "--", "prog").code == 0
    ran = world.run("undo", "--yes")
    assert ran.code == 0
    assert f"`{world.output}` was restored; what has changed in it since stays" in ran.err
    assert world.servers() == {"later": {"command": "prog"}}


def test_an_import_is_not_undone_if_what_it_wrote_has_changed_since(world: World) -> None:
    world.cursor(github=GITHUB, time=TIME)
    world.run("import", "cursor")
    assert world.run("disable", "time").code == 0
    before = world.output.read_bytes()
    ran = world.run("undo", "--yes")
    assert ran.code == 1
    assert f"`{world.output}` has changed since import cursor (1), so nothing was undone" in ran.err
    assert world.output.read_bytes() == before


def test_a_live_server_describes_itself_but_not_a_projects_without_trust(world: World) -> None:
    server = Path(__file__).parent.parent / "upstreams" / "full.py"
    entry = {"command": sys.executable, "args": [str(server)]}
    folder = world.project / ".cursor"
    folder.mkdir()
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"live": entry}}), encoding="utf-8")
    ran = world.run("import", "cursor", "--describe", "server", "--output", "no.json")
    assert "--trust" in ran.err
    ran = world.run("import", "cursor", "--describe", "server", "--trust")
    assert ran.code == 0, ran.err
    assert not world.servers()["live"]["description"].startswith("Tools from")


@pytest.mark.posix_only("links need a privilege on Windows")
def test_a_file_is_its_own_owners_through_a_link(world: World) -> None:
    world.cursor(time=TIME)
    real = world.home / "dotfiles.json"
    real.write_text("{}\n", encoding="utf-8")
    real.chmod(0o640)
    world.output.symlink_to(real)
    world.run("import", "cursor")
    assert world.output.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "uvx" in real.read_text(encoding="utf-8")


def test_the_output_cannot_be_its_own_source(world: World) -> None:
    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("import", "--file", str(world.output)).code == 2


def test_a_project_s_relative_directories_mean_the_same_from_an_output_elsewhere(world: World) -> None:
    world.project.joinpath("opencode.json").write_text(
        json.dumps({"mcp": {"build": {"type": "local", "command": ["bun"], "cwd": "packages/app"}}}), encoding="utf-8"
    )
    world.project.joinpath(".vscode").mkdir()
    world.project.joinpath(".vscode/mcp.json").write_text(
        json.dumps({"servers": {"py": {"command": "py", "envFile": ".env", "cwd": "${workspaceFolder}/src"}}}),
        encoding="utf-8",
    )
    elsewhere = world.home / "elsewhere" / "all.json"
    elsewhere.parent.mkdir()
    assert world.run("import", "opencode", "vscode", "-o", str(elsewhere)).code == 0
    servers = json.loads(elsewhere.read_text(encoding="utf-8"))["mcpServers"]
    assert servers["build"]["cwd"] == str(world.project / "packages/app")
    assert servers["py"]["env_file"] == str(world.project / ".env")
    assert Path(servers["py"]["cwd"]) == world.project / "src"

    assert world.run("import", "opencode").code == 0
    assert world.servers()["build"]["cwd"] == "packages/app"


def test_every_secret_in_plain_text_is_a_warning_wherever_warnings_are(world: World) -> None:
    remote = {"url": "https://b.example.test/mcp?userToken=fake-abc"}
    world.cursor(github=GITHUB, b=remote)
    ran = world.run("import", "cursor", "--dry-run", "--json")
    wheres = [warning.partition(": ")[0] for warning in ran.json()["warnings"]]
    assert wheres == ["cursor/user/github.env.GITHUB_TOKEN", "cursor/user/b.url"]
    assert [len(server["warnings"]) for server in ran.json()["servers"]] == [1, 1]
    assert TOKEN not in ran.out
    assert "github.env.GITHUB_TOKEN: " in world.run("import", "cursor", "--dry-run").err
    assert world.run("import", "cursor", "--strict").code == 1
    assert world.run("import", "cursor", "--strict", "--secrets", "env").code == 0


def test_a_secret_that_stands_in_for_a_variable_is_in_plain_text_too(world: World) -> None:
    default = "my-own-secret-1"
    world.write(
        ".claude.json",
        {
            "mcpServers": {
                "hub": {"command": "hub", "env": {"API_KEY": f"${{API_KEY:-{default}}}", "MODE": "${M:-on}"}}
            }
        },
    )
    ran = world.run("import", "claude", "--dry-run")
    assert [line for line in ran.err.splitlines() if "plain text" in line] == [
        "warning: claude/user/hub.env.API_KEY: looks like a secret in plain text"
    ]
    assert "${API_KEY:-***}" in ran.out
    assert default not in ran.out + ran.err
    assert world.run("import", "claude", "--secrets", "fail").code == 1

    for _ in range(2):
        assert world.run("import", "claude", "--secrets", "env").code == 0
        assert default not in world.output.read_text(encoding="utf-8")
        for environment, key in (({}, default), ({"API_KEY": "of-the-shell"}, "of-the-shell")):
            upstream = read(world.output, environment).groups[0].upstream
            assert isinstance(upstream, Program)
            assert upstream.env["API_KEY"] == key
        assert (world.project / "dynamic-mcp.env").read_text(encoding="utf-8") == f"HUB_API_KEY='{default}'\n"


def test_a_dry_run_says_which_variables_would_have_to_be_set(world: World) -> None:
    inputs = [{"type": "promptString", "id": "gh", "password": True}]
    server = {"command": "npx", "env": {"GH_TOKEN": "${input:gh}"}}
    world.project.joinpath(".vscode").mkdir()
    world.project.joinpath(".vscode/mcp.json").write_text(
        json.dumps({"inputs": inputs, "servers": {"gh": server}}), encoding="utf-8"
    )
    assert "set the variable GH_TOKEN (for gh)" in world.run("import", "vscode", "--dry-run").err


def test_where_no_server_is_wanted_no_file_is_made(world: World) -> None:
    world.cursor(time=TIME)
    ran = world.run("import", "cursor", "--only", "other")
    assert (ran.code, world.output.exists()) == (0, False)
    assert "nothing to write" in ran.err
    assert world.run("import", "cursor", "--only", "other", "--dry-run").out == ""


def test_a_dry_run_shows_what_differs(world: World) -> None:
    world.cursor(time=TIME)
    world.run("import", "cursor")
    world.output.write_text(
        world.output.read_text(encoding="utf-8").replace('"mcp-server-time"', '"mcp-server-time", "--mine"'),
        encoding="utf-8",
    )
    ran = world.run("import", "cursor", "--dry-run")
    assert "differs: time from cursor (user): args" in ran.err
    assert '    -    "--mine"' in ran.err


def test_a_project_is_known_however_its_path_is_written(world: World) -> None:
    world.write(".claude.json", {"projects": {str(world.project): {"mcpServers": {"time": TIME}}}})
    (world.project / "sub").mkdir()
    assert world.run("import", "claude", "--scope", "local", "--project", "sub/..").code == 0
    assert list(world.servers()) == ["time"]


def test_an_import_goes_to_the_config_that_every_command_uses(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DYNAMIC_MCP_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configs"))
    users = paths.config_dir() / "dynamic-mcp.json"
    world.write(".cursor/mcp.json", {"mcpServers": {"a": {"command": "x"}}})

    assert world.run("import", "cursor", "--yes").code == 0
    assert list(json.loads(users.read_text(encoding="utf-8"))["mcpServers"]) == ["a"]
    assert not world.output.exists()

    world.output.write_text('{"mcpServers": {}}', encoding="utf-8")
    assert world.run("import", "cursor", "--yes").code == 0
    assert list(json.loads(world.output.read_text(encoding="utf-8"))["mcpServers"]) == ["a"]
    assert world.run("import", "cursor", "--yes", "-o", "other.json").code == 0
    assert (world.project / "other.json").exists()
