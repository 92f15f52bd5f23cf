"""A proxy that several clients use at once, as tests of what reaches whom need it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.client import Transport
from dynamic_mcp.config.resolved import Program
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, PresentedGroup, config_of, group_config, settled
from tests.program import BOUND_S

OTHER = Program(command="other", args=(), env={}, cwd=None)
RELATED = "io.modelcontextprotocol/related-task"
ANSWER: Json = {"content": []}


class Scene:
    """A proxy in front of one group, `up`, for several clients that call themselves the same."""

    def __init__(self, *upstreams: FakeUpstream, **changes: Json) -> None:
        self.opener = Opener(up=list(upstreams))
        self.proxy = Proxy(config_of(group_config("up", **changes)), opener=self.opener)

    async def join(self, capabilities: Json = None, *, transport: Transport = "stdio") -> Client:
        """Greet one more client."""
        client = Client(self.proxy, transport=transport)
        await client.initialize(capabilities=capabilities)
        await settled()
        return client

    def reload(self, *configs: PresentedGroup) -> None:
        self.proxy.apply(config_of(*configs))


@contextlib.asynccontextmanager
async def scene(*upstreams: FakeUpstream, **changes: Json) -> AsyncIterator[Scene]:
    made = Scene(*upstreams, **changes)
    try:
        async with asyncio.timeout(BOUND_S):
            yield made
    finally:
        await made.proxy.close()


def able(answers: Json = None, **capabilities: Json) -> FakeUpstream:
    """Return an upstream that answers calls and declares these capabilities besides tools."""
    hello = FakeUpstream().answers["initialize"]
    hello = hello | {"capabilities": hello["capabilities"] | capabilities}
    return FakeUpstream({"initialize": hello, "tools/call": ANSWER, **(answers or {})})


def notification(method: str, **params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}
