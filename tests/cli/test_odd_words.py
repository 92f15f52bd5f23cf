"""Odd words on the command line: each works, or is refused by name, and none ends in a traceback."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.commands import CliRunner, CommandResult
from tests.program import UPSTREAMS

ODD = "a\udcff"  # what Python makes of the bytes `a\xff`


def _assert_refused(done: CommandResult, said: str) -> None:
    assert "Traceback" not in done.err
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    "args",
    [
        ("call", "full", "echo", f"text={ODD}"),
        ("call", "full", "echo", f'{{"text": "{ODD}"}}'),
        ("call", "full", ODD),
        ("call", ODD, "echo"),
        ("read", ODD),
        ("prompt", "full", "greet", f"name={ODD}"),
        ("tools", "--query", ODD),
        ("add", "new", "--", ODD),
        ("add", "new", "--env", f"A={ODD}", "--", "true"),
        ("add", "new", "--description", ODD, "--", "true"),
        ("add", ODD, "--", "true"),
        ("auth", "status", ODD),
    ],
)
def test_words_that_are_not_utf8_are_named(cli: CliRunner, args: tuple[str, ...]) -> None:
    before = cli.config.read_bytes()
    _assert_refused(cli.run(*args), "is not UTF-8")
    assert cli.config.read_bytes() == before


@pytest.mark.not_in_wine("its file system has UTF-8 names, without the half pairs that names may have on Windows")
@pytest.mark.parametrize(
    "args", [("check",), ("tools", "full", "--detail", "names", "-c"), ("stats",), ("doctor", "-c")]
)
def test_a_config_whose_path_is_not_utf8_works(cli: CliRunner, args: tuple[str, ...]) -> None:
    odd = cli.folder / f"{ODD}.json"
    odd.write_bytes(cli.config.read_bytes())
    done = cli.run(*args, str(odd))
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert done.json


@pytest.mark.not_in_wine("its file system has UTF-8 names, without the half pairs that names may have on Windows")
def test_a_proxy_serves_a_config_whose_path_is_not_utf8(cli: CliRunner) -> None:
    odd = cli.folder / f"{ODD}.json"
    odd.write_bytes(cli.config.read_bytes())
    done = cli.run(str(odd), stdin='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert (done.code, done.json["result"]) == (0, {})
    assert "Traceback" not in done.err


@pytest.mark.not_in_wine("its file system has UTF-8 names, without the half pairs that names may have on Windows")
def test_an_import_into_a_path_that_is_not_utf8_works(cli: CliRunner) -> None:
    home = cli.folder / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "true"}}}', encoding="utf-8")
    done = cli.run("import", "--all", "--yes", "--json", "-o", f"{ODD}.json", HOME=str(home))
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert "a" in json.loads((cli.folder / f"{ODD}.json").read_text(encoding="utf-8"))["mcpServers"]
    assert cli.run("undo", "--list", "--json").code == 0


@pytest.mark.parametrize("word", ['text:="\\ud83d"', '{"text": "\\ud83d"}'])
def test_half_a_surrogate_pair_reaches_the_server_as_its_escape(cli: CliRunner, word: str) -> None:
    done = cli.run("call", "full", "record", word)
    assert (done.code, done.err) == (0, "")
    assert "\\ud83d" in json.loads(done.out)[-1]


DEEP = "[" * 120_000  # more than any parser of Python reads; no argument of a program may be much longer


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ('{"n": Infinity}', "`Infinity` is not a number"),
        ("n:=NaN", "`NaN` is not a number"),
        ("n:=1e999", "larger than"),
        (f"n:={DEEP}", "nested too deeply"),
        (f'{{"n": {DEEP}}}', "nested too deeply"),
        ('{"n": 1, "n": 2}', "`n` is given twice"),
        ('{"a": {"n": 1, "n": 1}}', "`n` is given twice"),
        ('a:={"n": 1, "n": 2}', "`n` is given twice"),
        ('a={"n": 1, "n": 2}', "`n` is given twice"),
    ],
    ids=lambda word: word[:20],
)
def test_json_that_servers_would_read_differently_is_refused(cli: CliRunner, word: str, said: str) -> None:
    done = cli.run("call", "full", "record", word)
    _assert_refused(done, said)
    assert len(done.err) < 1000


def test_an_argument_of_a_prompt_that_is_given_twice_is_refused(cli: CliRunner) -> None:
    _assert_refused(cli.run("prompt", "full", "greet", "name=a", "name=b"), "`name` is given twice")


def test_large_numbers_and_the_form_of_a_number_are_kept(cli: CliRunner) -> None:
    done = cli.run("call", "full", "record", "n:=1.0", "big:=123456789012345678901234567890")
    assert '"n": 1.0, "big": 123456789012345678901234567890' in json.loads(done.out)[-1]


@pytest.mark.posix_only("Windows says of a path below a file that the file exists already")
def test_a_place_that_may_not_be_written_is_said_in_words(cli: CliRunner) -> None:
    (cli.folder / "file").write_text("", encoding="utf-8")
    done = cli.run("call", "full", "plain", "--save", "file/below")
    assert "Traceback" not in done.err
    assert done.code == 1
    assert "error: file/below: not a directory" in done.err


def test_a_stdin_that_is_not_utf8_is_said_in_words(cli: CliRunner) -> None:
    done = cli.run("call", "full", "echo", "-", stdin=b'{"text": "\xff"}')
    assert done.code == 2
    assert "error: stdin is not JSON: byte 11 is not UTF-8" in done.err


def test_a_word_that_is_longer_than_a_file_name_is_said_in_words(cli: CliRunner) -> None:
    done = cli.run("a" * 5000)
    assert "Traceback" not in done.err
    assert done.code in (1, 2)


def test_an_answer_that_is_not_utf8_is_said_in_words(cli: CliRunner) -> None:
    done = cli.run("import", stdin=b"\xff\xfe\n", HOME=str(cli.folder))
    assert done.code == 2
    assert "Traceback" not in done.err


def test_a_resource_without_a_name_is_refused(cli: CliRunner) -> None:
    _assert_refused(cli.run("read", ""), "`uri` of the resource is missing")


@pytest.mark.parametrize(
    ("command", "method", "result"),
    [
        (("call", "odd", "t"), "tools/call", {"content": 5}),
        (("call", "odd", "t"), "tools/call", {"content": [5]}),
        (("call", "odd", "t"), "tools/call", {"content": 5, "isError": True}),
        (("read", "x://a", "--group", "odd"), "resources/read", {"contents": {"a": 1}}),
        (("prompt", "odd", "p"), "prompts/get", {"messages": ["text"]}),
    ],
)
def test_an_answer_that_the_protocol_does_not_have_is_said_in_words(
    cli: CliRunner, command: tuple[str, ...], method: str, result: object
) -> None:
    cli.configure(
        {"odd": {"command": sys.executable, "args": [str(UPSTREAMS / "scripted.py"), method, json.dumps(result)]}}
    )
    done = cli.run(*command)
    assert "Traceback" not in done.err
    assert done.code == 5
    assert done.err.startswith("error: ")
