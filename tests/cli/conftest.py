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
