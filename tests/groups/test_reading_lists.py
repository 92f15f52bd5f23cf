"""What a group offers is read when it connects and when it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Features
from dynamic_mcp.errors import LoginNeeded
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from tests.fakes import Error, FakeUpstream, Json, settled, tool
from tests.groups.lives import list_changed, scene, serving


async def test_a_changed_list_is_read_again() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)

        list_changed(upstream, "new")
        await settled()

        assert list((await on.group.read_catalog()).tools) == ["new"]


async def test_a_storm_of_changes_is_one_reading_a_second() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        await on.until(State.READY)
        for n in range(100):
            list_changed(upstream, f"tool_{n}")
            await settled()
        assert len(upstream.heard("tools/list")) == 2

        await on.clock.pass_(1)

        assert len(upstream.heard("tools/list")) == 3
        assert list((await on.group.read_catalog()).tools) == ["tool_99"]


async def test_reading_again_on_demand_returns_the_new_list() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)
        upstream.answers["tools/list"] = {"tools": [tool("new")]}

        catalog = await on.group.read_again()

        assert list(catalog.tools) == ["new"]


async def test_a_list_that_cannot_be_read_again_stays_as_it_was() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)
        upstream.answers["tools/list"] = "not an object"

        catalog = await on.group.read_again()

        assert list(catalog.tools) == ["old"]
        assert on.is_(State.READY)


async def test_a_list_that_is_being_read_is_not_read_again_for_those_who_wait_for_it() -> None:
    upstream = FakeUpstream()
    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        id = (await upstream.hears("tools/list"))["id"]
        waiting = [asyncio.create_task(on.group.read_catalog()) for _ in range(3)]
        await settled()

        upstream.say({"jsonrpc": "2.0", "id": id, "result": {"tools": [tool("echo")]}})
        for each in waiting:
            assert list((await each).tools) == ["echo"]
        await on.clock.pass_(5)

        assert len(upstream.heard("tools/list")) == 1


async def test_whoever_waits_for_a_reading_is_not_left_waiting_when_the_link_is_lost() -> None:
    upstream = serving()
    async with scene(upstream, FakeUpstream()) as on:
        await on.call()
        await on.group.read_again()
        again = asyncio.create_task(on.group.read_again())  # comes a second after the first one at the earliest
        await settled()

        upstream.die()
        await settled()

        assert again.done()
        assert list((await again).tools) == ["echo"]


async def test_whoever_waits_for_a_reading_is_not_left_waiting_when_the_group_goes_idle() -> None:
    upstream = FakeUpstream()
    async with scene(upstream, idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(59.5)
        await on.group.read_again()
        again = asyncio.create_task(on.group.read_again())
        await settled()

        await on.clock.pass_(0.75)
        await on.clock.pass_(0.75)

        assert again.done()
        assert list((await again).tools) == ["echo"]


async def test_the_tools_of_all_pages_are_there() -> None:
    pages = {
        None: {"tools": [tool("a_1"), tool("b_1")], "nextCursor": "2"},
        "2": {"tools": [tool("a_2"), tool("a_x")]},
    }
    upstream = FakeUpstream({"tools/list": lambda params: pages[(params or {}).get("cursor")]})
    async with scene(upstream) as on:
        await on.until(State.READY)

        assert list((await on.group.read_catalog()).tools) == ["a_1", "b_1", "a_2", "a_x"]


@pytest.mark.parametrize(
    ("capabilities", "features"),
    [
        ({}, Features(tools=True, resources=True, prompts=True)),
        ({"prompts": {}}, Features(tools=True, resources=True, prompts=True)),
        ({"tools": {}}, Features(tools=False, resources=True, prompts=True)),
    ],
    ids=["no capability", "other capabilities", "switched off"],
)
async def test_an_upstream_is_not_asked_for_tools_that_it_has_not_or_that_nobody_wants(
    capabilities: Json, features: Features
) -> None:
    upstream = FakeUpstream({"initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities}})
    async with scene(upstream, features=features) as on:
        await on.until(State.READY)

        assert (await on.group.read_catalog()).tools == {}
        assert upstream.heard("tools/list") == []


async def test_other_notifications_of_the_upstream_pass_to_the_observer() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        await on.until(State.READY)

        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
        await settled()

        assert [frame.method for frame in on.watcher.frames] == ["notifications/message"]


async def test_what_comes_in_the_stream_of_a_call_that_is_over_is_for_nobody() -> None:
    upstream = serving()
    async with scene(upstream) as on:
        await on.call()

        upstream.link.receive(b'{"jsonrpc":"2.0","method":"x/odd"}', b"99")
        await settled()

        assert [frame.method for frame in on.watcher.frames] == ["x/odd"]
        assert on.watcher.concerned == [[]]


# --- lists that fail -------------------------------------------------------------------------------------

CAPABLE: Json = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}, "prompts": {"listChanged": True}},
}


async def test_a_server_whose_tools_cannot_be_listed_is_connected_all_the_same() -> None:
    upstream = FakeUpstream({"tools/list": Error(), "tools/call": {"content": []}})
    async with scene(upstream) as on:
        await on.until(State.READY)

        assert "tools/list could not be read" in on.group.complaint([ListKind.TOOLS])
        assert bytes((await on.call()).result) == b'{"content": []}'
        assert on.opener.opened == ["up"]


async def test_a_list_that_fails_is_read_again_later_and_later_until_it_is_there() -> None:
    upstream = FakeUpstream({"tools/list": Error()})
    async with scene(upstream) as on:
        await on.until(State.READY)
        for times, delay_s in enumerate((2, 4, 8, 16), start=1):
            await on.clock.pass_(delay_s - 0.5)
            assert len(upstream.heard("tools/list")) == times
            await on.clock.pass_(0.5)
            assert len(upstream.heard("tools/list")) == times + 1

        upstream.answers["tools/list"] = {"tools": [tool("late")]}
        await on.clock.pass_(32)

        assert list((await on.group.read_catalog()).tools) == ["late"]
        assert on.group.complaint([ListKind.TOOLS]) == ""


async def test_a_list_that_hangs_delays_no_other_nor_a_call() -> None:
    upstream = FakeUpstream({"initialize": CAPABLE, "prompts/list": {"prompts": [{"name": "a"}]}})
    upstream.answers["prompts/get"] = {"messages": []}
    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        await upstream.hears("tools/list")

        assert list((await on.group.read_catalog([ListKind.PROMPTS])).entries(ListKind.PROMPTS)) == ["a"]
        upstream.answers["prompts/list"] = {"prompts": [{"name": "b"}]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"})
        await settled()
        assert list((await on.group.read_catalog([ListKind.PROMPTS])).entries(ListKind.PROMPTS)) == ["b"]
        assert bytes((await on.group.send("prompts/get", {}, timeout_s=5)).result) == b'{"messages": []}'
        assert len(upstream.heard("tools/list")) == 1


async def test_a_list_that_needs_a_login_has_the_person_log_in() -> None:
    upstream = FakeUpstream()

    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        await upstream.hears("tools/list")
        upstream.link.fail_request(b"2", LoginNeeded("up", "dynamic-mcp auth login up"))
        await on.until(State.NEEDS_LOGIN)

        assert upstream.closed


async def test_tools_that_cannot_be_read_again_stay_on_disk_as_they_were(tmp_path: Path) -> None:
    store, upstream = CatalogStore(tmp_path), FakeUpstream(tools=["old"])
    async with scene(upstream, store=store) as on:
        await on.until(State.READY)
        upstream.answers["tools/list"] = Error()
        await on.group.read_again()
        await settled()
        assert list((await on.group.read_catalog()).tools) == ["old"]
        config = on.group.config

    stored = store.load(config)
    assert stored is not None
    assert list(stored.catalog.tools) == ["old"]
    assert stored.catalog.failures == ""
