"""`--profile` of the commands that ask servers, with a daemon and without, and what `check` and `status` say."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.observe.proxies import ProxyStatus, SessionStatus
from tests.cli.commands import CliRunner
from tests.cli.test_beside_a_daemon import run_beside
from tests.cli.test_status import daemon, publish, shown
from tests.program import full, odd, running
from tests.terminal import strip_escapes

PROFILES = {
    "review": {"servers": ["full"], "tools": {"include": ["echo", "add"]}},
    "empty": {"servers": []},
    "wrong": {"servers": ["fulll", "off", "none*"]},
}
SERVERS = {"full": full(), "odd": odd(), "off": {"command": "x", "enabled": False}}


@pytest.fixture
def profiled(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    """A config with servers and profiles; a daemon that runs for it has room for its socket."""
    cli.configure(SERVERS, profiles=PROFILES)
    with tempfile.TemporaryDirectory() as folder:  # shorter than the path of a test: sockets have a limit
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield cli


def test_a_list_has_what_the_profile_selects(profiled: CliRunner) -> None:
    for done in (profiled.run("tools", "--profile", "review"), profiled.run("tools", DYNAMIC_MCP_PROFILE="review")):
        assert (done.code, done.err) == (0, "")
        assert {(tool["group"], tool["name"]) for tool in done.json} == {("full", "echo"), ("full", "add")}
    assert profiled.run("resources", "odd", "--profile", "review").code == 2
    shown = profiled.run_on_terminal("tools", "--query", "echo", "--profile", "review").out
    assert "echo" in next(line for line in shown.splitlines() if line.startswith("full"))
    found = profiled.run("tools", "--query", "echo", "--profile", "review").json
    assert {tool["group"] for tool in found["tools"]} == {"full"}


def test_a_tool_outside_of_the_profile_does_not_exist(profiled: CliRunner) -> None:
    assert profiled.run("call", "full", "echo", "text=a", "--profile", "review").out == "a\n"
    hidden = profiled.run("call", "full", "progress", "--profile", "review")
    assert hidden.code == 2
    assert "no tool of group `full` is named `progress`" in hidden.err
    elsewhere = profiled.run("call", "odd", "pid", "--profile", "review")
    assert elsewhere.code == 2
    assert "no group is named `odd`" in elsewhere.err
    assert "are `full`\n" in elsewhere.err


def test_an_unknown_profile_is_told_with_the_closest(profiled: CliRunner) -> None:
    for done in (
        profiled.run("tools", "--profile", "reviw"),
        profiled.run("serve", "--profile", "reviw", "--log-level", "debug"),
        profiled.run("--profile", "reviw"),
    ):
        assert done.code == 2
        assert "no profile is named `reviw`" in done.err
        assert "did you mean `review`?" in done.err


def test_any_word_may_name_a_profile(profiled: CliRunner) -> None:
    profiled.configure(SERVERS, profiles={"tools": {}})
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    assert json.loads(profiled.run("--profile", "tools", "--log-level", "error", stdin=ping).out)["id"] == 1
    assert "the command comes first" in profiled.run("--log-level", "error", "tools").err


def test_an_empty_profile_says_so(profiled: CliRunner) -> None:
    done = profiled.run("tools", "--profile", "empty")
    assert (done.code, done.json) == (0, [])
    assert "the profile `empty` has no groups" in done.err


async def test_a_command_beside_a_window_sees_its_own_profile(profiled: CliRunner) -> None:
    profiled.configure(SERVERS, profiles=PROFILES, settings={"daemon": {"linger": "5min"}})
    try:
        async with running(str(profiled.config), env=profiled.environment(), cwd=profiled.folder) as window:
            await window.initialize()
            code, out, err = await run_beside(profiled, "tools", "--profile", "review")
            assert (code, err) == (0, "")
            assert {(tool["group"], tool["name"]) for tool in json.loads(out)} == {("full", "echo"), ("full", "add")}
            code, _, err = await run_beside(profiled, "call", "full", "progress", "--profile", "review")
            assert (code, "no tool of group `full` is named `progress`" in err) == (2, True)
            code, out, _ = await run_beside(profiled, "tools", "odd")
            assert code == 0
            assert json.loads(out)
    finally:
        assert profiled.run("daemon", "stop").code == 0


# --- what is said of profiles ------------------------------------------------------------------------------


def test_check_shows_the_servers_of_each_profile_and_globs_that_match_none(profiled: CliRunner) -> None:
    profiled.config.chmod(0o600)
    done = profiled.run("check")
    assert done.code == 0
    found = [each for each in done.json if each["where"].startswith("profiles.")]
    assert [(each["level"], each["where"], each["what"]) for each in found] == [
        ("ok", "profiles.review", "has full"),
        ("note", "profiles.empty", "has no servers"),
        ("note", "profiles.wrong", "has no servers"),
        ("warning", "profiles.wrong.servers", "`fulll` matches no server"),
        ("warning", "profiles.wrong.servers", "`none*` matches no server"),
    ]
    assert found[3]["hint"] == "did you mean `full`?"


def test_doctor_looks_at_all_servers_whatever_the_variable_says(profiled: CliRunner) -> None:
    done = profiled.run("doctor", "--alone", DYNAMIC_MCP_PROFILE="review")
    assert [each["group"] for each in done.json["groups"]] == ["full", "odd"]


def test_status_shows_who_has_which_profile(cli: CliRunner, state: Path) -> None:
    session = SessionStatus(client="cursor", version="1", profile="review", since=1_800_000_000.0)
    status = daemon()
    publish(state, ProxyStatus(config="/c.json", kind="daemon", sessions=[*status.sessions, session]))
    lines = shown(cli)
    (head,) = (line for line in lines if "SESSION" in line)
    assert "PROFILE" in head
    assert any("cursor" in line and "review" in line for line in lines)
    publish(state, ProxyStatus(config="/c.json", sessions=[session], clients=["cursor"]))
    assert "profile review" in " ".join(shown(cli))


def test_tab_offers_profiles(profiled: CliRunner) -> None:
    words = "dynamic-mcp tools --profile r"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert [each.partition(",")[2] for each in profiled.run(**asked).out.splitlines()] == ["review"]


def test_the_help_names_the_option(cli: CliRunner) -> None:
    for command in ("tools", "call", "read", "prompts", "prompt", "resources", "stats", "serve", "install"):
        assert "--profile NAME" in strip_escapes(cli.run(command, "--help").out), command
    assert "--profile" not in cli.run("doctor", "--help").out
    assert os.environ.get("DYNAMIC_MCP_PROFILE") is None
