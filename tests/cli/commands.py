"""Commands run whole, as a person or a script runs them: exit code, stdout and stderr."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import own_process
from tests.terminal import open_terminal
from tests.windows import home_variables

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
        self.config.write_text(json.dumps({"mcpServers": servers, **root}), encoding="utf-8")

    def environment(self, **changes: str) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
        home = home_variables(Path(changes["HOME"])) if "HOME" in changes else {}
        return {**ours, "XDG_CONFIG_HOME": str(self.folder / "home"), **home, **changes}

    @staticmethod
    def command(*args: str) -> tuple[str, ...]:
        """Return the words that start the program itself, for a shell."""
        return (*own_process.OWN, *args)

    async def start(self, *args: str) -> own_process.Process:
        """Start a command whose output is read while it runs."""
        return await own_process.start(*args, stdin=own_process.DEVNULL, env=self.environment(), cwd=self.folder)

    def run(self, *args: str, stdin: str | bytes = "", **env: str) -> CommandResult:
        """Run a command whose streams are no terminal."""
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = own_process.run(*args, stdin=data, env=self.environment(**env), cwd=self.folder)
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_at_once(self, *commands: Sequence[str]) -> list[CommandResult]:
        """Start these commands at the same time, and wait for all of them."""
        with ThreadPoolExecutor(len(commands)) as pool:
            return list(pool.map(lambda args: self.run(*args), commands))

    def run_on_terminal(self, *args: str, width: int = 80, typed: bytes = b"", **env: str) -> CommandResult:
        """Run a command on a terminal of this width; `out` is all that it printed; `typed` is input typed ahead."""
        environment = self.environment(**{"TERM": "xterm-256color", **env})
        with open_terminal(*args, env=environment, cwd=self.folder, rows=40, columns=width) as person:
            person.types(typed)
            return CommandResult(person.ends(), person.output.decode().replace("\r\n", "\n"))


def run_with_memory_limit(cli: CliRunner, *args: str) -> CommandResult:
    """Run a command with 4 GiB of address space, so that one without a bound fails without harm."""
    environment = cli.environment(HOME=str(cli.folder))
    done = own_process.run(*args, env=environment, cwd=cli.folder, memory=4 << 30)
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())
