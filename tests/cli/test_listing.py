"""`tools`, `resources`, `prompts`, `read`, `prompt`: tables for people, JSON for programs, one failure at a time."""

from __future__ import annotations

import asyncio
import io
import json
import sys

import pytest

from dynamic_mcp.cli.output import Output, Progress
from dynamic_mcp.system.shell import quote
from tests.cli.commands import CliRunner
from tests.program import UPSTREAMS, full, odd, running
from tests.terminal import INTERRUPT, open_terminal, strip_escapes


def test_piped_tools_are_json_with_their_group(cli: CliRunner) -> None:
    done = cli.run("tools")
    assert (done.code, done.err) == (0, "")
    by_name = {tool["name"]: tool for tool in done.json}
    assert by_name["echo"]["group"] == "full"
    assert by_name["echo"]["inputSchema"] == {"type": "object"}


def test_a_tool_for_apps_is_listed_with_a_word_and_cannot_be_called(cli: CliRunner) -> None:
    poll = {"name": "poll", "description": "Polls.", "inputSchema": {}, "_meta": {"ui": {"visibility": ["app"]}}}
    listed = json.dumps({"tools": [{"name": "show", "description": "Shows.", "inputSchema": {}}, poll]})
    cli.configure({"up": {"command": sys.executable, "args": [str(UPSTREAMS / "scripted.py"), "tools/list", listed]}})

    rows = [line.split() for line in cli.run("tools", "up", "--table").out.splitlines()]

    assert ["show", "Shows."] in rows
    assert ["poll", "(for", "apps", "only)", "Polls."] in rows
    done = cli.run("call", "up", "poll")
    assert done.code != 0
    assert "no tool of group `up` is named `poll`" in done.err + done.out


@pytest.mark.parametrize(
    ("detail", "members"), [("names", {"group", "name"}), ("brief", {"group", "name", "description"})]
)
def test_detail_says_how_much_of_a_tool(cli: CliRunner, detail: str, members: set[str]) -> None:
    (echo,) = [tool for tool in cli.run("tools", "full", "--detail", detail).json if tool["name"] == "echo"]
    assert set(echo) == members


def test_one_broken_group_costs_the_others_nothing_and_is_told_with_exit_code_5(cli: CliRunner) -> None:
    cli.configure({"odd": odd("exit_at_start"), "full": full()})
    done = cli.run("tools")
    assert done.code == 5
    assert {tool["group"] for tool in done.json} == {"full"}
    assert "error: group `odd`: the server exited with code 3" in done.err


def test_tools_that_cannot_be_listed_are_told_with_exit_code_5_and_can_be_called(cli: CliRunner) -> None:
    cli.configure({"odd": odd("fail_list"), "full": full()})
    done = cli.run("tools")
    assert done.code == 5
    assert {tool["group"] for tool in done.json} == {"full"}
    assert "error: group `odd`: tools/list could not be read" in done.err

    assert cli.run("call", "odd", "echo", "text=x").code == 0

    done = cli.run("doctor", "odd")
    assert done.code == 5
    assert "tools/list could not be read" in done.json["groups"][0]["findings"][0]["what"]
    assert done.json["groups"][0]["is_up"] is True


def test_piped_tools_are_a_table_with_one_line_for_each_if_one_is_asked_for(cli: CliRunner) -> None:
    cli.configure({"full": full(description="Everything")})
    lines = cli.run("tools", "--table").out.splitlines()
    assert lines[0] == "full: Everything"
    assert lines[1].split() == ["TOOL", "DESCRIPTION"]
    assert "echo             Answers the text." in [line.strip() for line in lines]
    assert [word for word in ("[", "{") if word in "\n".join(lines)] == []


def test_a_search_shows_the_parameters_of_what_it_finds(cli: CliRunner) -> None:
    schema = {"properties": {"lamp": {"type": "string", "description": "Which one"}}}
    tool = {"name": "light", "description": "Lights a lamp.", "inputSchema": schema}
    listed = json.dumps({"tools": [tool]})
    cli.configure({"up": {"command": sys.executable, "args": [str(UPSTREAMS / "scripted.py"), "tools/list", listed]}})
    brief = cli.run("tools", "--query", "light a lamp", "--table").out.splitlines()
    full = cli.run("tools", "--query", "light a lamp", "--table", "--detail", "full").out.splitlines()
    assert [line.split() for line in brief[1:]] == [["up", "light", "Lights", "a", "lamp."]]
    assert [line.strip() for line in full[2:]] == ["lamp?: string  Which one"]
    assert all(line == line.rstrip() for line in (*brief, *full))


