"""Limits on calls: who is refused, what they are told, who waits, and what a reload leaves as it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dynamic_mcp.config.resolved import Config, Share, Timeouts
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    BOUND_S,
    Client,
    FakeClock,
    FakeUpstream,
    Json,
    Opener,
    config_of,
    group_config,
    settled,
    text_of,
)
from tests.features.approvals.scene import ONE, approving, begin
from tests.policy.rules import person

ANSWER: Json = {"content": [{"type": "text", "text": "fine"}]}


class Scene:
    """A proxy in front of a server `up` with two tools, by these limits, at a time that is moved."""

    def __init__(self, *limits: Limit, answers: bool = True) -> None:
        self.upstream = FakeUpstream({"tools/call": ANSWER} if answers else {}, tools=("echo", "other"))
        self.clock = FakeClock()
        self.proxy = Proxy(self.config(*limits), opener=Opener(up=[self.upstream]), clock=self.clock)

    def config(self, *limits: Limit, **changes: Json) -> Config:
        return config_of(group_config("up", share=Share.ALL, rules={"limits": limits}, **changes))

    async def client(self, subject: str = "ann") -> Client:
        client = Client(self.proxy, authentication=person(subject))
        await client.initialize()
        return client

    async def answer_call(self, number: int) -> None:
        """Answer the call that the server has got as this one, from 1."""
        await self.upstream.hears("tools/call", number)
        call = self.upstream.heard("tools/call")[number - 1]
        self.upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": ANSWER})

    def calls(self) -> int:
        return len(self.upstream.heard("tools/call"))


@contextlib.asynccontextmanager
async def scene(*limits: Limit, answers: bool = True) -> AsyncIterator[Scene]:
    """Run such a proxy."""
    made = Scene(*limits, answers=answers)
    try:
        yield made
    finally:
        await made.proxy.close()


async def echo(client: Client, tool: str = "echo") -> bool:
    """Call a tool; tell whether it was called."""
    return not (await client.call("up", tool, {})).get("isError")


# --- rates ---------------------------------------------------------------------------------------------


async def test_a_call_too_many_is_refused_in_words_and_taken_when_they_say() -> None:
    async with scene(Limit("limits[0]", rate=1 / 30, burst=2)) as made:
        client = await made.client()
        assert await echo(client)
        assert await echo(client)
        refused = await client.call("up", "echo", {})
        assert refused["isError"]
        assert "`echo` was called too often; nothing was sent" in text_of(refused)
        assert "try again in 30 s" in text_of(refused)
        assert made.calls() == 2
        made.clock.time += 30
        assert await echo(client)
        assert not await echo(client)


async def test_a_prompt_with_the_name_of_a_limited_tool_is_not_counted() -> None:
    async with scene(Limit("limits[0]", rate=0.01, burst=1)) as made:
        made.upstream.answers["initialize"]["capabilities"]["prompts"] = {}
        made.upstream.answers |= {"prompts/list": {"prompts": [{"name": "echo"}]}, "prompts/get": {"messages": []}}
        client = await made.client()
        for _ in range(3):
            assert "result" in await client.request("prompts/get", {"name": "up__echo"})
        assert await echo(client)


async def test_a_long_wait_is_said_in_hours() -> None:
    async with scene(Limit("limits[0]", rate=1 / 86400, burst=1)) as made:
        client = await made.client()
        assert await echo(client)
        assert "try again in 24 h" in text_of(await client.call("up", "echo", {}))


async def test_persons_and_tools_are_counted_for_themselves_where_a_rule_says_so() -> None:
    async with scene(Limit("limits[0]", per=("person", "tool"), rate=0.01, burst=1)) as made:
        ann, again, bob = await made.client("ann"), await made.client("ann"), await made.client("bob")
        assert await echo(ann)
        assert not await echo(again)
        assert await echo(again, "other")
        assert await echo(bob)


async def test_nothing_is_taken_from_one_limit_if_another_refuses() -> None:
    all_together = Limit("limits[0]", rate=0.01, burst=3)
    each_person = Limit("limits[1]", per=("person",), rate=1.0, burst=1)
    async with scene(all_together, each_person) as made:
        ann, bob, cyd = await made.client("ann"), await made.client("bob"), await made.client("cyd")
        assert await echo(ann)
        assert [await echo(ann) for _ in range(5)] == [False] * 5
        assert await echo(bob)
        assert await echo(cyd)
        made.clock.time += 1
        refused = text_of(await ann.call("up", "echo", {}))
        assert "try again in 99 s" in refused


async def test_counts_outlast_a_reload_if_the_rule_is_the_same() -> None:
    rule = Limit("limits[0]", rate=0.01, burst=1)
    async with scene(rule) as made:
        client = await made.client()
        assert await echo(client)
        made.proxy.apply(made.config(Limit("limits[0]", rate=50.0, burst=50), Limit("limits[1]", rate=0.01, burst=1)))
        assert not await echo(client)
        made.proxy.apply(made.config(Limit("limits[0]", rate=0.01, burst=2)))
        assert await echo(client)


async def test_a_client_of_one_group_alone_is_counted_too() -> None:
    async with scene(Limit("limits[0]", rate=0.01, burst=1)) as made:
        alone = Client(made.proxy, only="up")
        await alone.initialize()
        assert "isError" not in (await alone.request("tools/call", {"name": "echo", "arguments": {}}))["result"]
        answer = await alone.request("tools/call", {"name": "echo", "arguments": {}})
        assert answer["result"]["isError"]
        assert "try again in 100 s" in text_of(answer["result"])


async def test_no_other_way_to_write_a_call_is_counted_apart() -> None:
    async with scene(Limit("limits[0]", tools=("echo",), per=("tool",), rate=0.01, burst=1)) as made:
        alone = Client(made.proxy, only="up")
        await alone.initialize()
        await alone.request("tools/call", {"name": "echo", "arguments": {}})
        for params in ({"name": "ECHO"}, {"name": "other", "Name": "echo"}):
            answer = await alone.request("tools/call", {**params, "arguments": {}})
            assert "error" in answer or answer["result"]["isError"]
        assert made.calls() == 1


# --- places --------------------------------------------------------------------------------------------


async def test_no_more_calls_run_at_once_than_there_are_places() -> None:
    async with scene(Limit("limits[0]", concurrent=2), answers=False) as made:
        client = await made.client()
        calls = [asyncio.create_task(echo(client)) for _ in range(5)]
        for done in range(5):
            await made.upstream.hears("tools/call", min(5, done + 2))
            await settled()
            assert made.calls() == min(5, done + 2)
            await made.answer_call(done + 1)
        assert all(await asyncio.gather(*calls))


async def test_places_are_apart_for_persons_and_tools_where_a_rule_says_so() -> None:
    async with scene(Limit("limits[0]", per=("person", "tool"), concurrent=1), answers=False) as made:
        ann, bob = await made.client("ann"), await made.client("bob")
        calls = [asyncio.create_task(each) for each in (echo(ann), echo(ann, "other"), echo(bob), echo(ann))]
        await made.upstream.hears("tools/call", 3)
        await settled()
        assert made.calls() == 3
        for number in range(1, 5):
            await made.answer_call(number)
        assert all(await asyncio.gather(*calls))


async def test_clients_that_wait_take_turns() -> None:
    async with scene(Limit("limits[0]", concurrent=1), answers=False) as made:
        greedy, modest = await made.client("greedy"), await made.client("modest")
        running = [asyncio.create_task(echo(greedy)) for _ in range(4)]
        await made.upstream.hears("tools/call")
        await settled()
        last = asyncio.create_task(echo(modest, "other"))
        await settled()
        for number in range(1, 4):
            await made.answer_call(number)
        async with asyncio.timeout(BOUND_S):
            assert await last
        tools = [call["params"]["name"] for call in made.upstream.heard("tools/call")]
        assert tools.index("other") <= 2
        for number in range(4, 6):
            await made.answer_call(number)
        assert all(await asyncio.gather(*running))


async def test_a_waiting_call_that_is_cancelled_gives_up_its_turn_and_takes_no_place() -> None:
    async with scene(Limit("limits[0]", concurrent=1), answers=False) as made:
        client = await made.client()
        first = asyncio.create_task(echo(client))
        await made.upstream.hears("tools/call")
        waiting = {"group": "up", "name": "other", "args": {}}
        params = {"name": "call_dynamic_tool", "arguments": waiting}
        client.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params})
        await settled()
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
        await settled()
        await made.answer_call(1)
        assert await first
        next_one = asyncio.create_task(echo(client))
        await made.answer_call(2)
        assert await next_one
        assert [call["params"]["name"] for call in made.upstream.heard("tools/call")] == ["echo", "echo"]


async def test_a_running_call_that_is_cancelled_gives_back_its_place() -> None:
    async with scene(Limit("limits[0]", concurrent=1), answers=False) as made:
        client = await made.client()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "echo", "args": {}}}
        client.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params})
        await made.upstream.hears("tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
        after = asyncio.create_task(echo(client, "other"))
        await made.answer_call(2)
        assert await after


async def test_a_call_that_waits_longer_than_its_timeout_is_told_that_nothing_was_sent() -> None:
    rule = Limit("limits[0]", concurrent=1)
    async with scene(rule, answers=False) as made:
        client = await made.client()
        running = asyncio.create_task(echo(client))
        await made.upstream.hears("tools/call")
        made.proxy.apply(made.config(rule, timeouts=Timeouts(connect_s=5, tools_s=0.01, resources_s=5, prompts_s=5)))
        late = await client.call("up", "other", {})
        assert late["isError"]
        assert "waited 0.01 s for one of 1 place of `limits[0]`; nothing was sent" in text_of(late)
        await made.answer_call(1)
        assert await running
        assert made.calls() == 1


async def test_another_number_of_places_counts_at_once_with_those_that_are_taken() -> None:
    async with scene(Limit("limits[0]", concurrent=1), answers=False) as made:
        client = await made.client()
        calls = [asyncio.create_task(echo(client)) for _ in range(3)]
        await made.upstream.hears("tools/call")
        await settled()
        made.proxy.apply(made.config(Limit("limits[0]", concurrent=3)))
        calls.append(asyncio.create_task(echo(client)))
        await made.upstream.hears("tools/call", 3)
        await settled()
        assert made.calls() == 3
        for number in range(1, 5):
            await made.answer_call(number)
        assert all(await asyncio.gather(*calls))


async def test_a_person_who_is_asked_holds_no_place() -> None:
    async with approving() as on:
        on.groups = [group_config("up", rules={"limits": (Limit("limits[0]", concurrent=1),)})]
        on.change()
        client = await on.join()
        asked = begin(client)
        await on.waits()
        assert not (await client.call("up", "get_file", {})).get("isError")
        on.queue.allow("Q1")
        assert not (await asked).get("isError")


async def test_a_call_is_counted_before_a_person_is_asked() -> None:
    async with approving() as on:
        on.groups = [group_config("up", rules={"limits": (Limit("limits[0]", rate=0.001, burst=1),)})]
        on.change()
        client = await on.join()
        assert not (await client.call("up", "get_file", {})).get("isError")
        assert "too often" in text_of(await client.call("up", "delete_file", ONE))
        assert on.notified == []
