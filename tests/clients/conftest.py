"""The clients, one for each test that asks for `client`; it is skipped, with the reason, where that one is not there.

One whole turn of each client belongs to the ordinary tests; `python -m tests.clients.report` runs all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.clients import turns
from tests.clients.machine import MODULES, NODE
from tests.clients.table import CLIENTS, Client
from tests.clients.turns import Turn

_played: dict[tuple[str, str], Turn] = {}


class Turns:
    """The two turns of one client that most promises are seen in; each is played once."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = folder

    async def alone(self) -> Turn:
        """Return the turn with the server as the client's own."""
        return await self._once("alone", turns.alone)

    async def through(self) -> Turn:
        """Return the turn with the server behind the program."""
        return await self._once("through", turns.through)

    async def _once(self, how: str, play: Callable[[Client, Path], Coroutine[Any, Any, Turn]]) -> Turn:
        key = (self.client.name, how)
        if key not in _played:
            _played[key] = await play(self.client, self._folder / how)
        return _played[key]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each client that it is for."""
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", CLIENTS, ids=lambda client: client.name, indirect=True)


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """One client, which is installed."""
    chosen: Client = request.param
    if not (MODULES / ".bin" / chosen.program).exists():
        pytest.skip(f"DYNAMIC_MCP_TEST_CLIENTS names no folder with `{chosen.package}`")
    if not NODE.is_file():
        pytest.skip("DYNAMIC_MCP_TEST_NODE does not name a Node")
    return chosen


@pytest.fixture
def whole(client: Client) -> None:
    """Skip what is more than the one turn of the ordinary tests."""
    if not os.environ.get("DYNAMIC_MCP_TEST_CLIENTS_WHOLE"):
        pytest.skip("`python -m tests.clients.report` runs this")


@pytest.fixture
def turns_of(client: Client, tmp_path: Path) -> Turns:
    """The turns of the client."""
    return Turns(client, tmp_path)
