"""One person's machine: a home, a directory to work in and a clean environment, in which clients run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = Any  # whatever JSON is in a file
HERE = Path(__file__).parent
MODULES = Path(os.environ.get("DYNAMIC_MCP_TEST_CLIENTS", "nowhere"))
NODE = Path(os.environ.get("DYNAMIC_MCP_TEST_NODE", "nowhere"))
TURN_S = 100.0
_NOWHERE = "http://127.0.0.1:9"  # the port of `discard`: where whatever is not on this machine is to be sought


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


@dataclass(frozen=True)
class Machine:
    """All paths are below `folder`; `variables` are in the shell beside what every shell has."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The person's home."""
        return self._directory("home")

    @property
    def work(self) -> Path:
        """Where the person works."""
        return self._directory("work")

    @property
    def witness(self) -> Path:
        """The server, in a place where it may write down what it sees."""
        script = self._directory("servers") / "witness.py"
        if not script.exists():
            shutil.copy(HERE / "witness.py", script)
        return script

    @property
    def witnessed(self) -> list[dict[str, Json]]:
        """What the server over stdio was started and greeted with, the latest last."""
        record = Path(f"{self.witness}.jsonl")
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the shell: nothing of ours but where programs are."""
        folders = (NODE.parent, MODULES / ".bin", Path(sys.executable).parent, "/usr/local/bin", "/usr/bin", "/bin")
        return {
            "PATH": os.pathsep.join(map(str, folders)),
            "HOME": str(self.home),
            "USER": "somebody",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(self._directory("tmp")),
            "HTTP_PROXY": _NOWHERE,
            "HTTPS_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "DO_NOT_TRACK": "1",
            **self.variables,
        }

    def write(self, files: Mapping[str, str]) -> None:
        """Write files below the home."""
        for name, text in files.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def read(self) -> dict[str, bytes]:
        """Return every file below the home."""
        return {
            str(file.relative_to(self.home)): file.read_bytes() for file in self.home.rglob("*") if file.is_file()
        }

    async def run(self, *command: str, within_s: float = TURN_S, variables: Mapping[str, str] | None = None) -> Ran:
        """Run a command to its end, or end it, and whatever it leaves behind."""
        out, err = (Path(tempfile.mkdtemp(dir=self.folder)) / name for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**self.environment, **(variables or {})},
                cwd=self.work,
                start_new_session=True,
            )
        try:
            await asyncio.wait_for(process.wait(), within_s)
        except TimeoutError:  # what it has said by then tells more than the time
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
        return Ran(code, out.read_text(errors="replace"), err.read_text(errors="replace"))

    @property
    def config(self) -> Path:
        """The config that the program makes in this home."""
        return self.home / ".config" / "dynamic-mcp" / "dynamic-mcp.json"

    async def dynamic_mcp(self, *args: str) -> Ran:
        """Run one of the program's own commands, which must succeed."""
        ran = await self.run(sys.executable, "-m", "dynamic_mcp", *args)
        assert ran.code == 0, f"dynamic-mcp {' '.join(args)}: {ran}"
        return ran

    async def undo(self, client: str) -> None:
        """Undo the latest change; if the client has rewritten its file since, only remove the entry."""
        ran = await self.run(sys.executable, "-m", "dynamic_mcp", "undo", "--yes")
        if ran.code:
            assert "has changed since" in ran.err, ran
            await self.dynamic_mcp("uninstall", client)

    def _directory(self, name: str) -> Path:
        directory = self.folder / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory
