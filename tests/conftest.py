"""What every test gets: a cache and a state of its own, so that nothing is left over from another one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        yield
