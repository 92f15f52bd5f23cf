"""How the instances of a group begin and end, one for each audience."""

from __future__ import annotations

import asyncio

from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.lifecycle import State
from tests.fakes import FakeUpstream
from tests.groups.shared import SAMPLING, answer, clients, scene, serving, silent


async def test_a_question_while_its_group_closes_is_refused_and_breaks_nothing() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await upstream.hears("tools/call", times=2)

        closing = asyncio.create_task(on.group.close())
        await asyncio.sleep(0)
        upstream.say(SAMPLING)
        await closing

        assert upstream.closed
        assert on.watcher.moved == []
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_group_that_was_replaced_starts_nothing_more_when_its_server_asks() -> None:
    upstream = silent()
    async with scene(upstream, silent()) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await upstream.hears("tools/call", times=2)

        on.group.retire()
        upstream.say(SAMPLING)
        answer(upstream)
        await asyncio.gather(*calls)

        assert on.watcher.moved == []
        assert len(on.group.instances) == 1


async def test_a_client_that_says_hello_after_its_first_call_shares_its_instance_with_nobody() -> None:
    async with scene(*(serving() for _ in range(3))) as on:
        ann, bob, eve = clients("ide", "ide", "ide")
        hello = ann.hello
        ann.hello = bob.hello = ClientInfo()
        await on.call(ann)
        ann.hello = hello
        on.group.start(ann)
        await on.call(bob)
        await on.call(eve)

        assert len({on.group.instance_for(client) for client in (ann, bob, eve)}) == 3
        on.group.release(ann)
        assert len(on.group.instances) == 2


async def test_a_client_that_says_another_hello_leaves_the_instance_that_it_shared() -> None:
    async with scene(serving(), serving()) as on:
        ann, bob = clients("ide", "ide")
        await on.call(ann)
        await on.call(bob)
        ann.hello = ClientInfo(client_info=ann.hello.client_info, capabilities=Raw(b'{"sampling":{}}'))
        on.group.start(ann)
        await on.call(ann)

        assert on.group.instance_for(ann) is not on.group.instance_for(bob)
        hello = on.opener.upstreams[1].heard("initialize")[0]["params"]
        assert hello["capabilities"] == {"sampling": {}}
        assert on.watcher.moved == [ann]


async def test_what_one_client_has_learnt_is_not_learnt_again_for_the_next() -> None:
    async with scene(serving(), serving(), share=Share.SESSION) as on:
        ann, bob = clients("ide", "ide")
        on.group.start(ann)
        await on.watcher.until(lambda: on.group.state is State.READY)

        on.group.start(bob)
        await on.clock.pass_(0)

        assert len(on.opener.opened) == 1


async def test_an_eager_group_connects_for_each_audience() -> None:
    async with scene(serving(), serving(), share=Share.SESSION, eager=True) as on:
        for client in clients("ide", "ide"):
            on.group.start(client)
            await on.clock.pass_(0)

        assert len(on.opener.opened) == 2


class SlowlyClosing(FakeUpstream):
    """Takes a while to end, and notes how often it began to and whether that was cut short."""

    def __init__(self) -> None:
        super().__init__({"tools/call": {"content": []}})
        self.closings: list[str] = []
        self.may_end = asyncio.Event()

    async def close(self) -> None:
        self.closings.append("began")
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.closings.append("was cut short")
            raise
        self.closings.append("ended")


async def test_an_instance_that_ends_because_it_is_idle_and_unused_closes_its_link_once_and_to_the_end() -> None:
    upstream = SlowlyClosing()
    async with scene(upstream, idle_after_s=60) as on:
        [ann] = clients("ide")
        await on.call(ann)
        on.group.release(ann)

        await on.clock.pass_(61)
        upstream.may_end.set()
        await on.group.close()

        assert upstream.closings == ["began", "ended"]


async def test_a_second_instance_takes_no_list_away_that_the_first_has_read_meanwhile() -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}}}
    prompts = {"prompts": [{"name": "greet"}]}
    first = FakeUpstream({"initialize": hello, "prompts/list": prompts})
    second = FakeUpstream({"initialize": hello, "prompts/list": prompts})
    del second.answers["tools/list"]
    async with scene(first, second) as on:
        ann, bob = clients("ide", "cli")
        on.group.instance_for(ann).start(wanted=True)
        on.group.instance_for(bob).start(wanted=True)
        asked = await second.hears("tools/list")
        await on.group.learn_catalog(ann, [ListKind.PROMPTS])

        second.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": []}})
        await on.watcher.until(lambda: on.group.instance_for(bob).state is State.READY)

        known = on.group.catalog
        assert known is not None
        assert list(known.entries(ListKind.PROMPTS)) == ["greet"]
