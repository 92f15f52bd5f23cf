"""What reaches a batch file of Windows as an argument is that argument, and nothing of it is a command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.process import batch
from dynamic_mcp.upstream.process.child import start
from tests.program import BOUND_S

CMD = r"C:\Windows\System32\cmd.exe"
FILE = r"C:\Program Files\nodejs\npx.cmd"
# What cmd.exe reads as a command, a redirection, a group, an escape or a variable outside of quotes.
COMMANDS = frozenset("&|<>()^\n\r\0")
EVIL = (
    '"&calc.exe',
    'a"&calc&"b',
    '%PATH%"&calc',
    "%CMDCMDLINE:~-1%&calc",
    "^&calc",
    "a\\",
    '\\"&calc',
    '\\\\" | calc',
    "!PATH!",
    "%%a",
    "",
    "a b",
    "a,b;c=d",
    "ünï",
)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30) | st.text('"\\%&|^! a', max_size=12)


def read_as_cmd(line: str) -> str:
    """Return what a batch file gets for `%*` and passes on, by the documented rules of cmd.exe's parser.

    Fails if a character that has a meaning is not in quotes, or a variable is expanded.
    """
    prefix = f'"{CMD}" /d /e:on /v:off /c "'
    assert line.startswith(prefix)
    assert line.endswith('"')
    inner = line.removeprefix(prefix)[:-1]
    assert inner.count("%") % 3 == 0
    expanded = inner.replace("%%cd:~,%", "\1")
    assert "%" not in expanded
    is_quoted = False
    for char in expanded:
        if char == '"':
            is_quoted = not is_quoted
        assert is_quoted or char not in COMMANDS
    assert not is_quoted
    return expanded.replace("\1", "%")


def split_as_c(line: str) -> list[str]:
    """Split a command line as Microsoft's C runtime does: https://learn.microsoft.com/cpp/c-language/parsing-c-command-line-arguments"""
    words: list[str] = []
    position = 0
    while position < len(line):
        if line[position] in " \t":
            position += 1
            continue
        word, is_quoted = "", False
        while position < len(line) and (is_quoted or line[position] not in " \t"):
            end = position
            while end < len(line) and line[end] == "\\":
                end += 1
            backslashes = end - position
            if line[end : end + 1] != '"':
                word += "\\" * backslashes + line[end : end + 1] if backslashes else line[position]
                position = end + 1 if backslashes else position + 1
                continue
            word += "\\" * (backslashes // 2)
            if backslashes % 2:
                word += '"'
                position = end + 1
            elif is_quoted and line[end + 1 : end + 2] == '"':
                word += '"'
                position = end + 2
            else:
                is_quoted = not is_quoted
                position = end + 1
        words.append(word)
    return words


@given(st.lists(texts, max_size=5))
@example(list(EVIL))
def test_a_program_behind_a_batch_file_gets_the_arguments_and_cmd_finds_nothing_in_them(args: list[str]) -> None:
    line = batch.make_command_line(CMD, FILE, args)
    assert split_as_c(read_as_cmd(line)) == [FILE, *args]


@given(texts)
def test_a_quoted_parameter_of_a_batch_file_ends_where_its_quotes_end(text: str) -> None:
    # `"%~1"` puts quotes around the parameter without its own: a backslash at the end must not escape the second
    line = batch.make_command_line(CMD, FILE, [text])
    parameter = read_as_cmd(line).removeprefix(f'"{FILE}" ')
    bare = parameter[1:-1] if parameter.startswith('"') else parameter
    assert split_as_c(f'"{bare}" next') == [text, "next"]


@pytest.mark.parametrize("char", ["\n", "\r", "\0", "\x1a"])
def test_what_cannot_be_escaped_is_refused(char: str) -> None:
    with pytest.raises(ValueError, match="its argument 2 has a line break or a control character"):
        batch.make_command_line(CMD, FILE, ["-y", f"a{char}calc"])


def test_a_line_that_cmd_would_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="can have 8191 characters, and this has"):
        batch.make_command_line(CMD, FILE, ["x" * 9000])


@pytest.mark.parametrize("name", ["npx.cmd", "NPX.CMD", "a.bat", "a.bat. .", "a.cmd "])
def test_a_batch_file_is_known_by_its_name_as_windows_reads_it(name: str) -> None:
    assert batch.is_batch(name)
    assert not batch.is_batch(f"{name.strip('. ')}.exe")


@pytest.mark.skipif(sys.platform != "win32", reason="there is no cmd.exe")
@pytest.mark.parametrize(
    "args", [("-y", "@scope/server", "C:\\a b\\"), *[(each,) for each in EVIL if "%" not in each]]
)
async def test_a_real_batch_file_passes_its_arguments_on(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert await run_shim(tmp_path, args) == args


@pytest.mark.skipif(sys.platform != "win32", reason="there is no cmd.exe")
@pytest.mark.not_in_wine("its cmd.exe expands variables in `%*` again; that of Windows does not look at it twice")
@pytest.mark.parametrize("args", [(each,) for each in EVIL if "%" in each])
async def test_a_real_batch_file_gets_no_variables_for_percent_signs(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert await run_shim(tmp_path, args) == args


async def run_shim(tmp_path: Path, args: tuple[str, ...]) -> tuple[str, ...]:
    """Run a batch file like the shims of npm, found by its name without a suffix; return what its program gets."""
    folder = tmp_path / "node js"
    folder.mkdir()
    script = tmp_path / "print.py"
    script.write_text("import json, sys; print(json.dumps(sys.argv[1:]))", encoding="utf-8")
    (folder / "shim").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "shim.cmd").write_text(f'@echo off\r\n"{sys.executable}" "{script}" %*\r\n', encoding="utf-8")
    environment = {**os.environ, "PATH": f"{tmp_path};{folder}"}
    process = await start(Program("shim", args, environment, None))
    output, ended = bytearray(), asyncio.Event()
    await process.open_pipes(
        output.extend, output.extend, on_stdin_end=lambda: None, on_stdout_end=ended.set, on_exit=lambda: None
    )
    async with asyncio.timeout(BOUND_S):
        await ended.wait()
    await process.stdin.close()
    await process.end(grace_s=0, kill_within_s=BOUND_S)
    process.close_pipes()
    return tuple(json.loads(output.decode()))
