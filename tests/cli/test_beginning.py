"""`init`: it asks on a terminal only, and each answer is a command."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess

from tests.cli.commands import Desk, plain


def test_without_a_terminal_nobody_is_asked(desk: Desk) -> None:
    done = desk.run("init")
    assert (done.code, done.out) == (2, "")
    assert "error: init asks questions, and there is no terminal to answer on" in done.err


def test_on_a_terminal_a_first_server_is_added(desk: Desk) -> None:
    desk.config.unlink()
    ours, theirs = pty.openpty()
    environment = desk.environment(TERM="xterm", HOME=str(desk.folder), PATH=os.environ["PATH"])
    process = subprocess.Popen(
        desk.command("init"), cwd=desk.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = ""
    answers = [
        ("Add a server by hand?", "y"),
        ("Its name:", "time\r"),
        ("Its command", "uvx 'mcp server'\r"),
        ("What it is good for", "Clocks\r"),
        ("Add a server by hand?", "n"),
        ("Connect to every server", "n"),
    ]
    seen = 0
    for question, answer in answers:
        while question not in plain(shown[seen:]):
            assert select.select([ours], [], [], 30)[0], f"no `{question}` in {shown!r}"
            shown += os.read(ours, 65536).decode()
        seen = len(shown)
        os.write(ours, answer.encode())
    with contextlib.suppress(OSError):
        while data := os.read(ours, 65536):
            shown += data.decode()
    os.close(ours)
    assert process.wait(30) == 0
    made = json.loads((desk.folder / "home" / "dynamic-mcp" / "dynamic-mcp.json").read_text())
    assert made == {"mcpServers": {"time": {"description": "Clocks", "command": "uvx", "args": ["mcp server"]}}}
