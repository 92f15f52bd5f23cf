"""A group that several clients use, as tests of sharing need it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.group import Group
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp.wire import Frame
from tests.fake_parties import FakeCaller, Watcher
from tests.fakes import BOUND_S, FakeClock, FakeUpstream, Opener, group_config

SAMPLING = {"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}}
LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "words"}}


class Scene:
    """A group that each of several clients may use."""

    def __init__(self, opener: Opener, store: CatalogStore | None = None, **changes: object) -> None:
        self.opener = opener
        self.watcher = Watcher()
        self.clock = FakeClock()
        config = group_config("up", **changes)
        self.group = Group(config, self.watcher, opener=opener, clock=self.clock, catalog_store=store)

    def call(self, client: FakeCaller) -> asyncio.Task[Frame]:
        """Begin a call for a client."""
        work = self.group.request("tools/call", {"name": Raw(b'"echo"')}, timeout_s=5, caller=client)
        return asyncio.create_task(work)


@contextlib.asynccontextmanager
async def scene(
    *upstreams: FakeUpstream, store: CatalogStore | None = None, **changes: object
) -> AsyncIterator[Scene]:
    on = Scene(Opener(up=[*upstreams]), store, **changes)
    try:
        async with asyncio.timeout(BOUND_S):
            yield on
    finally:
        await on.group.close()


def silent() -> FakeUpstream:
    """Return an upstream that answers no call by itself."""
    return FakeUpstream()


def serving() -> FakeUpstream:
    return FakeUpstream({"tools/call": {"content": []}})


def answer(upstream: FakeUpstream) -> None:
    """Answer all calls that have come."""
    for asked in upstream.heard("tools/call"):
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})


def clients(*names: str, subject: str = "user") -> list[FakeCaller]:
    """Return clients that call themselves so."""
    found = []
    for name in names:
        client = FakeCaller()
        client.hello = ClientInfo(client_info=Raw(b'{"name":"%s","version":"1"}' % name.encode()))
        client.authentication = Authentication(Principal("test", subject), "bearer")
        found.append(client)
    return found
