"""The ways in to the HTTP face, each on a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.face.http.ways_in import OurServer, WayIn, asgi, our_server


@pytest.fixture(params=["server", "asgi"])
async def way_in(request: pytest.FixtureRequest) -> AsyncIterator[WayIn]:
    """Our server, and the ASGI application under uvicorn."""
    async with our_server() if request.param == "server" else asgi() as opened:
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[OurServer]:
    """Our server alone."""
    async with our_server() as opened:
        yield opened
