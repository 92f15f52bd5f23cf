"""Runs the scanned program: only with arguments that print help, and within limits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from dynamic_mcp.config.environment import minimal_variables
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.cli.run import run

# Wide, so that nothing is wrapped or cut; without pager, colour and prompts.
_VARIABLES = {
    "COLUMNS": "200",
    "MANWIDTH": "200",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "AWS_PAGER": "",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "GIT_TERMINAL_PROMPT": "0",
    "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
}
MAX_RUNS = 400
MAX_TOTAL_S = 300.0
MAX_RUN_S = 15.0
MAX_RUN_BYTES = 4 << 20
MAX_TOTAL_BYTES = 64 << 20


class RunResult(Struct, frozen=True):
    """A run, and its exit code or why it was stopped."""

    words: tuple[str, ...]
    end: str


class RunLimits(Struct, frozen=True):
    """The limits of all runs of a scan."""

    runs: int = MAX_RUNS
    total_s: float = MAX_TOTAL_S
    run_s: float = MAX_RUN_S
    run_bytes: int = MAX_RUN_BYTES
    total_bytes: int = MAX_TOTAL_BYTES


class Runner:
    """Runs programs in an empty directory, with a minimal environment and without input."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        *,
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.results: list[RunResult] = []
        self._directory = directory
        ceiling = {"GIT_CEILING_DIRECTORIES": os.fspath(directory.parent)}
        self._env = {**minimal_variables(environment, (), platform=sys.platform), **_VARIABLES, **ceiling}
        self._limits = limits
        self._now = now
        self._started = now()
        self._bytes = 0

    @property
    def is_exhausted(self) -> bool:
        """True if a limit is reached."""
        return (
            len(self.results) >= self._limits.runs
            or self._bytes >= self._limits.total_bytes
            or self._now() - self._started >= self._limits.total_s
        )

    async def read(self, command: str, words: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        """Run a program and return its stdout, or its stderr if that is empty."""
        if self.is_exhausted:
            return ""
        program = Program(
            command=command, args=tuple(words), env={**self._env, **(env or {})}, cwd=os.fspath(self._directory)
        )
        try:
            outcome = await run(
                program, stdin=None, timeout_s=self._limits.run_s, output_limit=self._limits.run_bytes
            )
        except (OSError, ValueError) as exc:
            self.results.append(RunResult((command, *words), str(exc)))
            return ""
        self._bytes += outcome.stdout.size + outcome.stderr.size
        self.results.append(RunResult((command, *words), outcome.stopped or f"exit code {outcome.code}"))
        stdout = outcome.stdout.text()
        return stdout if stdout.strip() else outcome.stderr.text()
