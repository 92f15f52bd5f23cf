"""`call`: arguments by the tool's schema, results by their kind, errors by exit code, Ctrl-C up to the server."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.cli.content_view import show_result
from dynamic_mcp.cli.output import Output
from tests import signals
from tests.cli.commands import CliRunner
from tests.program import UPSTREAMS, full, odd, with_noted_input
from tests.terminal import strip_escapes


def test_text_is_printed_as_text_and_nothing_else(cli: CliRunner) -> None:
    done = cli.run("call", "full", "echo", "text=two\nlines")
    assert (done.code, done.out, done.err) == (0, "two\nlines\n", "")


def test_arguments_may_be_json_or_come_from_stdin(cli: CliRunner) -> None:
    assert cli.run("call", "full", "echo", '{"text": "a b"}').out == "a b\n"
    assert cli.run("call", "full", "echo", "-", stdin='{"text": "from stdin"}').out == "from stdin\n"
    assert cli.run("call", "full", "echo", "-", stdin='\ufeff{"text": "from PowerShell"}').out == "from PowerShell\n"


def test_numbers_in_json_reach_the_server_digit_by_digit(cli: CliRunner) -> None:
    done = cli.run("call", "full", "record", '{"n": 1234567890123456789012345678901234567890, "f": 1.10}')
    assert '"n": 1234567890123456789012345678901234567890, "f": 1.10' in json.loads(done.out)[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{oops"], "error: the argument is not JSON"),
        (["oops"], "error: `oops` is not key=value"),
        (["-"], "error: stdin is not JSON"),
        (["a=1", "--timeout", "soon"], "error: --timeout is not a duration: `soon`"),
    ],
)
def test_arguments_that_are_none_are_named(cli: CliRunner, args: list[str], said: str) -> None:
    done = cli.run("call", "full", "echo", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_tool_that_is_not_there_is_answered_with_the_closest(cli: CliRunner) -> None:
    done = cli.run("call", "full", "ecko", "text=a")
    assert (done.code, done.out) == (2, "")
    assert "error: no tool of group `full` is named `ecko`\nhint: did you mean `echo`" in done.err
    assert "`dynamic-mcp tools full` lists them" in done.err


def test_a_result_that_is_an_error_goes_to_stderr_with_exit_code_5(cli: CliRunner) -> None:
    done = cli.run("call", "full", "fail")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("error: ")


def test_a_long_result_is_printed_whole_whatever_a_model_would_see(cli: CliRunner) -> None:
    servers = json.loads(cli.config.read_text(encoding="utf-8"))["mcpServers"]
    cli.configure(servers, settings={"defaults": {"result_limit": 1000}, "split_calls": True})
    text = "x" * 50_000
    assert cli.run("call", "full", "echo", "-", stdin=json.dumps({"text": text})).out == f"{text}\n"


def test_json_prints_the_whole_result_an_error_too(cli: CliRunner) -> None:
    done = cli.run("call", "full", "fail", "--json")
    assert done.code == 5
    assert done.json["isError"] is True


def test_images_are_saved_and_it_is_said_where(cli: CliRunner, tmp_path: Path) -> None:
    done = cli.run("call", "full", "plain", "--save", str(tmp_path / "saved"))
    assert done.code == 0
    named = re.findall(r"(image/\S+), (\d+) bytes, saved as (\S+)", done.err)
    assert named
    for _, size, file in named:
        assert Path(file).parent == tmp_path / "saved"
        assert Path(file).stat().st_size == int(size)


def test_structured_content_is_printed_as_json_once(cli: CliRunner) -> None:
    cli.configure({"demo": {"command": sys.executable, "args": [str(UPSTREAMS.parent / "cli" / "structured.py")]}})
    done = cli.run("call", "demo", "sum", "a=1", "b=2.5", "deep.flag=yes", "tags=x", "tags=y")
    assert done.code == 0
    assert done.json == {"arguments": {"a": 1, "b": 2.5, "deep": {"flag": True}, "tags": ["x", "y"]}}


@pytest.mark.parametrize(
    ("text", "structured", "printed"),
    [
        ("two\nlines", '{"content": "two\\nlines"}', "two\nlines\n"),
        ("a", '{"result": "b"}', '{\n  "result": "b"\n}\na\n'),
        ("a", '{"result": "a", "more": 1}', '{\n  "result": "a",\n  "more": 1\n}\na\n'),
        ("a", '["a"]', '[\n  "a"\n]\na\n'),
    ],
)
def test_structured_content_that_only_wraps_the_text_is_not_printed(text: str, structured: str, printed: str) -> None:
    result = f'{{"content": [{{"type": "text", "text": {json.dumps(text)}}}], "structuredContent": {structured}}}'
    stdout = io.StringIO()
    show_result(Output(stdout, io.StringIO(), {}, as_json=False, is_quiet=False), Raw(result.encode()), None)
    assert stdout.getvalue() == printed


@pytest.fixture
def data(cli: CliRunner) -> CliRunner:
    """A config with a server whose tool `sum` returns its arguments as structured content."""
    cli.configure({"demo": {"command": sys.executable, "args": [str(UPSTREAMS.parent / "cli" / "structured.py")]}})
    return cli


@pytest.mark.parametrize(
    ("path", "printed"),
    [("$.arguments.a", 1), ("$.arguments.tags[*]", ["x", "y"]), ("$.arguments.deep", {"flag": True})],
)
def test_what_select_matches_is_printed_as_it_is(data: CliRunner, path: str, printed: object) -> None:
    for options in ([], ["--json"]):
        done = data.run("call", "demo", "sum", "a=1", "tags=x", "tags=y", "deep.flag=yes", "--select", path, *options)
        assert (done.code, done.json) == (0, printed)


def test_where_select_matches_nothing_the_tool_ran_and_the_whole_is_saved(data: CliRunner, tmp_path: Path) -> None:
    done = data.run("call", "demo", "sum", "a=1", "--select", "$.nothing", "--save", str(tmp_path / "saved"))

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: the tool ran, but nothing matches `$.nothing` in {")
    (file,) = (tmp_path / "saved").iterdir()
    assert str(file) in done.err
    assert json.loads(file.read_text(encoding="utf-8"))["structuredContent"] == {"arguments": {"a": 1}}


def test_a_select_that_cannot_be_read_is_refused_before_the_tool_runs(cli: CliRunner, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    cli.configure({"odd": odd()})

    done = cli.run("call", "odd", "touch", f"path={mark}", "--select", "$.[")

    assert (done.code, done.out) == (2, "")
    assert "error: --select `$.[` is not a JSONPath" in done.err
    assert not mark.exists()
    assert cli.run("call", "odd", "touch", f"path={mark}").code == 0
    assert mark.exists()


def test_select_on_a_result_that_is_not_json_says_that_the_tool_ran(cli: CliRunner) -> None:
    done = cli.run("call", "full", "echo", "text=words", "--select", "$.a")
    assert (done.code, done.out) == (1, "")
    assert "error: the tool ran, but its result is not JSON\nhint: the whole result is saved as " in done.err


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"guards": [{"deny": "secret"}]}, "was refused: `mcpServers.full.guards[0]` does not allow"),
        ({"approve": ["echo"]}, "needs approval, and this client cannot ask a person"),
    ],
    ids=["guard", "approve"],
)
def test_a_call_that_is_not_sent_because_of_a_rule_is_exit_code_3(
    cli: CliRunner, rules: dict[str, object], reason: str
) -> None:
    cli.configure({"full": full(**rules)})
    done = cli.run("call", "full", "echo", "text=secret")
    assert (done.code, done.out) == (3, "")
    assert reason in done.err
    assert "nothing was sent" in done.err


def test_a_server_that_dies_in_a_call_is_exit_code_5(cli: CliRunner) -> None:
    done = cli.run("call", "full", "crash")
    assert (done.code, done.out) == (5, "")
    assert "error: group `full`: the server exited with code 7" in done.err


def test_a_server_that_does_not_start_is_named_with_its_reason(cli: CliRunner) -> None:
    cli.configure({"odd": odd("exit_at_start")})
    done = cli.run("call", "odd", "echo")
    assert (done.code, done.out) == (5, "")
    assert "the server exited with code 3; stderr: odd: cannot start | odd: ODD_TOKEN is not set" in done.err


def test_a_server_that_misses_a_variable_which_is_set_here_is_told_how_to_get_it(cli: CliRunner) -> None:
    cli.configure({"odd": odd("exit_at_start")})

    unset = cli.run("call", "odd", "echo")
    withheld = cli.run("call", "odd", "echo", ODD_TOKEN="secret-value", HOSTNAME="x")

    assert "hint" not in unset.err
    assert "secret-value" not in withheld.err
    assert "hint: `ODD_TOKEN` is set, but not passed to this server" in withheld.err
    assert '`"env": {"ODD_TOKEN": "${ODD_TOKEN}"}`' in withheld.err

    cli.configure({"odd": odd("exit_at_start", env={"ODD_TOKEN": "${ODD_TOKEN}"})})
    assert "is set, but not passed" not in cli.run("call", "odd", "echo", ODD_TOKEN="secret-value").err


def test_a_server_that_dies_at_its_start_has_run_nothing(cli: CliRunner) -> None:
    for mode in ("exit_at_start", "exit_in_init"):
        cli.configure({"odd": odd(mode)})
        said = cli.run("call", "odd", "echo").err
        assert "the server exited with code" in said
        assert "may have run" not in said


def test_a_timeout_of_the_command_line_counts(cli: CliRunner) -> None:
    done = cli.run("call", "full", "wait", "key=k", "--timeout", "50ms")
    assert (done.code, done.out) == (5, "")
    assert "`wait` was not answered within 0.05 s" in done.err


def test_progress_and_logging_of_the_server_show_on_stderr(cli: CliRunner) -> None:
    done = cli.run("call", "full", "progress", "steps=2")
    assert done.out == "done\n"
    assert "progress 1" in done.err
    assert "progress 2" in done.err
    logged = cli.run("call", "full", "log", "level=error", "logger=core")
    assert "error full/core: " in logged.err


def test_quiet_says_nothing_but_errors(cli: CliRunner) -> None:
    assert cli.run("call", "full", "progress", "steps=2", "-q").err == ""


def test_a_server_on_a_terminal_cannot_write_there_what_it_likes(cli: CliRunner) -> None:
    text = json.dumps({"text": "\x1b[31mred\x07 \x9b1m"})
    shown = cli.run_on_terminal("call", "full", "echo", text).out
    assert "\\x1b[31mred\\x07 \\x9b1m" in strip_escapes(shown)
    assert cli.run("call", "full", "echo", text).out == "\x1b[31mred\x07 \x9b1m\n"


async def test_ctrl_c_cancels_the_call_at_the_server_and_exits_130(cli: CliRunner) -> None:
    heard = cli.folder / "heard.jsonl"
    cli.configure({"full": with_noted_input(full(), heard)})
    process = await cli.start("call", "full", "wait", "key=k")
    assert process.stderr is not None
    async with asyncio.timeout(60):
        assert (await process.stderr.readline()).startswith(b"progress 0/")
        signals.interrupt(process.pid)
        out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().endswith("interrupted\n")
    sent = [json.loads(each) for each in heard.read_text(encoding="utf-8").splitlines()]
    (call,) = [each for each in sent if each.get("method") == "tools/call"]
    cancelled = [each["params"] for each in sent if each.get("method") == "notifications/cancelled"]
    assert {"requestId": call["id"], "reason": "interrupted at the terminal"} in cancelled
