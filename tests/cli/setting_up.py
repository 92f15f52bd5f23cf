"""What the tests of `init` share: its questions, and a person who answers them at a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tests.cli.commands import CliRunner, CommandResult
from tests.terminal import open_terminal

SECRET = "sk-abcdefghijklmnop1234567890"


def run(cli: CliRunner, home: Path, *args: str) -> CommandResult:
    return cli.run(*args, HOME=str(home))


def servers_of(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]
    return found


def run_at_terminal(
    cli: CliRunner, home: Path, *turns: tuple[str, str], command: Sequence[str] = ("init",)
) -> tuple[str, int]:
    """Answer the questions of `init`, or another command, on a terminal; return what was shown, and the code."""
    environment = cli.environment(TERM="xterm", HOME=str(home), PATH=os.environ["PATH"], COLUMNS="200")
    with open_terminal(*command, env=environment, cwd=cli.folder) as person:
        for question, answer in turns:
            person.shows(question)
            person.types(answer.encode())
        code = person.ends()
        return person.text, code


QUESTIONS = (
    "Set up dynamic-mcp for",
    "Skip the server that does not work now (broken)?",
    "(can be undone)",
    "Keep the servers running in the background, and share them between AI tools and windows?",
    "Go ahead? (can be undone)",
)


def keystrokes(answers: Sequence[str] = ("\r",) * 5) -> list[tuple[str, str]]:
    return list(zip(QUESTIONS, answers, strict=True))
