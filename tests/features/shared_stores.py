"""The store that two replicas share, for tests of what is kept there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.system.shared_store import SharedStore
from tests.features.cluster.store_servers import StoreServer, open_valkey, store_server

StorePair = tuple[SharedStore, SharedStore]


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A server that is emptied for each test."""
    with store_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.full)])
async def store_pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StorePair]:
    """The stores of two replicas: in a file, and in a server."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "redis":
            server: StoreServer = request.getfixturevalue("redis")
            server.ask("FLUSHALL")
            yield (
                await stack.enter_async_context(open_valkey(server.address)),
                await stack.enter_async_context(open_valkey(server.address)),
            )
        else:
            stores = [LocalStore(tmp_path / "shared" / "store.sqlite") for _ in range(2)]
            for each in stores:
                stack.push_async_callback(each.close)
            yield stores[0], stores[1]
