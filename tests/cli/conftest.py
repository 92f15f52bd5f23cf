from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.program import full


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
    return tmp_path / "state" / "dynamic-mcp"
