"""The same requests to a server itself and to the proxy, whose client sees that server alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Json, Opener, PresentedGroup, config_of, group_config
from tests.upstreams import full

HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Bare:
    """A server without a proxy."""

    def __init__(self, **options: Json) -> None:
        self.lines: list[bytes] = []
        self.server = full.Server(full.Options(**options), self.lines.append)

    async def exchange(self, method: str, params: Json = None) -> bytes:
        """Send a request and return the line that answers it, which this server writes at once."""
        body = b"" if params is None else b',"params":' + _json(params)
        id = b'"b%d"' % len(self.lines)
        self.server.receive(b'{"jsonrpc":"2.0","id":%s,"method":%s%s}' % (id, _json(method), body))
        return next(line for line in self.lines if b'"id":%s' % id in line)


@contextlib.asynccontextmanager
async def alone(*upstreams: FullUpstream, **changes: Json) -> AsyncIterator[Client]:
    """Run a proxy in front of this server and another one, for one client that sees this one alone."""
    opener = Opener(up=list(upstreams), other=[FullUpstream(name="other")])
    async with alone_among(opener, group_config("up", **changes), group_config("other")) as client:
        await client.initialize()
        yield client


@contextlib.asynccontextmanager
async def alone_among(opener: Opener, *configs: PresentedGroup, only: str = "up") -> AsyncIterator[Client]:
    """Run a proxy in front of these groups, for one client that sees one of them and has not said hello."""
    proxy = Proxy(config_of(*configs), opener=opener)
    try:
        yield Client(proxy, only=only)
    finally:
        await proxy.close()


def _json(value: Json) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()
