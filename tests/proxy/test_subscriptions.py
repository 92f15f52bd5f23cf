"""Subscriptions of several clients: each at its own instance, through moves and reloads."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from tests.fakes import Client, FakeUpstream, group_config, settled
from tests.proxy.many_clients import OTHER, able, notification, scene

# --- subscriptions ---------------------------------------------------------------------------------------------


def with_resources() -> FakeUpstream:
    listed = {"resources": [{"uri": "x://a", "name": "a"}]}
    answers = {
        "resources/list": listed,
        "resources/templates/list": {"resourceTemplates": []},
        "resources/subscribe": {},
        "resources/unsubscribe": {},
    }
    return able(answers, resources={"subscribe": True})


async def _subscribe(client: Client) -> None:
    await client.request("resources/list")
    assert (await client.request("resources/subscribe", {"uri": "x://a"}))["result"] == {}


async def test_a_subscription_goes_on_at_the_server_that_takes_the_place_of_a_changed_one() -> None:
    first, second = with_resources(), with_resources()
    async with scene(first, second) as on:
        ann = await on.join()
        await _subscribe(ann)

        on.reload(group_config("up", upstream=OTHER))
        await second.hears("resources/subscribe")
        second.say(notification("notifications/resources/updated", uri="x://a"))
        await ann.hears("notifications/resources/updated")

        [instance] = on.proxy.groups["up"].instances.values()
        assert instance.activity.is_subscribed


async def test_a_subscription_keeps_the_new_instance_of_its_client_open_and_the_old_one_no_longer() -> None:
    first, second = with_resources(), with_resources()
    async with scene(first, second) as on:
        ann, bob = await on.join(), await on.join()
        await ann.call("up", "echo")
        await _subscribe(bob)
        first.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})  # ends sharing
        await second.hears("resources/subscribe")

        group = on.proxy.groups["up"]
        is_open = [group.instance_for(client.session).activity.is_subscribed for client in (ann, bob)]
        assert is_open == [False, True]


async def test_a_subscription_to_a_group_that_was_removed_holds_on_to_no_client_that_has_gone() -> None:
    async with scene(with_resources()) as on:
        ann = await on.join()
        await _subscribe(ann)
        on.reload()
        await settled()

        ann.session.close()
        session = weakref.ref(ann.session)
        del ann
        await settled()
        gc.collect()

        assert session() is None


async def test_a_subscription_that_is_answered_after_its_client_has_moved_is_made_where_it_is_now() -> None:
    first, second = with_resources(), with_resources()
    async with scene(first, second) as on:
        ann, bob = await on.join(), await on.join()
        await ann.call("up", "echo")
        await bob.request("resources/list")
        del first.answers["resources/subscribe"]
        subscribing = asyncio.create_task(bob.request("resources/subscribe", {"uri": "x://a"}))
        asked = await first.hears("resources/subscribe")
        call = asyncio.create_task(ann.request("resources/read", {"uri": "x://a"}))
        await first.hears("resources/read")
        first.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})  # ends sharing
        await bob.call("up", "echo")

        first.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        assert (await subscribing)["result"] == {}

        assert (await second.hears("resources/subscribe"))["params"] == {"uri": "x://a"}
        call.cancel()


async def test_a_client_that_goes_ends_no_subscription_that_another_is_just_making() -> None:
    upstream = with_resources()
    async with scene(upstream) as on:
        ann, bob = await on.join(), await on.join()
        del upstream.answers["resources/subscribe"]
        await bob.request("resources/list")
        both = [asyncio.create_task(each.request("resources/subscribe", {"uri": "x://a"})) for each in (ann, bob)]
        await upstream.hears("resources/subscribe", times=2)
        first, second = upstream.heard("resources/subscribe")
        upstream.say({"jsonrpc": "2.0", "id": first["id"], "result": {}})
        await both[0]

        ann.session.close()
        await settled()
        upstream.say({"jsonrpc": "2.0", "id": second["id"], "result": {}})
        await both[1]

        assert upstream.heard("resources/unsubscribe") == []


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_server_hears_of_a_new_subscription_once_it_has_ended_the_one_before(is_gone: bool) -> None:
    """Over HTTP requests that are under way at the same time may arrive in any order."""
    upstream = with_resources()
    async with scene(upstream) as on:
        ann, bob = await on.join(), await on.join()
        await _subscribe(ann)
        await bob.request("resources/list")
        del upstream.answers["resources/unsubscribe"]
        if is_gone:
            ann.session.close()
        else:
            leaving = asyncio.create_task(ann.request("resources/unsubscribe", {"uri": "x://a"}))
        ending = await upstream.hears("resources/unsubscribe")

        subscribing = asyncio.create_task(bob.request("resources/subscribe", {"uri": "x://a"}))
        await settled()
        assert len(upstream.heard("resources/subscribe")) == 1
        upstream.say({"jsonrpc": "2.0", "id": ending["id"], "result": {}})
        await upstream.hears("resources/subscribe", times=2)

        assert (await subscribing)["result"] == {}
        assert is_gone or (await leaving)["result"] == {}


async def test_a_subscription_that_waits_for_a_changed_server_starts_nothing_that_is_never_ended() -> None:
    first, hanging, second = with_resources(), with_resources(), with_resources()
    del hanging.answers["initialize"]
    async with scene(first, hanging, second, with_resources()) as on:
        ann = await on.join()
        await ann.request("resources/list")
        await ann.call("up", "echo")
        first.die()
        subscribing = asyncio.create_task(ann.request("resources/subscribe", {"uri": "x://a"}))
        await hanging.hears("initialize")

        on.reload(group_config("up", upstream=OTHER))
        assert (await subscribing)["result"] == {}
        await settled()
        await on.proxy.close()

        assert len(on.opener.opened) == 3
        assert second.closed
