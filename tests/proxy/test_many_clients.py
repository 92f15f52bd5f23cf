"""Several clients on one proxy: how sessions end, log levels, advice, reloads."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.config.resolved import Features, Share, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config, settled, text_of
from tests.proxy.many_clients import ANSWER, OTHER, able, notification, scene

# --- the end of a session ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["resources/list", "prompts/list"])
async def test_a_session_that_ends_as_it_begins_to_wait_for_a_list_is_not_served_again(method: str) -> None:
    opener = Opener(up=[FakeUpstream()])
    opener.gate.clear()
    proxy = Proxy(config_of(group_config("up", share=Share.SESSION)), opener=opener)
    client = Client(proxy)
    client.send({"jsonrpc": "2.0", "id": 1, "method": method})
    await asyncio.sleep(0)  # the request has begun, and what it waits for has not

    client.session.close()
    await settled()

    assert proxy.groups["up"].instances == {}
    opener.gate.set()
    await proxy.close()


async def test_a_line_that_comes_after_the_end_of_its_session_is_not_served() -> None:
    async with scene(FakeUpstream(), share=Share.SESSION) as on:
        ann = await on.join()
        ann.session.close()
        await settled()
        opened = len(on.opener.opened)

        ann.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "up__echo"}})
        await settled()

        assert (len(on.opener.opened), on.proxy.groups["up"].instances) == (opened, {})


async def test_a_list_is_not_waited_for_any_longer_once_its_session_has_ended() -> None:
    opener = Opener(up=[FakeUpstream(), FakeUpstream()])
    opener.gate.clear()
    proxy = Proxy(config_of(group_config("up", share=Share.SESSION)), opener=opener)
    client = Client(proxy)
    await client.initialize()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})
    await settled()

    client.session.close()
    proxy.apply(config_of(group_config("up", share=Share.SESSION, upstream=OTHER)))
    await settled()

    assert proxy.groups["up"].instances == {}
    opener.gate.set()
    await proxy.close()


async def test_a_kept_result_is_gone_after_its_session_ended() -> None:
    long = {"content": [{"type": "text", "text": "x" * 200_000}]}
    async with scene(FakeUpstream({"tools/call": long})) as on:
        ann, bob = await on.join(), await on.join()
        text = json.dumps(await ann.call("up", "echo"))
        uri = text[text.index("dynamic-mcp://results/") :][:54]
        read = await ann.request("resources/read", {"uri": uri})
        assert len(read["result"]["contents"][0]["text"]) == 200_000
        assert "error" in await bob.request("resources/read", {"uri": uri})

        ann.session.close()

        assert "error" in await bob.request("resources/read", {"uri": uri})
        again = Client(on.proxy)
        assert "error" in await again.request("resources/read", {"uri": uri})


# --- log levels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", ["its session", "its instance"])
async def test_a_client_that_named_no_level_hears_nothing_of_the_one_that_another_named(leaves: str) -> None:
    upstreams = [able({"logging/setLevel": {}}, logging={}) for _ in range(2)]
    shared = upstreams[0]
    async with scene(*upstreams) as on:
        ann, bob = await on.join(), await on.join()
        await ann.call("up", "echo")
        await bob.call("up", "echo")
        await bob.request("logging/setLevel", {"level": "debug"})
        await shared.hears("logging/setLevel")

        if leaves == "its session":
            bob.session.close()
        else:
            shared.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
            await shared.hears("an answer")
        await shared.hears("logging/setLevel", times=2)
        del shared.answers["tools/call"]
        call = asyncio.create_task(ann.call("up", "echo"))
        asked = await shared.hears("tools/call", times=3)
        for level in ("debug", "info"):
            shared.say(notification("notifications/message", level=level, data="words"))
        shared.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        await call

        assert shared.heard("logging/setLevel")[-1]["params"] == {"level": "info"}
        assert [each["params"]["level"] for each in ann.heard("notifications/message")] == ["info"]


# --- what is said of a group -------------------------------------------------------------------------------------


async def test_advice_about_missing_variables_is_worded_for_the_client_that_reads_it() -> None:
    failing = {"content": [], "isError": True}
    async with scene(FakeUpstream({"tools/call": failing}), share=Share.ALL, unset=("TOKEN",)) as on:
        clients = []
        for name in ("claude-ai", "continue-client"):
            client = Client(on.proxy)
            info = {"name": name, "version": "1"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            await client.request("initialize", hello)
            clients.append(client)

        said = [json.dumps(await client.call("up", "echo")) for client in clients]

        assert ["Claude Desktop" in each for each in said] == [True, False]
        assert ["Continue" in each for each in said] == [False, True]


# --- the config ------------------------------------------------------------------------------------------------


async def test_a_changed_filter_reads_nothing_and_each_client_hears_of_it_once() -> None:
    upstream = FakeUpstream(tools=("read", "write"))
    direct = DirectTools(is_all=True)
    async with scene(upstream, direct=direct) as on:
        both = [await on.join() for _ in range(2)]
        before = (len(upstream.sent), [len(each.heard("notifications/tools/list_changed")) for each in both])

        on.reload(group_config("up", direct=direct, tools=ToolFilter(include=("read",), exclude=())))
        for client, heard in zip(both, before[1], strict=True):
            await client.hears("notifications/tools/list_changed", heard + 1)
        listed = [await client.request("tools/list") for client in both]
        await settled()

        assert [[tool["name"] for tool in each["result"]["tools"]] for each in listed] == [["up__read"]] * 2
        counts = [len(each.heard("notifications/tools/list_changed")) for each in both]
        assert (len(upstream.sent), counts) == (before[0], [heard + 1 for heard in before[1]])


async def test_a_feature_that_is_switched_on_is_read_by_one_instance_and_starts_no_other() -> None:
    off = Features(tools=True, resources=True, prompts=False)
    prompts = {"prompts/list": {"prompts": [{"name": "greet"}]}}
    upstreams = [able(prompts, prompts={}) for _ in range(4)]
    async with scene(*upstreams, share=Share.SESSION, features=off) as on:
        clients = [await on.join() for _ in range(3)]
        for client in clients:
            await client.call("up", "echo")
        for upstream in upstreams[:3]:
            assert upstream.heard("prompts/list") == []

        on.reload(group_config("up", share=Share.SESSION))
        await settled()

        assert sum(len(upstream.heard("prompts/list")) for upstream in upstreams) == 1
        assert "greet" in json.dumps(await clients[2].request("prompts/list"))
        assert on.proxy.groups["up"].state is State.READY


async def test_calls_of_all_clients_go_on_when_their_group_is_shared_in_another_way() -> None:
    upstreams = [FakeUpstream() for _ in range(4)]
    async with scene(*upstreams, share=Share.ALL) as on:
        ann, bob = await on.join(), await on.join()
        calls = [asyncio.create_task(each.call("up", "echo")) for each in (ann, bob)]
        await upstreams[0].hears("tools/call", times=2)

        for upstream in upstreams[1:]:
            upstream.answers["tools/call"] = {"content": [{"type": "text", "text": "new"}]}
        on.reload(group_config("up", share=Share.SESSION))
        for asked in upstreams[0].heard("tools/call"):
            late = {"content": [{"type": "text", "text": f"late {asked['id']}"}]}
            upstreams[0].say({"jsonrpc": "2.0", "id": asked["id"], "result": late})

        assert len({text_of(each) for each in await asyncio.gather(*calls)}) == 2
        assert [text_of(await each.call("up", "echo")) for each in (ann, bob)] == ["new", "new"]
        await settled()
        assert upstreams[0].closed
        assert len(on.proxy.groups["up"].instances) == 2
