"""An authorization server, and the server that it guards, on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.upstreams.auth_server import AuthServer


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server
