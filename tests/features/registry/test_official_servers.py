"""The official servers, added from a registry with documents as the official one has them, and then served.

They are used where their commands are on the PATH, as in `tests/journeys/test_real_servers.py`. In place of what
downloads and starts a package, a program starts the command of the package that is asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import own_process
from tests.features.registry.documents import filesystem, git, time
from tests.features.registry.fake_registry import FakeRegistry, fake_registry
from tests.hosting_fixtures import _hosting, pytest_generate_tests
from tests.program import serving, text_of

__all__ = ["_hosting", "pytest_generate_tests"]

pytestmark = pytest.mark.full
NAMESPACE = "io.github.modelcontextprotocol"
COMMANDS = {
    "@modelcontextprotocol/server-filesystem@1.0.0": "mcp-server-filesystem",
    "mcp-server-time==1.0.0": "mcp-server-time",
    "mcp-server-git==1.0.0": "mcp-server-git",
}
LAUNCHER = f"""#!{sys.executable} -ISE
import os, sys
words = [word for word in sys.argv[1:] if word != "-y"]
command = {COMMANDS}[words[0]]
os.execvp(command, [command, *words[1:]])
"""


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        for make in (filesystem, time, git):
            running.publish(make("1.0.0"))
        yield running


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `npx` and `uvx` of our own first on the PATH."""
    folder = tmp_path / "launchers"
    folder.mkdir()
    for name in ("npx", "uvx"):
        (folder / name).write_text(LAUNCHER)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def added(folder: Path, fake: FakeRegistry, *args: str) -> dict[str, object]:
    """Add a server, and return the servers of the config."""
    file = folder / "registry.json"
    if not file.exists():
        registries = [{"name": "fake", "url": fake.url}]
        file.write_text(json.dumps({"mcpServers": {}, "settings": {"registries": registries}}))
    done = own_process.run("add", *args, "--yes", "-c", str(file))
    assert done.returncode == 0, done.stderr.decode()
    servers: dict[str, object] = json.loads(file.read_text())["mcpServers"]
    return servers


@pytest.mark.usefixtures("launchers")
async def test_official_servers_are_added_and_answer(tmp_path: Path, fake: FakeRegistry) -> None:
    for command in COMMANDS.values():
        if shutil.which(command) is None:
            pytest.skip(f"the command `{command}` is not on the PATH of this machine")
    (tmp_path / "note.txt").write_text("remember")
    repository = tmp_path / "repository"
    await (await asyncio.create_subprocess_exec("git", "init", "-q", str(repository))).wait()
    added(tmp_path, fake, f"{NAMESPACE}/server-filesystem", "--as", "files", "--set", f"allowed_directory={tmp_path}")
    added(tmp_path, fake, f"{NAMESPACE}/server-time", "--as", "time", "--set", "local-timezone=UTC")
    servers = added(tmp_path, fake, f"{NAMESPACE}/server-git", "--as", "git", "--set", f"repository={repository}")
    async with serving(tmp_path, servers) as program:
        read = await program.call("files", "read_text_file", {"path": str(tmp_path / "note.txt")})
        assert "remember" in text_of(read)
        assert "UTC" in text_of(await program.call("time", "get_current_time", {"timezone": "UTC"}))
        assert "No commits" in text_of(await program.call("git", "git_status", {"repo_path": str(repository)}))
