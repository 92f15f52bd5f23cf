"""`subscriptions/listen`: a modern client hears of what it asked for, on the stream that it asked for it."""

from __future__ import annotations

import pytest

from dynamic_mcp.proxy import subscriptions
from dynamic_mcp.proxy.proxy import Proxy
from tests.fake_parties import OtherReplicas
from tests.fakes import FullUpstream, Json, Opener, config_of, group_config, settled
from tests.modern_client import PREFIX, ModernClient, modern_client_of

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
NEW_TOOL = {"name": "new", "inputSchema": {"type": "object"}}
TOOLS_CHANGED = "notifications/tools/list_changed"


def listen(client: ModernClient, **wanted: Json) -> int:
    """Begin to listen; returns the id of the request."""
    return client.begin("subscriptions/listen", {"notifications": wanted})


def ids(messages: list[dict[str, Json]]) -> list[Json]:
    """Return which streams these notifications came on."""
    return [each["params"]["_meta"][f"{PREFIX}subscriptionId"] for each in messages]


async def first_resource(client: ModernClient) -> str:
    """Return the URI of a resource."""
    await client.call("a", "plain")
    listed = await client.request("resources/list")
    uri: str = listed["result"]["resources"][0]["uri"]
    return uri


async def test_what_a_client_will_hear_is_acknowledged_before_anything_else() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        uri = await first_resource(client)
        id = listen(client, toolsListChanged=True, resourceSubscriptions=[uri, "nowhere:1"], other=True)
        said = await client.hears(ACKNOWLEDGED)
    assert ids([said]) == [id]
    assert said["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [uri]}


async def test_a_changed_list_is_announced_to_those_who_listen_for_it_and_to_nobody_else() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        await first_resource(client)
        await client.request("prompts/list")
        others = listen(client, resourcesListChanged=True)
        prompts = listen(client, promptsListChanged=True)
        await client.hears(ACKNOWLEDGED, 2)
        entry = {"name": "new", "description": "x"}
        await client.call("a", "add", {"list": "prompts", "entry": entry})
        changed = await client.hears("notifications/prompts/list_changed")
        await settled()
    assert ids([changed]) == [prompts]
    assert others not in ids(client.heard("notifications/prompts/list_changed"))


async def test_an_updated_resource_is_announced_on_each_stream_that_listens_for_it() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        uri = await first_resource(client)
        both = [listen(client, resourceSubscriptions=[uri]) for _ in range(2)]
        listen(client, toolsListChanged=True)
        await client.hears(ACKNOWLEDGED, 3)
        await client.call("a", "update", {"uri": uri})
        await client.hears(UPDATED, 2)
        await settled()
    assert sorted(ids(client.heard(UPDATED))) == both
    assert len(upstream.heard("resources/subscribe")) == 1


async def test_a_stream_that_listens_for_another_resource_hears_nothing_of_an_update() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        await client.call("a", "plain")
        text = listen(client, resourceSubscriptions=["full://text"])
        blob = listen(client, resourceSubscriptions=["full://blob"])
        await client.hears(ACKNOWLEDGED, 2)
        await client.call("a", "update", {"uri": "full://text"})
        await client.call("a", "update", {"uri": "full://blob"})
        await client.hears(UPDATED, 2)
        await settled()
        heard = client.heard(UPDATED)
    assert list(zip(ids(heard), [each["params"]["uri"] for each in heard], strict=True)) == [
        (text, "full://text"),
        (blob, "full://blob"),
    ]


async def test_a_stream_that_is_cancelled_ends_and_the_last_one_unsubscribes() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        uri = await first_resource(client)
        first, second = (listen(client, resourceSubscriptions=[uri]) for _ in range(2))
        await client.hears(ACKNOWLEDGED, 2)
        client.cancel(first)
        await settled()
        assert not upstream.heard("resources/unsubscribe")
        client.cancel(second)
        await upstream.hears("resources/unsubscribe")
        await settled()
    assert not [message for message in client.messages if message.get("id") in (first, second)]


async def test_who_listens_again_at_once_is_subscribed() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        uri = await first_resource(client)
        first = listen(client, resourceSubscriptions=[uri])
        await client.hears(ACKNOWLEDGED)
        client.cancel(first)
        listen(client, resourceSubscriptions=[uri])
        await client.hears(ACKNOWLEDGED, 2)
        await settled()
        await client.call("a", "update", {"uri": uri})
        await client.hears(UPDATED)


async def test_a_stream_ends_in_good_order_when_the_proxy_does() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        id = listen(client, toolsListChanged=True)
        await client.hears(ACKNOWLEDGED)
        await client.session.drain(1)
        ended = await client.answer_to(id)
    assert ended["result"] == {"resultType": "complete", "_meta": {**ended["result"]["_meta"]}}
    assert ended["result"]["_meta"][f"{PREFIX}subscriptionId"] == id


async def test_a_listen_without_a_filter_is_refused() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        for params in ({}, {"notifications": 1}, {"notifications": {"resourceSubscriptions": [1]}}):
            answer = await client.request("subscriptions/listen", params)
            assert answer["error"]["code"] == -32602


async def test_a_client_that_goes_leaves_nothing_behind() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        uri = await first_resource(client)
        listen(client, resourceSubscriptions=[uri])
        await client.hears(ACKNOWLEDGED)
        other = ModernClient(client.server)
        client.session.close()
        await settled()
        assert [*client.server.clients] == []  # type: ignore[attr-defined]  # a proxy
        await other.call("a", "update", {"uri": uri})
    assert not other.heard(UPDATED)


async def test_a_part_of_a_resource_goes_to_the_stream_of_that_resource() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        await first_resource(client)
        listed = await client.request("resources/list")
        first, second = (each["uri"] for each in listed["result"]["resources"][:2])
        one = listen(client, resourceSubscriptions=[first])
        listen(client, resourceSubscriptions=[second])
        await client.hears(ACKNOWLEDGED, 2)
        await client.call("a", "update", {"uri": f"{first}/part"})
        await client.hears(UPDATED)
        await settled()
    assert ids(client.heard(UPDATED)) == [one]


# --- replicas -------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """One of several replicas, with a server."""
    monkeypatch.setattr(subscriptions, "REPLICAS_SETTLE_S", 0.1)
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[FullUpstream()]))
    proxy.join_replicas(OtherReplicas())
    return proxy


async def test_a_change_is_announced_again_when_other_replicas_know_of_it_too(proxy: Proxy) -> None:
    client = ModernClient(proxy, only="a")
    await client.request("tools/list")
    listen(client, toolsListChanged=True)
    await client.hears(ACKNOWLEDGED)
    await client.request("tools/call", {"name": "add", "arguments": {"list": "tools", "entry": NEW_TOOL}})
    await client.hears(TOOLS_CHANGED, 2)
    await proxy.close()


async def test_a_list_that_comes_to_be_known_here_may_have_been_another_elsewhere(proxy: Proxy) -> None:
    client = ModernClient(proxy, only="a")
    listen(client, toolsListChanged=True)
    await client.hears(ACKNOWLEDGED)
    await client.request("tools/call", {"name": "plain", "arguments": {}})
    await client.hears(TOOLS_CHANGED)
    await proxy.close()
