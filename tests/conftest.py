"""What every test gets: a cache and a state of its own, so that no catalog and no login is left over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as state:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        monkeypatch.setenv("XDG_STATE_HOME", state)
        yield
