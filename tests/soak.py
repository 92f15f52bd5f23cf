"""Chooses what `pytest -m soak --soak-of-today` runs: the long tests of one file, of each when its day comes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest


class SoakOfToday:
    """Leaves out all tests but the long ones of one file."""

    def __init__(self, today: datetime.date) -> None:
        self._today = today

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the others."""
        soak = [item for item in items if item.get_closest_marker("soak")]
        file = choose([str(item.path) for item in soak], self._today)
        config.hook.pytest_deselected(items=[item for item in items if item not in soak or str(item.path) != file])
        items[:] = [item for item in soak if str(item.path) == file]


def choose(files: Sequence[str], day: datetime.date) -> str:
    """Return the file whose turn it is; empty if there is none."""
    turns = sorted(set(files))
    return turns[day.toordinal() % len(turns)] if turns else ""
