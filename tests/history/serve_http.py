"""Serves a proxy over HTTP in the loop of a test. What knows how the HTTP face is built is in this file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.proxy.proxy import Proxy

_TICKS_EVERY_S = 0.2


@contextlib.asynccontextmanager
async def serving_http(proxy: Proxy, options: HttpOptions | None = None) -> AsyncIterator[str]:
    """Serve at a free port, and hand out the URL; the proxy is closed in the end."""
    face = HttpFace(proxy, options or HttpOptions())
    server = HttpServer(face)
    [address] = await server.open(TcpAddress(port=0))
    ticking = asyncio.create_task(_tick(face))
    try:
        yield f"http://127.0.0.1:{address.port}"
    finally:
        ticking.cancel()
        await face.drain(0)
        face.close()
        await server.drain(1)
        await proxy.close()


async def _tick(face: HttpFace) -> None:
    while True:
        await asyncio.sleep(_TICKS_EVERY_S)
        face.tick()
