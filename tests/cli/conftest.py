from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Desk
from tests.program import full


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with one server that can do everything, by the name `full`."""
    made = Desk(tmp_path)
    made.configure({"full": full(description="Everything that there is")})
    return made
