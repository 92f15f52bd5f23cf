"""What the tests of `init` share: its questions, and a person who answers them at a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cli.commands import CliRunner, CommandResult, strip_escapes

SECRET = "sk-abcdefghijklmnop1234567890"


def run(cli: CliRunner, home: Path, *args: str) -> CommandResult:
    return cli.run(*args, HOME=str(home))


def servers_of(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text())["mcpServers"]
    return found


def run_at_terminal(
    cli: CliRunner, home: Path, *turns: tuple[str, str], command: Sequence[str] = ("init",)
) -> tuple[str, int]:
    """Answer the questions of `init`, or another command, on a terminal; return what was shown, and the code."""
    ours, theirs = pty.openpty()
    environment = cli.environment(TERM="xterm", HOME=str(home), PATH=os.environ["PATH"], COLUMNS="200")
    process = subprocess.Popen(
        cli.command(*command), cwd=cli.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, seen = "", 0
    for question, answer in turns:
        while question not in strip_escapes(shown[seen:]):
            assert select.select([ours], [], [], 30)[0], f"no `{question}` in {shown!r}"
            shown += os.read(ours, 65536).decode()
        seen = len(shown)
        os.write(ours, answer.encode())
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        while data := os.read(ours, 65536):
            shown += data.decode()
    os.close(ours)
    return strip_escapes(shown), process.wait(30)


QUESTIONS = (
    "Set up dynamic-mcp for",
    "Leave out the server that does not start (broken)?",
    "Remove the imported",
    "Run each server only once, for all AI tools and windows?",
    "Go ahead?",
)


def keystrokes(answers: Sequence[str] = ("\r",) * 5) -> list[tuple[str, str]]:
    return list(zip(QUESTIONS, answers, strict=True))
