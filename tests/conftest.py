"""What every test gets: a home of its own, so that nothing is left over from another one, or with the developer."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says something about the machine, and nothing about the code.
hypothesis.settings.register_profile("without clocks", deadline=None)
hypothesis.settings.load_profile("without clocks")


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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder, "home")
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", f"{folder}/{name.lower()}")
        yield
