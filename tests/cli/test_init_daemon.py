"""`init` proposes one daemon for all AI tools, and keeps what the config says about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.cli.invocation import start_invocation
from dynamic_mcp.cli.wizard import set_up
from tests.cli.commands import CliRunner
from tests.cli.setting_up import QUESTIONS, keystrokes, run, run_at_terminal, servers_of
from tests.windows import home_variables


def settings_of(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))["settings"]
    return found


@pytest.mark.parametrize(("answer", "is_on"), [("\r", True), ("y", True), ("n", False)])
def test_a_person_with_two_ai_tools_is_asked_once_whether_a_daemon_runs_the_servers(
    cli: CliRunner, home: Path, config: Path, answer: str, is_on: bool
) -> None:
    shown, code = run_at_terminal(cli, home, *keystrokes(("\r", "\r", "\r", answer, "\r")))
    again, _ = run_at_terminal(cli, home, (QUESTIONS[0], "\r"), (QUESTIONS[1], "\r"))

    assert code == 0
    how = "keep the servers running, shared by your" if is_on else "run the servers anew for each"
    assert f"{how} AI tool" in shown
    assert "(`settings.daemon`)" in shown
    assert settings_of(config)["daemon"] is is_on
    assert "Everything is set up already" in again


def test_one_ai_tool_alone_keeps_its_own_servers_unless_the_person_wants_a_daemon(
    cli: CliRunner, home: Path, config: Path
) -> None:
    (home / ".cursor" / "mcp.json").unlink()
    questions = (QUESTIONS[0], QUESTIONS[2], f"{QUESTIONS[3]} (y/N)", QUESTIONS[4])

    run_at_terminal(cli, home, *zip(questions, ("\r", "\r", "y", "\r"), strict=True))

    assert settings_of(config)["daemon"] is True


@pytest.mark.parametrize(("option", "is_on"), [((), True), (("--daemon",), True), (("--no-daemon",), False)])
def test_yes_takes_a_daemon_for_two_ai_tools_unless_an_option_says_otherwise(
    cli: CliRunner, home: Path, config: Path, option: tuple[str, ...], is_on: bool
) -> None:
    assert run(cli, home, "init", "--yes", *option).code == 0

    assert settings_of(config)["daemon"] is is_on


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.usefixtures("state")
def test_two_ai_tools_get_a_daemon(
    cli: CliRunner, home: Path, config: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.delenv("DYNAMIC_MCP_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", cli.environment()["XDG_CONFIG_HOME"])
    for name, value in home_variables(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.folder)

    context = start_invocation(None, quiet=True, verbose=0, as_json=None)
    assert set_up(context, yes=True, platform=platform) == 0

    assert set(servers_of(config)) == {"full", "other"}
    assert json.loads(config.read_text(encoding="utf-8")).get("settings", {}).get("daemon") is True


@pytest.mark.parametrize(("option", "daemon"), [((), None), (("--daemon",), True)])
def test_yes_takes_no_daemon_for_one_ai_tool_unless_the_option_asks_for_it(
    cli: CliRunner, home: Path, config: Path, option: tuple[str, ...], daemon: bool | None
) -> None:
    (home / ".cursor" / "mcp.json").unlink()

    assert run(cli, home, "init", "--yes", *option).code == 0

    assert json.loads(config.read_text(encoding="utf-8")).get("settings", {}).get("daemon") is daemon


@pytest.mark.parametrize("option", [(), ("--daemon",)])
def test_a_daemon_that_the_config_describes_stays_as_it_is(
    cli: CliRunner, home: Path, config: Path, option: tuple[str, ...]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"mcpServers": {}, "settings": {"daemon": {"linger": "1h"}}}), encoding="utf-8")

    assert run(cli, home, "init", "--yes", *option).code == 0

    assert set(servers_of(config)) == {"full", "other"}
    assert settings_of(config)["daemon"] == {"linger": "1h"}


def test_a_setup_of_before_changes_by_the_daemon_alone_and_undo_takes_that_back(
    cli: CliRunner, home: Path, config: Path
) -> None:
    run(cli, home, "init", "--yes", "--no-daemon")
    before = config.read_bytes()

    done = run(cli, home, "init", "--yes", "--daemon")

    assert settings_of(config)["daemon"] is True
    assert "servers (" not in done.err
    assert "To revert: `dynamic-mcp undo 2`" in done.err
    assert run(cli, home, "undo", "2").code == 0
    assert config.read_bytes() == before


def test_the_option_counts_where_there_is_nothing_to_import(cli: CliRunner) -> None:
    cli.configure({})

    done = run(cli, cli.folder, "init", "--yes", "--daemon")

    assert done.code == 0
    assert settings_of(cli.config)["daemon"] is True


def test_undo_of_a_setup_stops_its_daemon(cli: CliRunner, home: Path, config: Path) -> None:
    run(cli, home, "init", "--yes", "--daemon")
    assert run(cli, home, "daemon", "start").code == 0

    undone = run(cli, home, "undo", "--yes")

    assert f"stopped the daemon of `{config}`" in undone.err
    assert run(cli, home, "daemon", "status", "-c", str(config)).code == 1
