"""A group with all that surrounds it, as tests of its life use it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from msgspec import Raw

from dynamic_mcp.errors import Unreachable, UpstreamError
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.mcp.wire import Frame
from tests.fake_parties import LoneGroup, Watcher
from tests.fakes import BOUND_S, FakeClock, FakeUpstream, Json, Opener, group_config, tool


@dataclass
class Scene:
    """A started group and all that surrounds it."""

    group: LoneGroup
    opener: Opener
    clock: FakeClock
    watcher: Watcher

    def call(self) -> asyncio.Task[Frame]:
        """Begin a call; the answer is the task's result."""
        return asyncio.create_task(self.group.send("tools/call", {"name": Raw(b'"echo"')}, timeout_s=5))

    def is_(self, state: State) -> bool:
        return self.group.state is state

    async def until(self, state: State) -> None:
        await self.watcher.until(lambda: self.is_(state))


@contextlib.asynccontextmanager
async def scene(
    *plan: FakeUpstream | UpstreamError, start: bool = True, store: CatalogStore | None = None, **changes: Json
) -> AsyncIterator[Scene]:
    """Start a group whose attempts to connect end as planned, the last of the plan again and again."""
    opener, clock, watcher = Opener(up=[*plan]), FakeClock(), Watcher()
    group = LoneGroup(
        group_config("up", **changes), watcher, opener=opener, clock=clock, jitter=lambda: 0.5, catalog_store=store
    )
    if start:
        group.begin()
    try:
        async with asyncio.timeout(BOUND_S):
            yield Scene(group, opener, clock, watcher)
    finally:
        async with asyncio.timeout(BOUND_S):
            await group.close()


def serving(**answers: Json) -> FakeUpstream:
    """Return an upstream that answers calls."""
    return FakeUpstream({"tools/call": {"content": []}, **answers})


def refusal(reason: str = "the server exited with code 1", *, final: bool = False) -> Unreachable:
    return Unreachable("up", reason, hint="look at it", final=final)


def list_changed(upstream: FakeUpstream, *names: str) -> None:
    upstream.answers["tools/list"] = {"tools": [tool(name) for name in names]}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
