"""Commands run whole, as a person or a script runs them: exit code, stdout and stderr."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "dynamic_mcp")
BOUND_S = 60
_NOT_OURS = {
    "DYNAMIC_MCP_CONFIG",
    "DYNAMIC_MCP_LOG",
    "DYNAMIC_MCP_PROFILE",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
}


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:  # Any: whatever JSON a command prints
        return json.loads(self.out)


@dataclass(frozen=True)
class CliRunner:
    """Runs commands in a directory that has a config."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "dynamic-mcp.json"

    def configure(self, servers: object, **root: object) -> None:
        self.config.write_text(json.dumps({"mcpServers": servers, **root}))

    def environment(self, **changes: str) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
        return {**ours, "XDG_CONFIG_HOME": str(self.folder / "home"), **changes}

    @staticmethod
    def command(*args: str) -> tuple[str, ...]:
        return (*PROGRAM, *args)

    def run(self, *args: str, stdin: str = "", **env: str) -> CommandResult:
        """Run a command whose streams are pipes."""
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.folder,
            env=self.environment(**env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def run_at_once(self, *commands: Sequence[str]) -> list[CommandResult]:
        """Start these commands at the same time, and wait for all of them."""
        started = [
            subprocess.Popen(
                [*PROGRAM, *args],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for args in commands
        ]
        said = [each.communicate(timeout=BOUND_S) for each in started]
        return [CommandResult(each.returncode, *texts) for each, texts in zip(started, said, strict=True)]

    def run_on_terminal(self, *args: str, width: int = 80, typed: bytes = b"", **env: str) -> CommandResult:
        """Run a command on a terminal of this width; `out` is all that it printed; `typed` is input typed ahead."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        environment = self.environment(**{"TERM": "xterm-256color", **env})
        process = subprocess.Popen(
            [*PROGRAM, *args], cwd=self.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        with contextlib.suppress(OSError):  # Linux says so when the other end is closed
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        return CommandResult(process.wait(BOUND_S), shown.decode().replace("\r\n", "\n"))


def run_with_memory_limit(cli: CliRunner, *args: str) -> CommandResult:
    """Run a command with 4 GiB of address space, so that one without a bound fails without harm."""
    command = ["sh", "-c", 'ulimit -v 4194304; exec "$@"', "sh", *cli.command(*args)]
    environment = cli.environment(HOME=str(cli.folder))
    done = subprocess.run(
        command,
        cwd=cli.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def strip_escapes(shown: str) -> str:
    """Return terminal output without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
