"""The clients, one for each test that asks for `client`; it is skipped, with the reason, where that one is not there.

One whole turn of each client belongs to the ordinary tests; `python -m tests.clients.report` runs all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.machine import MODULES, NODE
from tests.clients.table import CLIENTS, Client
from tests.clients.turns import Turn
from tests.hosting import BOUND_S, processes_at

Play = Callable[[Client, Path], Coroutine[Any, Any, Turn]]
_played: dict[tuple[str, Play], Turn] = {}


class Turns:
    """The turns of one client; each is played once, for all the promises that are seen in it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = folder

    async def of(self, play: Play) -> Turn:
        """Return what came of a turn."""
        key = (self.client.name, play)
        if key not in _played:
            _played[key] = await play(self.client, self._folder / play.__name__)
        return _played[key]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker by which the report knows what a test tells of a client."""
    config.addinivalue_line("markers", "column(name): the column of docs/clients.md that the test decides")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the report runs, and let each test say which column it decides."""
    if not os.environ.get("DYNAMIC_MCP_TEST_CLIENTS_WHOLE"):
        left_out = [item for item in items if "whole" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if marker := item.get_closest_marker("column"):
            item.user_properties.append(("column", marker.args[0]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each client."""
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", CLIENTS, ids=lambda client: client.name, indirect=True)


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """One client, which is installed."""
    chosen: Client = request.param
    if not (MODULES / ".bin" / chosen.program).exists():
        pytest.skip(f"DYNAMIC_MCP_TEST_CLIENTS does not name a folder with `{chosen.package}`")
    if not NODE.is_file():
        pytest.skip("DYNAMIC_MCP_TEST_NODE does not name a Node")
    return chosen


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    """End what a client leaves running on a machine of this test for its next start, such as a daemon of its own."""
    yield
    homes = [folder / "home" for folder in (tmp_path, *tmp_path.iterdir())]
    deadline = time.monotonic() + BOUND_S
    while left := [pid for home in homes for pid, _ in processes_at(home)]:
        assert time.monotonic() < deadline, f"cannot be ended: {left}"
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@pytest.fixture
def whole() -> None:
    """Mark what is more than the one turn of the ordinary tests: only `python -m tests.clients.report` runs it."""


@pytest.fixture
def turns(client: Client, tmp_path: Path) -> Turns:
    """The turns of the client."""
    return Turns(client, tmp_path)
