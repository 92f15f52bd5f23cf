"""What every test gets: a home of its own, so that nothing is left over from another one, or with the developer."""

from __future__ import annotations

import asyncio
import datetime
import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import examples, leftovers, windows
from tests.idle_loop import IdleLoop
from tests.run_report import RunReport
from tests.soak import SoakOfToday

# The tests start thousands of programs: what one has compiled is kept for the next, as where they are installed.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# No test asks the registries of packages of the world; those with registries of their own say so to what they start.
os.environ.update(npm_config_offline="true", UV_OFFLINE="1", PIP_NO_INDEX="1")
# A shell has what it starts in the background ignore Ctrl-C, and so would all programs that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the choice of long tests."""
    parser.addoption("--soak-of-today", action="store_true", help="of `-m soak`, run one file, by the date")


def pytest_configure(config: pytest.Config) -> None:
    """Look after the run as a whole, in the process that collects the results."""
    if config.option.soak_of_today:
        config.pluginmanager.register(SoakOfToday(datetime.datetime.now(datetime.UTC).date()))
    if windows.is_wine():
        windows.open_desktop()
    is_first_tier = config.option.markexpr == "not full and not soak"
    examples.choose_profile(is_first_tier=is_first_tier)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        config.pluginmanager.register(leftovers.Leftovers())
        config.pluginmanager.register(RunReport(is_first_tier=is_first_tier))
    if getattr(config.option, "dist", "no") == "load":  # which gives one worker hundreds of slow tests in a row
        config.option.dist = "worksteal"
    if worker or getattr(config.option, "dist", "no") == "no":
        leftovers.use_run_folder(worker or "main")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what the system that runs the tests does not promise."""
    if sys.platform == "win32":
        for name in ("posix_only", "not_in_wine") if windows.is_wine() else ("posix_only",):
            for mark in item.iter_markers(name):
                pytest.skip(mark.args[0])


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let every test run in a loop that can tell when nothing is left to do."""
    return {"loop": IdleLoop}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Let `-n auto` be more workers than cores: most tests wait for programs for as long as they compute."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2 * cores, cores + 4)


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over the tests themselves.

    With those of the whole suite one would take half a second, and much longer on a busy machine, in which the loop
    of a test stands still.
    """
    gc.collect()
    gc.freeze()


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
def _own_folders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = leftovers.list_files()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder, "home")
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", f"{folder}/{name.lower()}")
        if sys.platform == "win32":
            monkeypatch.setenv("USERPROFILE", str(home))
            for name, place in (("APPDATA", "Roaming"), ("LOCALAPPDATA", "Local")):
                monkeypatch.setenv(name, str(home / "AppData" / place))
            # Windows itself is asked for the folder otherwise
            monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", str(home / "AppData" / "Local"))
        leftovers.note_home(home, request.node.nodeid)
        yield
    leftovers.note_new_files(before, request.node.nodeid)
