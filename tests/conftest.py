"""What every test gets: a cache and a state of its own, so that nothing is left over from another one."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

# For `tests/cli/test_fuzz.py`, which tries 10,000 command lines with it.
settings.register_profile("long", deadline=None)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Take back what a command does to the log of the program that it runs in."""
    loggers = [logging.getLogger(name) for name in (None, "dynamic_mcp")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        yield
