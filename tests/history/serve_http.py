"""Serves a proxy over HTTP in the loop of a test. What knows how the HTTP face is built is in this file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence

from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.server import HttpServer
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.cluster.service import ClusterService
from dynamic_mcp.proxy.proxy import Proxy
from tests.journeys.remote_server import free_port

# How many replicas serve the proxy, behind a balancer that sends each request to the next one.
replicas = 1
_TICKS_EVERY_S = 0.2
_KEY = "a-key-for-the-replicas-of-a-test-0001"


@contextlib.asynccontextmanager
async def serving_http(proxy: Proxy, options: HttpOptions | None = None) -> AsyncIterator[str]:
    """Serve at a free port, and hand out the URL; the proxy is closed in the end."""
    faces = [HttpFace(proxy, options or HttpOptions()) for _ in range(replicas)]
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(proxy.close)
        if replicas > 1:
            await stack.enter_async_context(_joined(faces))
        server = HttpServer(faces[0] if replicas == 1 else _TakingTurns(faces))
        [address] = await server.open(TcpAddress(port=0))
        ticking = [asyncio.create_task(_tick(face)) for face in faces]
        try:
            yield f"http://127.0.0.1:{address.port}"
        finally:
            for each in ticking:
                each.cancel()
            for face in faces:
                await face.drain(0)
                face.close()
            await server.drain(1)


class _TakingTurns:
    """A balancer: each request goes to the next face."""

    def __init__(self, faces: Sequence[HttpFace]) -> None:
        self._faces = itertools.cycle(faces)

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        return next(self._faces).begin(head, exchange)


@contextlib.asynccontextmanager
async def _joined(faces: Sequence[HttpFace]) -> AsyncIterator[None]:
    """Let the faces be replicas that pass requests on to each other."""
    ports = [free_port() for _ in faces]
    peers = tuple(f"http://127.0.0.1:{port}" for port in ports)
    servers = [HttpServer(face) for face in faces]
    clusters = [ClusterService(Cluster(peers=peers, keys=(_KEY,), name=f"r{port}"), 1 << 24) for port in ports]
    try:
        for face, server, port, cluster in zip(faces, servers, ports, clusters, strict=True):
            await server.open(TcpAddress("127.0.0.1", port))
            face.cluster = cluster
        for cluster in clusters:
            await cluster.look()
        yield
    finally:
        for cluster in clusters:
            await cluster.close()
        for server in servers:
            await server.drain(1)


async def _tick(face: HttpFace) -> None:
    while True:
        await asyncio.sleep(_TICKS_EVERY_S)
        face.tick()
