"""A few sessions of one client on one proxy with one upstream in memory, for tests that say what each does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import BOUND_S
from tests.history.client import Client
from tests.history.harness import MemoryUpstream, Shared, group, memory_proxy, remote
from tests.history.nonce_server import NonceServer
from tests.history.record import Expect, History, Json, Kind, parse


class Parties:
    """The proxy, its upstream's instances, and the sessions."""

    def __init__(self, *, share: str = "", direct: bool = False, has_streams: bool = False) -> None:
        self.history = History()
        self.upstreams: list[MemoryUpstream] = []
        self.proxy: Proxy
        self.proxy = memory_proxy(
            lambda name, number: self._make(name, number, has_streams=has_streams),
            group("a", remote() if has_streams else None, share=share, direct=direct),
            instances=10,
        )
        self.host = Shared(self.proxy)

    def _make(self, name: str, number: int, *, has_streams: bool) -> MemoryUpstream:
        upstream = MemoryUpstream(name, number, self.history, has_streams=has_streams)
        self.upstreams.append(upstream)
        return upstream

    @property
    def server(self) -> NonceServer:
        """The first instance's server."""
        return self.upstreams[0].server

    async def join(self, name: str) -> Client:
        """Open a session and let it call once, so that its instance is there."""
        client = Client(self.history, name, "client", BOUND_S)
        await client.open(self.host)
        await call(client, "echo")
        return client

    def got(self, party: str, method: str) -> list[Json]:
        """Return the params of the messages with this method that a session or an instance has got."""
        messages = [
            parse(event.line) for event in self.history.events if event.party == party and event.kind is Kind.GOT
        ]
        return [message.get("params") for message in messages if message.get("method") == method]


@contextlib.asynccontextmanager
async def parties(*, share: str = "", direct: bool = False, has_streams: bool = False) -> AsyncIterator[Parties]:
    """Run a proxy, until the test is over."""
    made = Parties(share=share, direct=direct, has_streams=has_streams)
    try:
        yield made
    finally:
        await made.host.close()


async def call(client: Client, tool: str, **arguments: Json) -> dict[str, Json]:
    """Call a tool of the upstream."""
    operation = client.operation(tool)
    return await client.request(operation, "tools/call", client.call_params(operation, "a", tool, **arguments))


async def ask(client: Client, method: str, **params: Json) -> dict[str, Json]:
    """Send a request."""
    return await client.request(client.operation(method, Expect.RESULT), method, params)
