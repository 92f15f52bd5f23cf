"""Who shares an instance of a group, what an upstream's messages are for, and how instances end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.lifecycle import State
from tests.fake_parties import FakeCaller
from tests.fakes import frame, settled
from tests.groups.shared import LOG, SAMPLING, Scene, answer, clients, scene, serving, silent


@pytest.mark.parametrize(
    ("share", "instances"),
    [(Share.AUTO, 3), (Share.SESSION, 4), (Share.USER, 2), (Share.ALL, 1)],
)
async def test_clients_share_an_instance_as_the_config_says(share: Share, instances: int) -> None:
    async with scene(*(serving() for _ in range(4)), share=share) as on:
        for client in (*clients("ide", "ide", "cli"), *clients("ide", subject="other")):
            await on.call(client)

        assert len(on.opener.opened) == len(on.group.instances) == instances
        assert on.group.calls == 4


async def test_an_instance_for_everybody_is_greeted_as_ourselves_with_no_capabilities() -> None:
    upstream = serving()
    async with scene(upstream, share=Share.ALL) as on:
        [client] = clients("ide")
        client.hello = ClientInfo(capabilities=Raw(b'{"sampling":{}}'))
        await on.call(client)

        hello = upstream.heard("initialize")[0]["params"]
        assert (hello["clientInfo"]["name"], hello["capabilities"]) == ("dynamic-mcp", {})


async def test_a_question_goes_to_the_one_client_whose_call_is_in_flight() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann)]
        await upstream.hears("tools/call")
        answer(upstream)
        await calls.pop()
        calls.append(on.call(bob))
        await upstream.hears("tools/call", times=2)
        bob.answer.set_result(frame(result=b'{"by":"bob"}'))

        upstream.say(SAMPLING)

        assert (await upstream.hears("an answer"))["result"] == {"by": "bob"}
        assert ann.asked == []
        answer(upstream)
        await asyncio.gather(*calls)


async def test_a_question_that_may_be_either_clients_is_refused() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await upstream.hears("tools/call", times=2)

        upstream.say(SAMPLING)

        assert (await upstream.hears("an answer"))["error"]["code"] == -32601
        assert (ann.asked, bob.asked) == ([], [])
        answer(upstream)
        await asyncio.gather(*calls)


async def test_a_server_that_has_asked_is_not_shared_any_more_and_that_is_remembered(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path)
    first, second = silent(), serving()
    async with scene(first, second, store=store) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await first.hears("tools/call", times=2)
        first.say(SAMPLING)
        await first.hears("an answer")
        answer(first)
        await asyncio.gather(*calls)

        answers = [on.call(ann), on.call(bob)]
        await first.hears("tools/call", times=3)
        answer(first)
        await asyncio.gather(*answers)

        assert (len(first.heard("tools/call")), len(second.heard("tools/call"))) == (3, 1)
        assert on.watcher.moved == [bob]
        while not ((stored := store.load(on.group.config)) and stored.asks):  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0)

    async with scene(*(serving() for _ in range(2)), store=store) as again:
        ann, bob = clients("ide", "ide")
        again.group.start(ann)
        await again.call(ann)
        await again.call(bob)
        assert len(again.group.instances) == 2


@pytest.mark.parametrize("share", [Share.USER, Share.ALL])
async def test_the_configs_word_wins_over_what_a_server_does(share: Share) -> None:
    upstream = silent()
    async with scene(upstream, share=share) as on:
        ann, bob = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await upstream.hears("tools/call", times=2)
        upstream.say(SAMPLING)
        await upstream.hears("an answer")
        answer(upstream)
        await asyncio.gather(*calls)

        assert len(on.group.instances) == 1


def told(on: Scene, clients: Sequence[FakeCaller]) -> list[list[FakeCaller]]:
    """Return for each notification which of these clients it was for."""
    return [[client for client in clients if client in concerned] for concerned in on.watcher.concerned]


async def test_a_log_message_is_for_the_one_client_that_has_called_just_now() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = both = clients("ide", "ide")
        on.group.instance_for(ann)
        call = on.call(bob)
        await upstream.hears("tools/call")
        upstream.say(LOG)
        answer(upstream)
        upstream.say(LOG)
        await call
        upstream.say(LOG)
        await asyncio.sleep(0)

        assert told(on, both) == [[bob], [bob], [bob]]
        await on.clock.pass_(10)
        upstream.say(LOG)
        await asyncio.sleep(0)
        assert told(on, both)[-1] == [ann, bob]


async def test_a_log_message_that_may_be_about_either_clients_call_is_for_nobody() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = both = clients("ide", "ide")
        calls = [on.call(ann), on.call(bob)]
        await upstream.hears("tools/call", times=2)
        upstream.say(LOG)
        await asyncio.sleep(0)

        assert told(on, both) == [[]]
        answer(upstream)
        await asyncio.gather(*calls)


async def test_a_log_message_beside_the_answers_is_for_nobody_if_it_may_be_about_a_call_that_was_answered() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        ann, bob = both = clients("ide", "ide")
        on.group.instance_for(ann)
        first = on.call(bob)
        await upstream.hears("tools/call")
        upstream.link.has_streams = True
        upstream.say(LOG)
        answer(upstream)
        await first
        second = on.call(ann)
        await upstream.hears("tools/call", times=2)
        upstream.say(LOG)
        await asyncio.sleep(0)

        assert told(on, both) == [[bob], []]
        await on.clock.pass_(10)
        upstream.say(LOG)
        await asyncio.sleep(0)
        assert told(on, both)[-1] == [ann]
        answer(upstream)
        await second


async def test_a_client_that_goes_ends_its_own_instance_and_leaves_a_shared_one_to_the_others() -> None:
    upstreams = [serving() for _ in range(3)]
    async with scene(*upstreams) as on:
        ann, bob, cli = clients("ide", "ide", "cli")
        for client in (ann, bob, cli):
            await on.call(client)

        on.group.release(ann)
        await on.call(bob)
        assert len(on.opener.opened) == 2

        on.group.release(bob)
        on.group.release(cli)
        [eve] = clients("ide")
        await on.call(eve)
        assert len(on.opener.opened) == 2  # it was still warm


async def test_a_session_of_its_own_ends_with_its_client() -> None:
    upstream = serving()
    async with scene(upstream, share=Share.SESSION) as on:
        [ann] = clients("ide")
        await on.call(ann)
        on.group.release(ann)
        assert on.group.instances == {}
        await on.group.close()
        assert upstream.closed
        assert on.group.calls == 1


async def test_an_instance_that_nobody_uses_any_more_is_gone_once_it_is_idle() -> None:
    async with scene(serving(), idle_after_s=60) as on:
        [ann] = clients("ide")
        await on.call(ann)
        on.group.release(ann)
        assert len(on.group.instances) == 1

        await on.clock.pass_(61)

        assert on.group.instances == {}
        assert on.group.state is State.COLD


async def test_one_instance_that_dies_costs_the_other_nothing() -> None:
    first, second = silent(), silent()
    async with scene(first, second) as on:
        ann, bob = clients("ide", "cli")
        calls = [on.call(ann), on.call(bob)]
        await first.hears("tools/call")
        await second.hears("tools/call")

        first.die()
        answer(second)

        with pytest.raises(DynamicMcpError):
            await calls[0]
        await calls[1]
        await settled()
        assert on.group.state is State.READY


async def test_a_client_that_calls_before_it_says_hello_keeps_its_instance_for_reconnecting_as_itself() -> None:
    first, second = serving(), serving()
    async with scene(first, second) as on:
        client = FakeCaller()
        await on.call(client)
        client.hello = ClientInfo(client_info=Raw(b'{"name":"ide","version":"1"}'))
        on.group.start(client)
        first.die()
        await on.call(client)

        assert len(on.group.instances) == 1
        assert second.heard("initialize")[0]["params"]["clientInfo"] == {"name": "ide", "version": "1"}


async def test_a_log_message_about_a_call_that_ended_as_another_client_came_is_for_the_one_that_called() -> None:
    upstream = serving()
    async with scene(upstream) as on:
        ann, bob = both = clients("ide", "ide")
        await on.call(ann)
        await on.clock.pass_(0.5)
        on.group.instance_for(bob)

        upstream.say(LOG)
        await asyncio.sleep(0)

        assert told(on, both) == [[ann]]


async def test_log_messages_that_are_kept_back_are_not_delivered_later_either() -> None:
    upstream = silent()
    async with scene(upstream) as on:
        both = clients("ide", "ide")
        calls = [on.call(client) for client in both]
        await upstream.hears("tools/call", times=2)
        upstream.say(LOG)
        answer(upstream)
        await asyncio.gather(*calls)
        upstream.say(LOG)
        await on.clock.pass_(10)

        assert told(on, both) == [[], []]
