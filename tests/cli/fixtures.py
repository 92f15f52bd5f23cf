"""What tests of commands get: a config, the homes that commands use, and what is in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.cli.setting_up import SECRET
from tests.program import full, odd
from tests.windows import state_dir, user_dir

# Runs a server, with the path of its file, only if it has its secret.
NEEDS_ITS_SECRET = """
import os, runpy, sys
if not os.environ["API_TOKEN"].startswith("sk-"):
    sys.exit(3)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    """A config with one server that can do everything, by the name `full`."""
    runner = CliRunner(tmp_path)
    runner.configure({"full": full(description="Everything that there is")})
    return runner


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The state directory of the proxies and of the commands."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return state_dir(tmp_path / "state")


@pytest.fixture
def home(cli: CliRunner) -> Path:
    """A home with Cursor, which has a working server and a broken one, and Claude Code, which has another."""
    cli.config.unlink()
    home = cli.folder / "person"
    (home / ".cursor").mkdir(parents=True)
    working = {
        "command": sys.executable,
        "args": ["-c", NEEDS_ITS_SECRET, *full()["args"]],
        "env": {"API_TOKEN": SECRET},
    }
    cursor = {"full": working, "broken": {"command": "no-such-command"}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": cursor}, indent=4), encoding="utf-8")
    (home / ".claude.json").write_text(
        json.dumps({"theme": "dark", "mcpServers": {"other": odd()}}), encoding="utf-8"
    )
    return home


@pytest.fixture
def config(cli: CliRunner) -> Path:
    """Where the config of a person goes."""
    return user_dir(cli.folder / "home") / "dynamic-mcp.json"
