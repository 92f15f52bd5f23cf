"""What changes at a modern upstream is heard over one subscription, which is replaced without a gap."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.modern_link import ModernLink
from tests.fake_parties import Ear
from tests.fakes import BOUND_S, Json, settled
from tests.upstream.modern import PREFIX, ModernUpstream, complete, meta_of, modern_link_to, until

LISTEN = "subscriptions/listen"
CHANGING = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"listChanged": True, "subscribe": True}}
LISTS = {"toolsListChanged": True, "resourcesListChanged": True}


def _wanted(listen: Json) -> Json:
    return listen["params"]["notifications"]


def _change(link: ModernLink, method: str, uri: str) -> asyncio.Task[Frame]:
    params = {"uri": Raw(wire.encode(uri))}
    return asyncio.create_task(link.request(f"resources/{method}", params, timeout_s=5))


def _cancelled(upstream: ModernUpstream) -> list[int]:
    return [each["params"]["requestId"] for each in upstream.heard("notifications/cancelled")]


async def _heard(ear: Ear, times: int) -> list[tuple[str, bytes]]:
    await until(lambda: len(ear.frames) >= times)
    return [(frame.method, bytes(frame.params)) for frame in ear.frames]


async def test_a_link_listens_to_the_lists_that_its_upstream_reports() -> None:
    upstream = ModernUpstream(CHANGING)
    await modern_link_to(upstream)

    listen = await upstream.hears(LISTEN)

    assert _wanted(listen) == LISTS
    assert meta_of(listen)[f"{PREFIX}protocolVersion"] == "2026-07-28"


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"tools": {"listChanged": False}}, {}])
async def test_a_link_does_not_listen_where_nothing_is_reported(capabilities: Json) -> None:
    upstream = ModernUpstream(capabilities)
    await modern_link_to(upstream)

    await settled()

    assert upstream.heard(LISTEN) == []


async def test_changes_are_passed_on_as_legacy_servers_report_them() -> None:
    upstream, ear = ModernUpstream(CHANGING), Ear()
    await modern_link_to(upstream, listener=ear)
    listen = await upstream.hears(LISTEN)
    upstream.acknowledge(listen)

    upstream.announce(listen, "tools/list_changed")
    meta = b'"_meta":{"%ssubscriptionId":%d,"x":1.50}' % (PREFIX.encode(), listen["id"])
    updated = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri" : "a://b",%s}}'
    upstream.say(updated % meta)

    assert await _heard(ear, 2) == [
        ("notifications/tools/list_changed", b""),
        ("notifications/resources/updated", b'{"uri":"a://b","_meta":{"x":1.50}}'),
    ]


async def test_what_belongs_to_no_open_subscription_is_dropped() -> None:
    upstream, ear = ModernUpstream(CHANGING), Ear()
    await modern_link_to(upstream, listener=ear)
    listen = await upstream.hears(LISTEN)

    upstream.announce(listen, "tools/list_changed")  # before it is acknowledged
    upstream.acknowledge(listen)
    upstream.announce({"id": 99}, "tools/list_changed")
    upstream.acknowledge({**listen, "id": 98})
    await settled()

    assert ear.frames == []


async def test_a_resource_is_subscribed_to_by_another_subscription_which_takes_over_without_a_gap() -> None:
    upstream, ear = ModernUpstream(CHANGING), Ear()
    link = await modern_link_to(upstream, listener=ear)
    first = await upstream.hears(LISTEN)
    upstream.acknowledge(first)

    subscribing = _change(link, "subscribe", "a://b")
    second = await upstream.hears(LISTEN, times=2)
    assert _wanted(second) == {**LISTS, "resourceSubscriptions": ["a://b"]}
    assert _cancelled(upstream) == []
    upstream.announce(first, "tools/list_changed")
    await settled()
    assert not subscribing.done()
    upstream.acknowledge(second)

    assert bytes((await subscribing).result) == b"{}"
    await upstream.hears("notifications/cancelled")
    assert _cancelled(upstream) == [first["id"]]
    upstream.announce(second, "resources/updated", uri="a://b")
    upstream.announce(first, "tools/list_changed")  # it was replaced
    methods = [method for method, _ in await _heard(ear, 2)]
    assert methods == ["notifications/tools/list_changed", "notifications/resources/updated"]
    assert upstream.heard("resources/subscribe") == []


async def test_many_subscriptions_at_once_need_few_streams() -> None:
    upstream = ModernUpstream({"resources": {"subscribe": True}})
    link = await modern_link_to(upstream)

    subscribing = [_change(link, "subscribe", f"a://{n}") for n in range(20)]
    first = await upstream.hears(LISTEN)
    upstream.acknowledge(first)
    if len(_wanted(first)["resourceSubscriptions"]) < 20:
        upstream.acknowledge(await upstream.hears(LISTEN, times=2))
    await asyncio.gather(*subscribing)

    assert len(upstream.heard(LISTEN)) <= 2


async def test_the_last_resource_that_is_unsubscribed_ends_a_subscription_that_hears_nothing_else() -> None:
    upstream = ModernUpstream({"resources": {"subscribe": True}})
    link = await modern_link_to(upstream)
    subscribing = _change(link, "subscribe", "a://b")
    listen = await upstream.hears(LISTEN)
    upstream.acknowledge(listen)
    await subscribing

    assert bytes((await _change(link, "unsubscribe", "a://b")).result) == b"{}"

    await upstream.hears("notifications/cancelled")
    assert _cancelled(upstream) == [listen["id"]]
    assert len(upstream.heard(LISTEN)) == 1


async def test_a_resource_that_the_upstream_does_not_report_is_refused() -> None:
    upstream = ModernUpstream(CHANGING)
    link = await modern_link_to(upstream)
    upstream.acknowledge(await upstream.hears(LISTEN))

    subscribing = _change(link, "subscribe", "a://b")
    upstream.acknowledge(await upstream.hears(LISTEN, times=2), toolsListChanged=True)

    answer = await subscribing
    assert b"does not report changes of `a://b`" in bytes(answer.error)


async def test_an_upstream_that_refuses_to_be_listened_to_is_left_alone() -> None:
    upstream = ModernUpstream(CHANGING)
    link = await modern_link_to(upstream)
    listen = await upstream.hears(LISTEN)
    upstream.say({"jsonrpc": "2.0", "id": listen["id"], "error": {"code": -32601, "message": "no such method"}})
    await settled()
    assert len(upstream.heard(LISTEN)) == 1

    subscribing = _change(link, "subscribe", "a://b")
    listen = await upstream.hears(LISTEN, times=2)
    upstream.say({"jsonrpc": "2.0", "id": listen["id"], "error": {"code": -32601, "message": "no such method"}})

    with pytest.raises(DynamicMcpError, match="no such method"):
        await subscribing


@pytest.mark.parametrize("end", ["cancelled", "error"])
async def test_a_subscription_that_breaks_is_opened_again_and_all_may_have_changed_meanwhile(end: str) -> None:
    upstream, ear = ModernUpstream(CHANGING), Ear()
    await modern_link_to(upstream, listener=ear)
    first = await upstream.hears(LISTEN)
    upstream.acknowledge(first)

    if end == "cancelled":
        params = {"requestId": first["id"]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    else:
        error = {"code": -32603, "message": "shutting down"}
        upstream.say({"jsonrpc": "2.0", "id": first["id"], "error": error})
    second = await upstream.hears(LISTEN, times=2)
    assert ear.frames == []
    upstream.acknowledge(second)

    methods = [method for method, _ in await _heard(ear, 2)]
    assert methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]


async def test_a_subscription_that_the_upstream_ends_at_once_is_not_opened_again() -> None:
    upstream, ear = ModernUpstream(CHANGING), Ear()
    await modern_link_to(upstream, listener=ear)
    listen = await upstream.hears(LISTEN)
    upstream.acknowledge(listen)

    upstream.say({"jsonrpc": "2.0", "id": listen["id"], "result": complete()})
    await settled()

    assert (len(upstream.heard(LISTEN)), ear.frames) == (1, [])


async def test_a_link_is_closed_to_the_end_though_whoever_waits_is_cancelled() -> None:
    upstream = ModernUpstream(CHANGING)
    link = await modern_link_to(upstream)
    upstream.acknowledge(await upstream.hears(LISTEN))
    await settled()

    closing = asyncio.create_task(link.close())
    await asyncio.sleep(0)
    closing.cancel()
    await settled()

    assert closing.cancelled()
    assert upstream.closed


async def test_a_link_that_closes_ends_its_subscription() -> None:
    upstream = ModernUpstream(CHANGING)
    link = await modern_link_to(upstream)
    listen = await upstream.hears(LISTEN)
    upstream.acknowledge(listen)
    await settled()

    async with asyncio.timeout(BOUND_S):
        await link.close()

    assert _cancelled(upstream) == [listen["id"]]
    assert upstream.closed


@pytest.mark.parametrize("turns", range(6))
async def test_a_link_closes_also_if_its_subscription_is_acknowledged_meanwhile(turns: int) -> None:
    upstream = ModernUpstream(CHANGING)
    link = await modern_link_to(upstream)
    listen = await upstream.hears(LISTEN)

    closing = asyncio.create_task(link.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    upstream.acknowledge(listen)

    async with asyncio.timeout(BOUND_S):
        await closing
    assert upstream.closed
