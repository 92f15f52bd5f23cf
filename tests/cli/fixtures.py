"""What tests of commands get: a config, the homes that commands use, and what is in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.cli.setting_up import SECRET
from tests.program import full, odd


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    """A config with one server that can do everything, by the name `full`."""
    runner = CliRunner(tmp_path)
    runner.configure({"full": full(description="Everything that there is")})
    return runner


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The state directory of the proxies and of the commands."""
    for name in ("XDG_STATE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    return tmp_path / "state" / "dynamic-mcp"


@pytest.fixture
def home(cli: CliRunner) -> Path:
    """A home with Cursor, which has a working server and a broken one, and Claude Code, which has another."""
    cli.config.unlink()
    home = cli.folder / "person"
    (home / ".cursor").mkdir(parents=True)
    start = " ".join([full()["command"], *full()["args"]])
    needs_its_secret = ["-c", f'case "$API_TOKEN" in sk-*) exec {start};; esac; exit 3']
    working = {"command": "sh", "args": needs_its_secret, "env": {"API_TOKEN": SECRET}}
    cursor = {"full": working, "broken": {"command": "no-such-command"}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": cursor}, indent=4), encoding="utf-8")
    (home / ".claude.json").write_text(
        json.dumps({"theme": "dark", "mcpServers": {"other": odd()}}), encoding="utf-8"
    )
    return home


@pytest.fixture
def config(cli: CliRunner) -> Path:
    """Where the config of a person goes."""
    return cli.folder / "home" / "dynamic-mcp" / "dynamic-mcp.json"
