"""Command line programs for tests: one that shows how it was started, and real ones behind a whole proxy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import CommandLine
from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, Json
from tests.program import BOUND_S

# Prints how it was started, as JSON.
MIRROR = """
import json, os, sys
stdin = sys.stdin.read()
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "stdin": stdin}))
"""


def command(**members: Any) -> Command:  # Any: JSON
    """Return a command as a pack would have it."""
    made = {"name": "run", "description": "Runs.", "effect": "read", **members}
    pack = {"name": "it", "program": "it", "description": "It.", "commands": [made]}
    return library.decode(json.dumps(pack).encode()).commands[0]


def line(*commands: Command, script: str = MIRROR, **changes: Any) -> CommandLine:  # Any: fields of CommandLine
    """Return a program that is a Python script, with these commands."""
    made = {"env": {"PATH": os.defpath}, "timeout_s": BOUND_S, **changes}
    return CommandLine(
        command=sys.executable,
        pack="it",
        description="It.",
        commands=commands or (command(),),
        fixed=("-c", script),
        **made,
    )


@contextlib.asynccontextmanager
async def serve(
    folder: Path, cli: Json, *, environment: Mapping[str, str] | None = None, **server: Json
) -> AsyncIterator[Client]:
    """Serve a config with one command line program, the group `it`, to a client of the two tools."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": {"cli": cli, **server}}}))
    proxy = Proxy(
        read(file, {"PATH": os.environ["PATH"], "HOME": str(folder)} if environment is None else environment)
    )
    client = Client(proxy, bound_s=BOUND_S)
    try:
        await client.initialize()
        yield client
    finally:
        await proxy.close()


def require(program: str) -> str:
    """Return the path of a real program, or skip the test."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"`{program}` is not installed")
    return found


def git(folder: Path, *words: str) -> str:
    """Run git to prepare a test; no setting of this machine counts."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout
