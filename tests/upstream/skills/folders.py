"""Folders of skills, and what a client of the whole proxy sees of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from dynamic_mcp.config.read import read
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, Json
from tests.program import BOUND_S


def write_skill(folder: Path, path: str, front_matter: str = "description: Does it", **files: str | bytes) -> Path:
    """Write a skill, with files beside its SKILL.md, and return its directory."""
    directory = folder / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SKILL.md").write_text(f"---\nname: {directory.name}\n{front_matter}\n---\n# {path}\n")
    for name, content in files.items():
        file = directory / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


@contextlib.asynccontextmanager
async def serving(folder: Path, **servers: Json) -> AsyncIterator[Client]:
    """Serve a config with these servers, by default the group `own` of the folder `skills` beside it."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers or {"own": {"skills": ["./skills"]}}}))
    proxy = Proxy(read(file, {"PATH": os.environ["PATH"], "HOME": str(folder)}))
    client = Client(proxy, bound_s=BOUND_S)
    try:
        await client.initialize()
        yield client
    finally:
        await proxy.close()
