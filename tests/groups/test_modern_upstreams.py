"""A group whose upstream is modern: its lists and how long they are fresh, its era, and what keeps its link open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig, Program, Share, Timeouts
from dynamic_mcp.groups.audience import hello_for
from dynamic_mcp.groups.catalog import ListHint, ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.groups.live_catalog import MAX_AGE_S
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import OpenLink
from tests.fake_parties import FakeCaller, LoneGroup, Watcher
from tests.fakes import BOUND_S, FakeClock, Json, group_config, settled, tool
from tests.program import UPSTREAMS
from tests.upstream.modern import ModernUpstream, complete, open_modern


def _opener(upstream: ModernUpstream) -> OpenLink:
    async def open_link(
        config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        return await open_modern(upstream, listener, hello)

    return open_link


@contextlib.asynccontextmanager
async def ready(upstream: ModernUpstream) -> AsyncIterator[tuple[LoneGroup, FakeClock]]:
    """Run a group with this upstream."""
    watcher, clock = Watcher(), FakeClock()
    group = LoneGroup(group_config("up"), watcher, opener=_opener(upstream), clock=clock)
    group.begin()
    try:
        await watcher.until(lambda: group.state is State.READY)
        await settled()
        yield group, clock
    finally:
        async with asyncio.timeout(BOUND_S):
            await group.close()


def _list(*tools: Json, **members: Json) -> dict[str, Json]:
    return complete(tools=[*tools], **members)


# --- lists -----------------------------------------------------------------------------------------------


async def test_the_hint_of_a_list_is_kept_apart_from_what_clients_are_answered() -> None:
    async with ready(ModernUpstream(**{"tools/list": _list(tool("a"), ttlMs=90_000, cacheScope="public")})) as on:
        group, clock = on
        listing = (await group.read_catalog()).lists[ListKind.TOOLS]

        assert listing.hint == ListHint(90, is_private=False, read_at=clock.now())
        assert set(listing.rest) == set()


async def test_the_hint_of_several_pages_is_the_most_careful_one() -> None:
    def page(params: Json) -> Json:
        if "cursor" not in params:
            return _list(tool("a"), nextCursor="2", ttlMs=90_000, cacheScope="public")
        return _list(tool("b"), ttlMs=5_000, cacheScope="private")

    async with ready(ModernUpstream(**{"tools/list": page})) as (group, clock):
        hint = (await group.read_catalog()).lists[ListKind.TOOLS].hint

        assert hint == ListHint(5, is_private=True, read_at=clock.now())


@pytest.mark.parametrize(
    ("hint", "ttl_s"), [({"ttlMs": -5}, 0), ({"ttlMs": "x"}, 0), ({"ttlMs": 1500.5}, 1.5005), ({}, None)]
)
async def test_an_odd_hint_is_no_time_and_none_is_none(hint: Json, ttl_s: float | None) -> None:
    async with ready(ModernUpstream(**{"tools/list": _list(**hint)})) as (group, _):
        found = (await group.read_catalog()).lists[ListKind.TOOLS].hint

        assert (found.ttl_s if found else None) == ttl_s
        assert found is None or found.is_private


async def test_a_list_that_is_no_longer_fresh_is_read_again_when_it_is_used() -> None:
    upstream = ModernUpstream(**{"tools/list": _list(tool("old"), ttlMs=10_000)})
    async with ready(upstream) as (group, clock):
        upstream.answers["tools/list"] = _list(tool("new"), ttlMs=10_000)
        await clock.pass_(9)
        assert list((await group.read_catalog()).tools) == ["old"]

        await clock.pass_(2)
        assert len(upstream.heard("tools/list")) == 1

        assert list((await group.read_catalog()).tools) == ["new"]
        await group.read_catalog()
        assert len(upstream.heard("tools/list")) == 2


async def test_a_list_that_is_the_same_again_is_fresh_again() -> None:
    upstream = ModernUpstream(**{"tools/list": _list(tool("a"), ttlMs=10_000)})
    async with ready(upstream) as (group, clock):
        before = (await group.read_catalog()).tools
        await clock.pass_(11)

        assert (await group.read_catalog()).tools is before
        await clock.pass_(9)
        await group.read_catalog()

        assert len(upstream.heard("tools/list")) == 2


async def test_a_list_whose_changes_are_reported_is_not_read_again() -> None:
    capabilities = {"tools": {"listChanged": True}}
    upstream = ModernUpstream(capabilities, **{"tools/list": _list(tool("a"), ttlMs=0)})
    async with ready(upstream) as (group, clock):
        upstream.acknowledge(await upstream.hears("subscriptions/listen"))
        await clock.pass_(20)
        await group.read_catalog()
        assert len(upstream.heard("tools/list")) == 1

        upstream.answers["tools/list"] = _list(tool("b"))
        upstream.announce(upstream.heard("subscriptions/listen")[0], "tools/list_changed")
        await settled()

        assert list((await group.read_catalog()).tools) == ["b"]


async def test_a_list_that_is_never_fresh_is_read_once_a_second_at_most() -> None:
    upstream = ModernUpstream(**{"tools/list": _list(tool("a"), ttlMs=0)})
    async with ready(upstream) as (group, clock):
        for _ in range(5):
            await group.read_catalog()
        assert len(upstream.heard("tools/list")) == 1

        await clock.pass_(1)
        await group.read_catalog()

        assert len(upstream.heard("tools/list")) == 2


async def test_a_list_that_cannot_be_read_again_is_served_as_it_was() -> None:
    upstream = ModernUpstream(**{"tools/list": _list(tool("a"), ttlMs=2_000)})
    async with ready(upstream) as (group, clock):
        upstream.answers["tools/list"] = b"5"
        await clock.pass_(3)

        assert list((await group.read_catalog()).tools) == ["a"]
        await group.read_catalog()

        assert len(upstream.heard("tools/list")) == 2


ODD = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}


@pytest.mark.parametrize(("has_streams", "names"), [(True, ["good"]), (False, ["good", "odd"])])
async def test_a_tool_that_cannot_be_called_over_http_is_left_out_there(has_streams: bool, names: list[str]) -> None:
    upstream = ModernUpstream(**{"tools/list": _list(tool("good"), tool("odd", inputSchema=ODD))})
    upstream.has_streams = has_streams
    async with ready(upstream) as (group, _):
        assert list((await group.read_catalog()).tools) == names
        assert ("the tool `odd` was left out: `x-mcp-header`" in group.complaint([ListKind.TOOLS])) == has_streams


# --- the link --------------------------------------------------------------------------------------------


async def test_a_subscription_keeps_no_link_open_and_is_no_call() -> None:
    upstream = ModernUpstream({"tools": {"listChanged": True}})
    async with ready(upstream) as (group, clock):
        upstream.acknowledge(await upstream.hears("subscriptions/listen"))

        assert (group.in_flight, group.calls) == (0, 0)
        await clock.pass_(3600)

        assert group.state is State.COLD
        assert upstream.closed


async def test_a_modern_server_that_falls_silent_is_asked_what_it_is_and_ended() -> None:
    upstream = ModernUpstream()
    async with ready(upstream) as (group, _):
        del upstream.answers["server/discover"]
        for _ in range(4):
            with contextlib.suppress(Exception):
                await group.send("tools/call", {"name": Raw(b'"t"')}, timeout_s=0.01)
        await settled()

        await upstream.hears("server/discover", times=2)
        assert upstream.heard("ping") == []


def test_an_instance_for_everybody_is_opened_in_the_modern_way() -> None:
    async def hello() -> ClientInfo:
        return hello_for(FakeCaller(), Share.ALL)

    found = asyncio.run(hello())

    assert found.revision is MODERN
    assert bytes(found.capabilities) == b"{}"


# --- the era ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def silent_program(log: Path, store: CatalogStore) -> AsyncIterator[LoneGroup]:
    """Run a group for a modern client, whose program says nothing to what it does not know."""
    args = (str(UPSTREAMS / "eras.py"), "silent", str(log))
    command = Program(command=sys.executable, args=args, env={**os.environ}, cwd=None)
    connect_s = 5 if sys.platform == "win32" else 1  # programs start slowly under Wine
    config = group_config("up", upstream=command, eager=True, timeouts=Timeouts(connect_s, 5, 5, 5))
    watcher = Watcher()
    group = LoneGroup(config, watcher, catalog_store=store)
    group.client.hello = ClientInfo(MODERN)
    group.begin()
    try:
        await watcher.until(lambda: group.state is State.READY)
        yield group
    finally:
        async with asyncio.timeout(BOUND_S):
            await group.close()


async def test_a_server_that_does_not_know_the_question_is_asked_it_once_and_not_at_the_next_start(
    tmp_path: Path,
) -> None:
    log, store = tmp_path / "log", CatalogStore(tmp_path / "catalogs")
    async with silent_program(log, store) as group:
        async with asyncio.timeout(BOUND_S):
            while (stored := store.load(group.config)) is None:  # noqa: ASYNC110 - a thread writes it
                await asyncio.sleep(0.01)
    assert stored.lacks == "modern"

    async with silent_program(log, store):
        pass

    said = [line for line in log.read_text().split() if line in ("start", "server/discover", "initialize")]
    assert said == ["start", "server/discover", "initialize", "start", "initialize"]


async def test_what_a_server_lacks_is_forgotten_with_the_age_of_its_catalog(tmp_path: Path) -> None:
    time = [0.0]
    store = CatalogStore(tmp_path / "catalogs", now=lambda: time[0])
    async with silent_program(tmp_path / "log", store) as group:
        async with asyncio.timeout(BOUND_S):
            while store.load(group.config) is None:  # noqa: ASYNC110 - a thread writes it
                await asyncio.sleep(0.01)
    time[0] = MAX_AGE_S + 1

    async with silent_program(tmp_path / "log", store):
        pass

    assert (tmp_path / "log").read_text().split().count("server/discover") == 2
