"""What Tab offers in a shell, from what is known already; the script for bash is run by bash."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from pygments.lexers.shell import PowerShellLexer  # type: ignore[import-untyped]
from pygments.token import Error, String  # type: ignore[import-untyped]

from tests.cli.commands import CliRunner
from tests.program import UPSTREAMS, full

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "light blue"], "description": "Which\none"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"city": {"type": "string"}, "indoors": {"type": "boolean"}}},
    },
}
# Answers a list of one tool, and notes in a file that it was started.
SERVER = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).open("a").write("started\\n")
hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
answers = {"initialize": hello, "tools/list": {"tools": [{"name": "paint", "inputSchema": json.loads(sys.argv[2])}]}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def painter(cli: CliRunner) -> CliRunner:
    """A config whose server has one tool with arguments, known from before."""
    (cli.folder / "server.py").write_text(SERVER, encoding="utf-8")
    args = ["server.py", str(cli.folder / "starts"), json.dumps(SCHEMA)]
    cli.configure({"art": {"command": sys.executable, "args": args, "cwd": "."}, "full": full()})
    assert cli.run("tools").code == 0
    return cli


def complete(cli: CliRunner, line: str) -> list[str]:
    """Return what is offered for the last word of a line, as zsh asks: with its words whole."""
    words = f"dynamic-mcp {line}"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return [each.partition(",")[2] for each in cli.run(**asked).out.splitlines() if each]


# What is offered for the last word of each line.
OFFERED = {
    "call art paint ": ["colour=", "tags=", "where.city=", "where.indoors="],
    "call art paint colour=red w": ["where.city=", "where.indoors="],
    "call art paint colour=red tags=a ": ["tags=", "where.city=", "where.indoors="],
    "call art paint colour=r": ["colour=red"],
    "access check --group a": ["art"],
    "access check --group art --tool ": ["paint"],
    "access classify a": ["art"],
    "call art paint where.indoors=": ["where.indoors=true", "where.indoors=false"],
    "call art paint nothing=": [],
    "call art unknown ": [],
    "prompt full gr": ["greet"],
    "prompt full greet ": ["city=", "style="],
    "prompt full greet city=Oslo ": ["style="],
    "serve --only a": ["art"],
    "serve dynamic-mcp.json --only f": ["full"],
    "install curs": ["cursor"],
    "uninstall curs": ["cursor"],
    "import cursor goo": ["goose"],
}


def test_overridden_tools_are_offered_as_they_are_shown(painter: CliRunner) -> None:
    servers = json.loads(painter.config.read_text(encoding="utf-8"))["mcpServers"]
    arguments = {"colour": {"rename": "shade"}, "tags": {"fixed": []}}
    servers["art"]["overrides"] = {"paint": {"rename": "draw", "arguments": arguments}}
    painter.configure(servers)
    assert complete(painter, "call art ") == ["draw"]
    assert complete(painter, "call art draw ") == ["shade=", "where.city=", "where.indoors="]


def test_arguments_prompts_and_ai_tools_are_offered(painter: CliRunner) -> None:
    assert {line: complete(painter, line) for line in OFFERED} == OFFERED


def test_no_server_is_started_to_complete(painter: CliRunner) -> None:
    before = (painter.folder / "starts").read_text(encoding="utf-8")
    assert complete(painter, "call art paint col") == ["colour="]
    assert (painter.folder / "starts").read_text(encoding="utf-8") == before


def test_without_a_config_nothing_is_offered_and_nothing_said(cli: CliRunner) -> None:
    cli.config.write_text("{", encoding="utf-8")
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": "dynamic-mcp call full echo ", "COMP_CWORD": "4"}
    done = cli.run(**asked)
    assert (done.out.strip(), done.err) == ("", "")


@pytest.mark.posix_only("asks bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["call", "art", "paint", "col"], ["colour="]),
        (["call", "art", "paint", "colour", "="], ["red", "light\\ blue"]),
        (["call", "art", "paint", "colour", "=", "r"], ["red"]),
        (["call", "art", "paint", "colour", "=", "red", "where.i"], ["where.indoors="]),
        (["call", "art", "paint", "colour", "=", "red", "where.indoors", "=", "f"], ["false"]),
        (["to"], ["tools", "token"]),
    ],
)
def test_bash_which_cuts_words_at_the_equals_sign_gets_what_it_can_put_there(
    painter: CliRunner, words: list[str], replies: list[str]
) -> None:
    line = "dynamic-mcp"
    for word in words:
        line += word if word == "=" or line.endswith("=") else f" {word}"
    program = painter.folder / "dynamic-mcp"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dynamic_mcp "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    cut = " ".join(map(shlex.quote, ["dynamic-mcp", *words]))
    script = f"""
        compopt() {{ :; }}  # works while bash completes, only
        eval "$({program} completions bash)"
        COMP_WORDS=({cut}) COMP_CWORD={len(words)} COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        _dynamic_mcp_completion {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=painter.folder,
        env=painter.environment(PYTHONPATH=str(UPSTREAMS.parent.parent)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout.splitlines(), done.stderr) == (replies, "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_no_space_is_put_after_a_key(cli: CliRunner, shell: str) -> None:
    assert "== *= ]] && " in cli.run("completions", shell).out


def test_the_script_is_for_the_program_by_its_name(cli: CliRunner) -> None:
    assert "complete -o nosort -F _dynamic_mcp_completion dynamic-mcp" in cli.run("completions", "bash").out


def test_powershell_gets_a_script_that_its_lexer_understands(cli: CliRunner) -> None:
    tokens = list(PowerShellLexer().get_tokens(cli.run("completions", "powershell").out))
    assert [text for kind, text in tokens if kind in Error] == []
    text = "".join(text for kind, text in tokens if kind not in String)
    assert [text.count(opening) - text.count(closing) for opening, closing in ("{}", "()", "[]")] == [0, 0, 0]
    assert "Register-ArgumentCompleter -Native -CommandName dynamic-mcp " in text


# What the script for PowerShell makes of a line, each word in single quotes, and what it reads.
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["call", "art", "paint", "colour="], ["plain,colour=red", "plain,colour=light blue"]),
        (["call", "art", "paint", "colour=light b"], ["plain,colour=light blue"]),
        (["call", "art", "it's", ""], []),
        (["to"], ["plain,tools", "plain,token"]),
    ],
)
def test_powershell_asks_with_each_word_in_quotes(painter: CliRunner, words: list[str], replies: list[str]) -> None:
    quoted = ["'" + word.replace("'", "'\\''") + "'" for word in ("dynamic-mcp", *words)]
    asked = {
        "_DYNAMIC_MCP_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(quoted),
        "COMP_CWORD": str(len(words)),
        "PYTHONIOENCODING": "utf-8",
    }
    assert painter.run(**asked).out.split() == " ".join(replies).split()