def test_the_last_of_json_and_table_counts(cli: CliRunner) -> None:
    assert cli.run("tools", "--table", "--json").json[0]["group"] == "full"
    assert cli.run("tools", "--json", "--table").out.startswith("full: ")


def test_a_terminal_gets_a_table(cli: CliRunner) -> None:
    shown = strip_escapes(cli.run_on_terminal("tools").out)
    assert "full: Everything that there is\nTOOL " in shown
    assert "echo             Answers the text." in shown


def test_a_narrow_terminal_gets_a_list(cli: CliRunner) -> None:
    shown = strip_escapes(cli.run_on_terminal("tools", width=30).out)
    assert "echo\n  description: Answers the\n  text.\n" in shown


def test_no_color_and_dumb_terminals_get_no_control_sequences(cli: CliRunner) -> None:
    assert "\x1b[" in cli.run_on_terminal("tools", "-q").out
    assert "\x1b[" not in cli.run_on_terminal("tools", TERM="dumb").out
    colours = cli.run_on_terminal("check", NO_COLOR="1").out
    assert "\x1b[3" not in colours
    assert "\x1b[3" in cli.run_on_terminal("check").out


def test_a_spinner_is_for_terminals_only(cli: CliRunner) -> None:
    code = "import time; time.sleep(60)"
    cli.configure({"slow": {"command": sys.executable, "args": ["-c", code], "timeout": {"connect": "60s"}}})
    with open_terminal("tools", env=cli.environment(TERM="xterm-256color"), cwd=cli.folder) as person:
        person.shows("asking slow (1 s)")
        person.types(INTERRUPT)
        assert person.ends() == 130
    cli.configure({"slow": {"command": sys.executable, "args": ["-c", code], "timeout": {"connect": "1s"}}})
    assert "asking" not in cli.run("tools").err


def test_resources_and_their_templates_are_listed(cli: CliRunner) -> None:
    entries = cli.run("resources", "full").json
    assert "full://text" in {entry.get("uri") for entry in entries}
    assert "full://item/{id}" in {entry.get("uriTemplate") for entry in entries}
    assert "full://item/{id}" in strip_escapes(cli.run_on_terminal("resources").out)


def test_prompts_are_listed_with_their_arguments(cli: CliRunner) -> None:
    assert "greet" in {entry["name"] for entry in cli.run("prompts").json}
    assert "greet city=… [style=…]" in strip_escapes(cli.run_on_terminal("prompts", width=120).out)


def test_a_resource_is_read(cli: CliRunner) -> None:
    done = cli.run("read", "full://text")
    assert done.code == 0
    assert done.out
    assert cli.run("read", "full://text", "--json").json["contents"]


def test_a_resource_that_nobody_has_is_exit_code_2(cli: CliRunner) -> None:
    cli.configure({"a": full("--scheme", "a"), "b": full("--scheme", "b")})
    done = cli.run("read", "c://nothing")
    assert (done.code, done.out) == (2, "")
    assert "error: no resource is named `c://nothing`" in done.err


def test_a_prompt_is_filled_in(cli: CliRunner) -> None:
    done = cli.run("prompt", "full", "greet", "city=Oslo")
    assert done.code == 0
    assert done.out.startswith("[user]\n")
    assert cli.run("prompt", "full", "full__greet", "city=Oslo").out == done.out


def test_a_prompt_that_is_not_there_is_answered_with_the_closest(cli: CliRunner) -> None:
    done = cli.run("prompt", "full", "gret")
    assert (done.code, done.out) == (2, "")
    assert "no prompt of group `full` is named `gret`\nhint: did you mean `greet`?" in done.err


def test_a_disabled_group_is_told_from_one_that_is_not_there(cli: CliRunner) -> None:
    cli.configure({"full": full(enabled=False)})
    done = cli.run("tools", "full")
    assert done.code == 2
    assert "no enabled group is named `full`\nhint: `dynamic-mcp enable full` enables it" in done.err


def test_partial_makes_a_server_that_is_down_a_matter_of_words(cli: CliRunner) -> None:
    cli.configure({"odd": odd("exit_at_start"), "full": full()})
    for command in ("tools", "resources", "prompts", "stats"):
        done = cli.run(command, "--partial")
        assert done.code == 0
        assert done.json
        assert "error: group `odd`: the server exited with code 3" in done.err
        assert cli.run(command).code == 5


def test_partial_needs_one_server_that_answers(cli: CliRunner) -> None:
    cli.configure({"odd": odd("exit_at_start")})
    for command in ("tools", "resources", "prompts", "stats"):
        assert cli.run(command, "--partial").code == 5


