"""An authorization server, and the server that it guards, on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.features.shared_stores import redis, store_pair
from tests.upstreams.auth_server import AuthServer

__all__ = ["redis", "server", "store_pair"]


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server
