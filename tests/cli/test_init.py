"""`init`: Enter five times, or `--yes`, and each AI tool has one working entry; `undo` takes it back."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.cli.setting_up import QUESTIONS, SECRET, keystrokes, run, run_at_terminal, servers_of
from tests.program import odd

# --- the first minute ------------------------------------------------------------------------------------


def assert_is_set_up(home: Path, config: Path) -> None:
    assert set(servers_of(config)) == {"full", "other"}
    assert SECRET not in config.read_text(encoding="utf-8")
    assert SECRET in config.with_name("dynamic-mcp.env").read_text(encoding="utf-8")
    assert set(servers_of(home / ".cursor" / "mcp.json")) == {"broken", "dynamic-mcp"}
    assert set(servers_of(home / ".claude.json")) == {"dynamic-mcp"}


def test_five_times_enter_ends_in_a_working_setup(cli: CliRunner, home: Path, config: Path) -> None:
    shown, code = run_at_terminal(cli, home, *keystrokes())

    assert code == 0
    assert_is_set_up(home, config)
    for said in (
        "broken (Cursor): the command `no-such-command` was not found",
        "2 servers (full, other)",
        "move 1 secret into",
        "Next: restart Cursor and Claude Code",
        "`dynamic-mcp status` shows each of them",
        "To revert: `dynamic-mcp undo 1`",
    ):
        assert said in shown


def test_yes_does_the_same_without_a_terminal(cli: CliRunner, home: Path, config: Path) -> None:
    assert run(cli, home, "init", "--yes").code == 0

    assert_is_set_up(home, config)
    called = run(cli, home, "call", "-c", str(config), "full", "echo", "text=it works")
    assert (called.code, called.out) == (0, "it works\n")


def test_what_a_tool_can_switch_off_is_not_said_to_be_taken_out(cli: CliRunner, home: Path) -> None:
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(
        json.dumps({"mcpServers": {"third": odd(env={"OF_ITS_OWN": "1"})}}), encoding="utf-8"
    )

    said = run(cli, home, "init", "--yes").err

    assert f".gemini{os.sep}settings.json), and disable third\n" in said
    assert f".cursor{os.sep}mcp.json), and remove full\n" in said


def test_a_broken_server_of_a_tool_that_passes_on_its_whole_environment_is_left_out(
    cli: CliRunner, home: Path, config: Path
) -> None:
    broken = {"command": "no-such-command"}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"other": odd(), "gone": broken}}), encoding="utf-8")

    assert run(cli, home, "init", "--yes").code == 0

    assert set(servers_of(config)) == {"full", "other"}
    assert servers_of(home / ".claude.json")["gone"] == broken


def test_an_impatient_enter_leaves_nothing_of_the_spinner_on_the_screen(cli: CliRunner, home: Path) -> None:
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"other": odd("slow_init", "1")}}), encoding="utf-8")

    shown, code = run_at_terminal(cli, home, (QUESTIONS[0], "\r"), ("trying ", "\r\r\r\r"))

    assert code == 0
    assert "Done. Next" in shown
    # the drawing itself goes to a new line once, at its end, and back again
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n")]
    assert len([line for line in drawn if "trying " in line or "finishing" in line]) == 1, drawn


def test_servers_in_files_of_this_directory_are_said_to_be_left_out(cli: CliRunner, home: Path, config: Path) -> None:
    (cli.folder / ".cursor").mkdir()
    (cli.folder / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"ours": odd(), "more": odd()}}), encoding="utf-8"
    )

    said = run(cli, home, "init", "--yes").err

    assert "cursor/project: 2 servers are left out" in said
    assert "user: " not in said
    assert set(servers_of(config)) == {"full", "other"}


@pytest.mark.parametrize(("answer", "is_taken"), [("\r", True), ("n", False)])
def test_servers_that_claude_code_has_only_in_this_directory_are_offered(
    cli: CliRunner, home: Path, config: Path, answer: str, is_taken: bool
) -> None:
    file = home / ".claude.json"
    private = {"private": odd()}
    file.write_text(
        json.dumps({"projects": {str(cli.folder): {"mcpServers": private}, "/x": {"mcpServers": private}}}),
        encoding="utf-8",
    )
    question = ("Import private too, which Claude Code has only in", answer)
    first, *others = keystrokes()

    shown, code = run_at_terminal(cli, home, first, question, *others)

    assert code == 0
    assert "left out" not in shown
    assert set(servers_of(config)) == ({"full", "private"} if is_taken else {"full"})
    projects = json.loads(file.read_text(encoding="utf-8"))["projects"]
    assert projects[str(cli.folder)]["mcpServers"] == ({} if is_taken else private)
    assert projects["/x"]["mcpServers"] == private


@pytest.mark.parametrize("id", ["--yes", "1"])
def test_undo_takes_back_every_byte_of_a_setup(cli: CliRunner, home: Path, config: Path, id: str) -> None:
    files = (home / ".cursor" / "mcp.json", home / ".claude.json")
    before = [file.read_bytes() for file in files]
    run(cli, home, "init", "--yes")

    undone = run(cli, home, "undo", id)

    assert undone.code == 0
    assert "restart the AI tools" in undone.err
    assert [word.split()[1] for word in undone.err.splitlines() if word.startswith("undone:")] == ["init"]
    assert [file.read_bytes() for file in files] == before
    assert not config.exists()
    assert not config.with_name("dynamic-mcp.env").exists()
    assert run(cli, home, "undo", "--yes").err == "error: nothing to undo\n"


def test_a_server_that_has_worked_before_is_tried_again(cli: CliRunner, home: Path, config: Path) -> None:
    script = home / "server.py"
    script.write_text(
        f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, {odd()['args'][0]!r}]))\n",
        encoding="utf-8",
    )
    tool = home / ".cursor" / "mcp.json"
    tool.write_text(
        json.dumps({"mcpServers": {"once": {"command": sys.executable, "args": [str(script)]}}}), encoding="utf-8"
    )
    run(cli, home, "init", "--yes")
    assert "once" in servers_of(config)
    run(cli, home, "undo", "--yes")
    script.unlink()

    done = run(cli, home, "init", "--yes")

    assert "✗ once" in done.err
    assert "once" not in servers_of(config)


def test_a_setup_is_one_change_in_the_list(cli: CliRunner, home: Path, config: Path) -> None:
    run(cli, home, "init", "--yes")

    [change] = run(cli, home, "undo", "--list", "--json").json
    shown = cli.run_on_terminal("undo", "--list", HOME=str(home)).out

    assert (change["id"], change["what"], change["undone"]) == ("1", "init", False)
    assert {Path(file).name for file in change["files"]} == {
        "dynamic-mcp.json",
        "dynamic-mcp.env",
        "mcp.json",
        ".claude.json",
    }
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d ", shown)
    assert "~/.cursor/mcp.json" in shown


def test_undo_takes_back_a_setup_after_the_tools_have_saved_their_files(
    cli: CliRunner, home: Path, config: Path
) -> None:
    file = home / ".claude.json"
    before = json.loads(file.read_text(encoding="utf-8"))
    run(cli, home, "init", "--yes")
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "startups": 2}), encoding="utf-8")

    undone = run(cli, home, "undo", "--yes")

    assert f"`{file}` was restored; what has changed in it since stays" in undone.err
    assert json.loads(file.read_text(encoding="utf-8")) == {**before, "startups": 2}


def test_a_config_that_was_edited_since_the_setup_stays_when_the_setup_is_undone(
    cli: CliRunner, home: Path, config: Path
) -> None:
    file = home / ".cursor" / "mcp.json"
    before = file.read_bytes()
    run(cli, home, "init", "--yes")
    run(cli, home, "disable", "full", "-c", str(config))
    edited = config.read_bytes()

    undone = run(cli, home, "undo", "--yes")

    assert undone.code == 0
    assert f"`{config}` has changed since, and stays as it is" in undone.err
    assert (file.read_bytes(), config.read_bytes()) == (before, edited)


def test_uninstalling_from_one_tool_takes_back_its_part_of_a_setup(cli: CliRunner, home: Path, config: Path) -> None:
    files = (home / ".cursor" / "mcp.json", home / ".claude.json")
    before = [file.read_bytes() for file in files]
    run(cli, home, "init", "--yes")

    assert run(cli, home, "uninstall", "cursor").code == 0
    assert (files[0].read_bytes() == before[0], files[1].read_bytes() == before[1]) == (True, False)
    assert config.exists()

    assert run(cli, home, "undo", "--yes").code == 0
    assert [file.read_bytes() for file in files] == before
    assert not config.exists()


def test_a_setup_that_fails_changes_nothing(cli: CliRunner, home: Path, config: Path) -> None:
    before = (home / ".cursor" / "mcp.json").read_bytes()
    (home / ".claude.json").write_text(json.dumps({"mcpServers": []}), encoding="utf-8")

    done = run(cli, home, "init", "--yes")

    assert done.code != 0
    assert (home / ".cursor" / "mcp.json").read_bytes() == before
    assert not config.exists()
    assert run(cli, home, "undo", "--yes").err == "error: nothing to undo\n"


def test_which_variables_servers_get_is_said_after_all_else(cli: CliRunner, home: Path) -> None:
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"other": odd(), "full": odd()}}), encoding="utf-8")

    said = run(cli, home, "init", "--yes").err

    assert "inherit_env" in said.partition("To revert")[2]
    assert "inherit_env" not in said.partition("To revert")[0]


def test_a_second_time_there_is_nothing_to_do(cli: CliRunner, home: Path, config: Path) -> None:
    run(cli, home, "init", "--yes")
    (home / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"dynamic-mcp": {"command": "x"}}}), encoding="utf-8"
    )

    done = run(cli, home, "init", "--yes")

    assert done.code == 0
    assert "Everything is set up already" in done.err
    assert "add dynamic-mcp to" not in done.err


def test_a_server_that_has_come_back_into_a_tool_is_taken_out_again(cli: CliRunner, home: Path, config: Path) -> None:
    file = home / ".claude.json"
    before = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]
    run(cli, home, "init", "--yes")
    file.write_text(json.dumps({"mcpServers": {**servers_of(file), **before}}), encoding="utf-8")

    done = run(cli, home, "init", "--yes")

    assert f"remove other from Claude Code (~{os.sep}.claude.json)" in done.err
    assert set(servers_of(file)) == {"dynamic-mcp"}


# --- other answers ---------------------------------------------------------------------------------------


def test_who_keeps_the_servers_in_the_tools_is_told_what_that_means(cli: CliRunner, home: Path, config: Path) -> None:
    shown, code = run_at_terminal(cli, home, *keystrokes(("\r", "\r", "n", "\r", "\r")))

    assert code == 0
    assert "every tool twice and run every server twice" in shown
    assert set(servers_of(home / ".cursor" / "mcp.json")) == {"full", "broken", "dynamic-mcp"}


def test_a_broken_server_can_be_imported_all_the_same(cli: CliRunner, home: Path, config: Path) -> None:
    run_at_terminal(cli, home, *keystrokes(("\r", "n", "\r", "\r", "\r")))

    assert "broken" in servers_of(config)
    assert "broken" not in servers_of(home / ".cursor" / "mcp.json")


@pytest.mark.parametrize(
    ("choice", "turns"), [("no tool", [("Set up", "i\r")]), ("no", keystrokes(("\r", "\r", "\r", "\r", "n")))]
)
def test_without_a_yes_nothing_is_changed(
    cli: CliRunner, home: Path, config: Path, choice: str, turns: list[tuple[str, str]]
) -> None:
    before = (home / ".cursor" / "mcp.json").read_bytes()

    shown, code = run_at_terminal(cli, home, *turns)

    assert code == 0
    assert "CommandResult" not in shown, choice
    assert (home / ".cursor" / "mcp.json").read_bytes() == before
    assert not config.exists()


def test_a_project_s_own_servers_are_not_started(cli: CliRunner, home: Path, config: Path) -> None:
    (cli.folder / ".cursor").mkdir()
    marked = {"command": sys.executable, "args": ["-c", "open('started', 'w')"]}
    (cli.folder / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"foreign": marked}}), encoding="utf-8"
    )

    run(cli, home, "init", "--yes")

    assert not (cli.folder / "started").exists()
    assert "foreign" not in servers_of(config)


# --- without the word init -------------------------------------------------------------------------------


def test_the_bare_program_offers_the_setup_to_a_person_without_a_config(
    cli: CliRunner, home: Path, config: Path
) -> None:
    shown, code = run_at_terminal(cli, home, ("Set up dynamic-mcp for the AI tools", "\r"), *keystrokes(), command=())

    assert code == 0
    assert "There is no config yet" in shown
    assert_is_set_up(home, config)


def test_who_declines_is_told_how_to_get_a_config(cli: CliRunner, home: Path, config: Path) -> None:
    shown, code = run_at_terminal(cli, home, ("Set up dynamic-mcp for the AI tools", "n"), command=())

    assert code == 2
    assert "`dynamic-mcp init` creates one" in shown
    assert not config.exists()


def test_a_client_is_asked_nothing(cli: CliRunner, home: Path) -> None:
    done = run(cli, home)

    assert (done.code, done.out) == (2, "")
    assert "`dynamic-mcp init` creates one" in done.err


# --- where there is nothing ------------------------------------------------------------------------------


def test_without_a_terminal_nobody_is_asked(cli: CliRunner) -> None:
    done = cli.run("init")
    assert (done.code, done.out) == (2, "")
    assert "error: `init` asks questions, and there is no terminal to answer on" in done.err
    assert "`dynamic-mcp init --yes`" in done.err


def test_where_no_ai_tool_is_found_servers_are_added_by_hand(cli: CliRunner, config: Path) -> None:
    cli.config.unlink()
    shown, code = run_at_terminal(
        cli,
        cli.folder,
        ("Add a server by hand?", "y"),
        ("Name:", "time\r"),
        ("Command with", "uvx 'mcp server'\r"),
        ("What it is good for", "Clocks\r"),
        ("Add a server by hand?", "n"),
    )

    assert code == 0
    assert "Next: `dynamic-mcp install TOOL` connects your AI tool" in shown
    assert servers_of(config) == {"time": {"description": "Clocks", "command": "uvx", "args": ["mcp server"]}}


def test_where_no_server_works_yes_changes_nothing_and_says_how_to_go_on(
    cli: CliRunner, home: Path, config: Path
) -> None:
    (home / ".claude.json").unlink()
    tool = home / ".cursor" / "mcp.json"
    tool.write_text(json.dumps({"mcpServers": {"broken": {"command": "no-such-command"}}}), encoding="utf-8")
    before = tool.read_bytes()

    done = run(cli, home, "init", "--yes")

    assert done.code == 0
    assert "No server is left, so nothing was changed." in done.err
    assert "`dynamic-mcp add` creates one" in done.err
    assert not config.exists()
    assert tool.read_bytes() == before


def test_where_no_ai_tool_has_a_server_yes_says_how_to_go_on(cli: CliRunner, home: Path, config: Path) -> None:
    (home / ".cursor" / "mcp.json").unlink()
    (home / ".claude.json").write_text(json.dumps({"theme": "dark"}), encoding="utf-8")

    done = run(cli, home, "init", "--yes")

    assert done.code == 0
    assert "These AI tools have no servers yet" in done.err
    assert "`dynamic-mcp add` creates one" in done.err
    assert not config.exists()
    assert json.loads((home / ".claude.json").read_text(encoding="utf-8")) == {"theme": "dark"}


def test_where_no_ai_tool_is_found_yes_says_how_to_go_on(cli: CliRunner, config: Path) -> None:
    cli.config.unlink()

    done = run(cli, cli.folder, "init", "--yes")

    assert done.code == 0
    assert "`dynamic-mcp add` creates one" in done.err
    assert not config.exists()