@pytest.mark.parametrize("command", ["tools", "resources", "prompts", "stats", "check", "doctor"])
def test_a_config_without_groups_is_told_how_to_get_one(cli: CliRunner, command: str) -> None:
    cli.configure({})
    done = cli.run(command)
    assert done.code == 0
    assert f"`{cli.config}` has no groups yet\nhint: `dynamic-mcp add NAME -- COMMAND` adds one" in done.err
    cli.configure({"a b": full(enabled=False)})
    assert f"is disabled\nhint: `dynamic-mcp enable {quote('a b')}` enables one" in cli.run(command).err


async def test_status_says_that_a_proxy_has_no_groups(cli: CliRunner) -> None:
    cli.configure({})
    async with running(str(cli.config)) as program:
        await program.initialize()
        async with asyncio.timeout(60):
            while not (await asyncio.to_thread(cli.run, "status")).json:
                pass
        shown = strip_escapes((await asyncio.to_thread(cli.run_on_terminal, "status")).out)
    assert "no groups yet; `dynamic-mcp add NAME -- COMMAND` adds one" in shown


def test_reading_and_prompting_wait_no_longer_than_they_are_told(cli: CliRunner) -> None:
    cli.run("tools")
    cli.configure({"full": full("--hang", "resources/read", "--hang", "prompts/get")})
    assert cli.run("prompts").code == 0
    for args in (["read", "full://text"], ["prompt", "full", "greet", "city=Oslo"]):
        done = cli.run(*args, "--timeout", "50ms")
        assert (done.code, done.out) == (5, "")
        assert "was not answered within 0.05 s" in done.err
        assert "--timeout is not a duration: `soon`" in cli.run(*args, "--timeout", "soon").err


def test_an_argument_of_a_prompt_may_come_from_a_file(cli: CliRunner) -> None:
    (cli.folder / "city").write_text("Oslo", encoding="utf-8")
    from_file = cli.run("prompt", "full", "greet", "city=@city")
    assert from_file.code == 0
    assert from_file.out == cli.run("prompt", "full", "greet", "city=Oslo").out
    assert "@city" in cli.run("prompt", "full", "greet", r"city=\@city").out


def test_a_terminal_shows_which_servers_are_still_waited_for_and_how_long() -> None:
    now = 0.0
    progress = Progress("asking", ["a", "b", "c", "d", "e"], now=lambda: now)
    assert str(progress) == "asking a, b, c and 2 more"
    progress.complete("b")
    now = 3.2
    assert str(progress) == "asking a, c, d and 1 more (3 s)"
    progress.note = "progress 1/2"
    assert str(progress) == "asking a, c, d and 1 more (3 s): progress 1/2"
    for name in ("a", "c", "d", "e"):
        progress.complete(name)
    assert str(progress).startswith("finishing (3 s)")


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("access matrix", "no tools are known"),
        ("access classify", "no tools are known"),
        ("token list", "there are no tokens yet"),
        ("auth status", "no group has a `url`"),
        ("undo --list", "no command has changed a file"),
        ("registry outdated", "no server comes from a registry"),
        ("approve list", "nothing waits for approval"),
    ],
)
def test_an_empty_list_is_a_note_for_a_person_and_empty_json_for_a_program(
    cli: CliRunner, words: str, note: str
) -> None:
    cli.configure({})
    assert cli.run(*words.split()).json == []
    assert note in strip_escapes(cli.run_on_terminal(*words.split()).out)


def test_resources_are_listed_by_the_uris_that_ai_tools_see(cli: CliRunner) -> None:
    for name in "ab":
        folder = cli.folder / name / "refunds"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: refunds\ndescription: Refund\n---\n")
    cli.configure({name: {"skills": [str(cli.folder / name)]} for name in "ab"})

    listed = [(each["group"], each["uri"]) for each in cli.run("resources").json]

    assert listed == [("a", "skill://refunds/SKILL.md"), ("b", "skill://b/refunds/SKILL.md")]
    assert [each["uri"] for each in cli.run("resources", "b").json] == ["skill://refunds/SKILL.md"]
    for uri in ("skill://b/refunds/SKILL.md", "skill://refunds/SKILL.md"):
        assert cli.run("read", uri).code == 0


def test_progress_that_only_says_the_same_again_is_one_line_without_a_terminal() -> None:
    err = io.StringIO()
    out = Output(io.StringIO(), err, {}, as_json=None, is_quiet=False)
    for number in range(3):
        out.update_progress(f"progress {number}: waits", "waits")
        out.update_progress(f"progress {number}/3")
    assert err.getvalue().splitlines() == ["progress 0: waits", "progress 0/3", "progress 1/3", "progress 2/3"]
