"""The command line as a whole: its help, its exit codes, what it says to a wrong word."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import click  # noqa: F401 - it cannot be loaded once the platform is another
import pytest

from dynamic_mcp import __version__
from dynamic_mcp.cli.command_names import command_names
from dynamic_mcp.cli.main import run
from tests.cli.commands import CliRunner

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def test_the_version_is_data(cli: CliRunner) -> None:
    done = cli.run("--version")
    assert (done.code, done.out, done.err) == (0, f"dynamic-mcp {__version__}\n", "")


def test_help_lists_every_command_and_the_exit_codes(cli: CliRunner) -> None:
    done = cli.run("--help")
    assert (done.code, done.err) == (0, "")
    for word in (*command_names(), "Exit codes: 0 success", "130 interrupted"):
        assert word in done.out


@pytest.mark.parametrize("command", command_names())
def test_every_command_has_help(cli: CliRunner, command: str) -> None:
    done = cli.run(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: dynamic-mcp {command}")


@pytest.mark.parametrize("command", command_names())
def test_no_summary_of_a_subcommand_is_cut_off(cli: CliRunner, command: str) -> None:
    _, _, subcommands = cli.run(command, "--help").out.partition("\nCommands:\n")
    assert "..." not in subcommands


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["tols"], "error: no command or config file is named `tols`\nhint: did you mean `tools`?"),
        (["frobnicate"], "error: no command or config file is named `frobnicate`\nhint: `dynamic-mcp --help`"),
        (["tools", "--jason"], "error: no such option `--jason`"),
        (["call", "full"], "error: missing argument `TOOL`\nhint: `dynamic-mcp call --help` shows the usage"),
        (["audit", "export"], "error: missing option `--format`: choose from csv, ocsf, jsonl\nhint: "),
        (["tools", "ful"], "error: no group is named `ful`\nhint: did you mean `full`?"),
        (["logs", "--since", "1 parsec"], "error: --since is not a duration: `1 parsec`"),
        (["tools", "-c", "nowhere.json"], "nowhere.json: does not exist"),
        (["serve", "a.json", "-c", "b.json"], "error: two configs are given"),
        (["check", "a.json", "-c", "b.json"], "error: two configs are given"),
        (["-q", "tools"], "error: the command comes first: `dynamic-mcp tools [OPTIONS] …`"),
        (["auth"], "Usage: dynamic-mcp auth [OPTIONS] COMMAND [NAME]"),
        (["auth", "lgin"], "error: no such command `lgin`; did you mean "),
        (["install", "cursor", "-c", "nowhere.json"], "nowhere.json: does not exist\nhint: `dynamic-mcp init`"),
        (["--log-level", "loud"], "error: --log-level: `loud` is not a level"),
    ],
)
def test_a_wrong_word_is_answered_with_the_closest_and_exit_code_2(
    cli: CliRunner, args: list[str], said: str
) -> None:
    done = cli.run(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_the_schema_is_printed(cli: CliRunner) -> None:
    done = cli.run("schema")
    assert done.code == 0
    assert done.json["title"] == "dynamic-mcp config"


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete "), ("zsh", "compdef"), ("fish", "complete --no-files")]
)
def test_completions_are_printed_for_each_shell(cli: CliRunner, shell: str, word: str) -> None:
    done = cli.run("completions", shell)
    assert (done.code, done.err) == (0, "")
    assert word in done.out


@pytest.mark.parametrize(
    ("typed", "offered"), [("to", "tools"), ("tools fu", "full"), ("call full ech", "echo"), ("disable fu", "full")]
)
def test_a_shell_is_offered_commands_groups_and_known_tools(cli: CliRunner, typed: str, offered: str) -> None:
    cli.run("tools", "full")
    words = f"dynamic-mcp {typed}"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = cli.run(**asked)
    assert f"plain,{offered}\n" in done.out


def test_a_reader_that_has_seen_enough_is_no_error(cli: CliRunner) -> None:
    with subprocess.Popen(cli.command("schema"), cwd=cli.folder, stdout=PIPE, stderr=PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"{"
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_closed_pipe_of_windows_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with io.TextIOWrapper(_ClosedPipe(), write_through=True) as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "platform", "win32")
        assert run(["--version"]) == 1
    assert capsys.readouterr().err == ""


class _ClosedPipe(io.FileIO):
    """A file that refuses all data, as Windows refuses it for a pipe that nobody reads."""

    def __init__(self) -> None:
        super().__init__(os.devnull, "w")

    def write(self, data: ReadableBuffer, /) -> int:
        if len(memoryview(data)):
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.posix_only("a device")
@pytest.mark.parametrize("command", ["schema", "status", "--version"])
def test_a_full_disk_is_said_in_one_line(cli: CliRunner, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(cli.command(command), cwd=cli.folder, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (told.returncode, told.stderr) == (1, b"error: cannot be written: no space left on device\n")


def test_quiet_commands_say_nothing_of_what_is_as_it_should_be(cli: CliRunner) -> None:
    cli.configure({"remote": {"url": "http://127.0.0.1:9/mcp"}})
    assert cli.run("auth", "logout").err == "remote: not logged in\n"
    assert cli.run("auth", "logout", "-q").err == ""


@pytest.mark.parametrize(
    "args", [["--help"], ["schema"], ["undo", "--list"], ["check", "--json"], ["status"], ["logs"], ["add", "--help"]]
)
def test_what_does_not_connect_loads_nothing_that_connects(cli: CliRunner, args: list[str]) -> None:
    code = (
        "import sys; from dynamic_mcp.cli.main import run; "
        f"run({args!r}); "
        "print([m for m in ('mcp', 'httpx2', 'uvloop', 'jsonschema', 'questionary', 'dynamic_mcp.proxy')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cli.folder,
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("code_page", ["cp1252", "cp437"])
def test_a_pipe_of_windows_gets_utf_8_and_the_line_breaks_of_the_text(
    monkeypatch: pytest.MonkeyPatch, code_page: str
) -> None:
    out = piped(monkeypatch, code_page)
    monkeypatch.setattr(sys, "platform", "win32")
    assert run(["--help"]) == 0
    print("日本 ✓")
    sys.stdout.flush()
    assert out.getvalue().decode().endswith("\n日本 ✓\n")
    assert sys.stdin.read() == "é"


def test_half_a_character_and_odd_bytes_in_a_pipe_of_windows_are_shown_as_escapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = piped(monkeypatch, "cp1252", typed=b"\xff\n")
    monkeypatch.setattr(sys, "platform", "win32")
    assert run(["--help"]) == 0
    print("half \ud83d")
    sys.stdout.flush()
    assert out.getvalue().decode().endswith("\nhalf \\ud83d\n")
    assert sys.stdin.read() == "\\xff\n"


def test_python_s_own_variable_decides_about_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    out = piped(monkeypatch, "cp1252")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    assert run(["--help"]) == 0
    print("é ✓")
    sys.stdout.flush()
    assert out.getvalue().decode("cp1252").splitlines()[-1] == "é \\u2713"


def piped(monkeypatch: pytest.MonkeyPatch, code_page: str, *, typed: bytes = "\ufeffé".encode()) -> io.BytesIO:
    """Make the streams those of a pipe on Windows, the input with a BOM; return what is written to stdout."""
    out = io.BytesIO()
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, code_page, newline="\r\n", write_through=True))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), code_page))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), code_page))
    return out
