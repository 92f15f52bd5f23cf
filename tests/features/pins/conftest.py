from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import CliRunner
from tests.features.pins.calculator import Calculator


@pytest.fixture
def calc(cli: CliRunner, state: Path, monkeypatch: pytest.MonkeyPatch) -> Calculator:
    """A config with a server whose definitions can be changed, and pins and catalogs of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cli.folder / "cache"))
    return Calculator(cli)
