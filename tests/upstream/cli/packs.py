"""Programs of shipped packs behind a whole proxy, and what must not happen to them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import require, serve


class Place:
    """A directory `work` for a program, a home, and a script that leaves a mark when something runs it."""

    def __init__(self, folder: Path, program: str) -> None:
        self.program = require(program)
        self.pack = program
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.mark = folder / "it-ran"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.evil = self.make_script("evil")

    def make_script(self, name: str) -> Path:
        """Make the script under another name."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch '{self.mark}'\nexit 1\n")
        file.chmod(0o755)
        return file

    def takes_mark(self) -> bool:
        """Whether the script has run since this was last asked."""
        has_run = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return has_run

    def run(self, *words: str, **variables: str) -> str:
        """Run the program as a person would, whatever comes of it; return what it writes."""
        done = subprocess.run(
            [self.program, *words],
            cwd=self.work,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        return done.stdout + done.stderr

    @contextlib.asynccontextmanager
    async def serve(self, variables: Mapping[str, str] | None = None, **cli: Json) -> AsyncIterator[Client]:
        """Serve all commands to a client, with these variables around the proxy."""
        entry: Json = {"use": self.pack, "commands": ["*"], "cwd": {"roots": ["work"]}, **cli}
        async with serve(self.folder, entry, environment={**self.environment, **(variables or {})}) as client:
            yield client


async def output_of(client: Client, tool: str, arguments: Json | None = None) -> str:
    """The output of a call that works."""
    result = await client.call("it", tool, arguments or {})
    assert not result.get("isError"), text_of(result)
    return str(result["structuredContent"]["stdout"])


async def error_of(client: Client, tool: str, arguments: Json | None = None) -> str:
    """The text of a call that fails."""
    result = await client.call("it", tool, arguments or {})
    assert result.get("isError"), text_of(result)
    return text_of(result)


async def refusal_of(client: Client, tool: str, arguments: Json) -> str:
    """The text of a call for which nothing was started."""
    text = await error_of(client, tool, arguments)
    assert "was not called, because its arguments do not fit" in text or "the program was not run" in text
    return text
