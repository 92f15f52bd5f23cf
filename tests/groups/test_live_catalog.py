"""A group with a kept catalog costs nothing until it is used, and learns anew when it connects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.errors import Busy, TimedOut
from dynamic_mcp.groups.activity import MAX_QUEUED, UNUSED_IDLE_S
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_reader import LONGEST_RETRY_S
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.groups.live_catalog import MAX_AGE_S
from tests.fake_parties import LoneGroup, Watcher
from tests.fakes import FakeClock, FakeUpstream, Opener, group_config, settled


def made(
    opener: Opener, catalog_store: CatalogStore | None, clock: FakeClock | None = None, **config: Any
) -> tuple[LoneGroup, Watcher]:
    watcher = Watcher()
    group = LoneGroup(
        group_config(**config), watcher, opener=opener, clock=clock or FakeClock(), catalog_store=catalog_store
    )
    return group, watcher


async def learnt(catalog_store: CatalogStore, *tools: str) -> None:
    """Let one life of the group leave its catalog on the shelf."""
    group, watcher = made(Opener(up=[FakeUpstream(tools=tools)]), catalog_store)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)
    async with asyncio.timeout(5):
        while catalog_store.load(group.config) is None:  # noqa: ASYNC110 - a thread writes it
            await asyncio.sleep(0)
    await group.close()


async def test_a_group_whose_catalog_is_kept_connects_to_nothing_and_knows_its_tools(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)
    await learnt(catalog_store, "a", "b")
    opener = Opener(up=[FakeUpstream()])

    group, _ = made(opener, catalog_store)
    group.begin()
    await settled()

    assert list((await group.read_catalog()).tools) == ["a", "b"]
    assert (group.state, opener.opened) == (State.COLD, [])
    await group.close()


async def test_an_eager_group_connects_all_the_same(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)
    await learnt(catalog_store, "a")
    group, watcher = made(Opener(up=[FakeUpstream()]), catalog_store, eager=True)

    group.begin()

    await watcher.until(lambda: group.state is State.READY)
    await group.close()


async def test_an_old_catalog_serves_while_a_new_one_is_learnt(tmp_path: Path) -> None:
    time = [0.0]
    catalog_store = CatalogStore(tmp_path, now=lambda: time[0])
    await learnt(catalog_store, "old")
    time[0] = MAX_AGE_S + 1
    opener = Opener(up=[FakeUpstream(tools=["new"])])
    opener.gate.clear()

    group, watcher = made(opener, catalog_store)
    group.begin()
    assert list((await group.read_catalog()).tools) == ["old"]
    opener.gate.set()
    await watcher.until(lambda: group.state is State.READY)

    assert list((await group.read_catalog()).tools) == ["new"]
    await group.close()


async def test_a_list_that_could_not_be_read_is_asked_for_again_later(tmp_path: Path) -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}}}
    upstream, clock = FakeUpstream({"initialize": said}), FakeClock()
    group, watcher = made(Opener(up=[upstream]), None, clock)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)
    first = await upstream.hears("prompts/list")
    upstream.say({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -32000, "message": "not now"}})
    await watcher.until(lambda: "not now" in group.complaint([ListKind.PROMPTS]))

    upstream.answers["prompts/list"] = {"prompts": [{"name": "hello"}]}
    await clock.pass_(LONGEST_RETRY_S)
    await watcher.until(lambda: group.complaint([ListKind.PROMPTS]) == "")

    assert list((await group.read_catalog([ListKind.PROMPTS])).entries(ListKind.PROMPTS)) == ["hello"]
    await group.close()


async def test_a_name_that_the_kept_catalog_lacks_is_looked_for_at_the_upstream(tmp_path: Path) -> None:
    catalog_store = CatalogStore(tmp_path)
    await learnt(catalog_store, "old")
    group, _ = made(Opener(up=[FakeUpstream(tools=["old", "new"])]), catalog_store)
    group.begin()

    assert list((await group.read_again()).tools) == ["old", "new"]
    await group.close()


async def test_a_group_that_connected_only_to_learn_is_let_go_after_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    group, watcher = made(Opener(up=[FakeUpstream()]), CatalogStore(tmp_path), clock)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)
    await settled()

    await clock.pass_(UNUSED_IDLE_S)
    await watcher.until(lambda: group.state is State.COLD)

    await group.close()


# Row 35 of the fault matrix.


async def test_more_calls_than_places_wait_and_more_than_may_wait_fail_clearly() -> None:
    upstream = FakeUpstream()
    group, watcher = made(Opener(up=[upstream]), None, concurrency=3)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)

    calls = [asyncio.create_task(group.send("tools/call", {}, timeout_s=5)) for _ in range(3 + MAX_QUEUED)]
    await settled()

    assert len([message for message in upstream.sent if message.get("method") == "tools/call"]) == 3
    with pytest.raises(Busy):
        await group.send("tools/call", {}, timeout_s=5)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert group.in_flight == 0
    await group.close()


async def test_a_server_that_stops_answering_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.groups.instance.PING_S", 0.01)
    silent, healthy = FakeUpstream(), FakeUpstream({"tools/call": {"content": []}})
    group, watcher = made(Opener(up=[silent, healthy]), None)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)
    silent.answers["tools/call"] = {"content": []}
    await group.send("tools/call", {}, timeout_s=1)
    silent.answers.clear()

    for _ in range(2):
        with pytest.raises(TimedOut):
            await group.send("tools/call", {}, timeout_s=0.01)
    await watcher.until(lambda: group.state is State.WAITING)

    answer = await group.send("tools/call", {}, timeout_s=1)
    assert bytes(answer.result) == b'{"content": []}'
    await group.close()


async def test_a_slow_server_that_answers_ping_is_kept() -> None:
    upstream = FakeUpstream({"ping": {}})
    group, watcher = made(Opener(up=[upstream]), None)
    group.begin()
    await watcher.until(lambda: group.state is State.READY)

    for _ in range(2):
        with pytest.raises(TimedOut):
            await group.send("tools/call", {}, timeout_s=0.01)
    await upstream.hears("ping")
    await settled()

    assert group.state is State.READY
    await group.close()
