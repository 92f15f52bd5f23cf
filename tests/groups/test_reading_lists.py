"""What a group offers is read when it connects and when it changes."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.config.resolved import Features
from dynamic_mcp.groups.lifecycle import State
from tests.fakes import FakeUpstream, Json, settled, tool
from tests.groups.lives import list_changed, scene, serving


async def test_a_changed_list_is_read_again() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)

        list_changed(upstream, "new")
        await settled()

        assert list((await on.group.catalog()).tools) == ["new"]


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
        assert list((await on.group.catalog()).tools) == ["tool_99"]


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

        assert list((await on.group.catalog()).tools) == ["a_1", "b_1", "a_2", "a_x"]


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

        assert (await on.group.catalog()).tools == {}
        assert upstream.heard("tools/list") == []


async def test_other_notifications_of_the_upstream_pass_to_the_observer() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        await on.until(State.READY)

        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
        await settled()

        assert [frame.method for frame in on.watcher.frames] == ["notifications/message"]
