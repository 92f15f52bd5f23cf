"""What every test gets: a home of its own, so that nothing is left over from another one, or with the developer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
from hypothesis import settings

from tests.idle_loop import IdleLoop

# The tests start thousands of programs: what one has compiled is kept for the next, as where they are installed.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell has what it starts in the background ignore Ctrl-C, and so would all programs that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For `tests/cli/test_fuzz.py`, which tries 10,000 command lines with it.
settings.register_profile("long", deadline=None)

# How long an example takes says something about the machine, and nothing about the code.
hypothesis.settings.register_profile("without clocks", deadline=None)
hypothesis.settings.load_profile("without clocks")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let every test run in a loop that can tell when nothing is left to do, where the system has such loops."""
    return {"loop": asyncio.new_event_loop if sys.platform == "win32" else IdleLoop}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Let `-n auto` be more workers than cores: most tests wait for programs for as long as they compute."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2 * cores, cores + 4)


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
