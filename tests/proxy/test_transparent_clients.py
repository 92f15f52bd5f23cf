"""What a client that sees one group alone hears and asks for, by itself and beside clients that see all groups."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from dynamic_mcp.config.resolved import Share, ToolFilter
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Json, Opener, config_of, group_config, part, settled, text_of
from tests.program import BOUND_S
from tests.proxy.bare import Bare, alone
from tests.upstreams import full_offers as offers


class Scene:
    """A proxy in front of the groups `up` and `other`, for one client that sees all and one that sees `up` alone."""

    def __init__(self, share: Share) -> None:
        self.up, self.other = FullUpstream(name="up"), FullUpstream(name="other")
        self.share = share
        self.proxy = Proxy(
            config_of(group_config("up", share=share), group_config("other", share=share)),
            opener=Opener(up=[self.up], other=[self.other]),
        )
        self.all = Client(self.proxy)
        self.alone = Client(self.proxy, only="up")

    async def call_all(self) -> None:
        """Connect both groups for the client that sees all."""
        for group in ("up", "other"):
            await self.all.call(group, "echo", {"text": "there"})


@contextlib.asynccontextmanager
async def scene(share: Share = Share.ALL) -> AsyncIterator[Scene]:
    made = Scene(share)
    try:
        async with asyncio.timeout(BOUND_S):
            await made.all.initialize()
            await made.alone.initialize()
            yield made
    finally:
        await made.proxy.close()


async def call(client: Client, name: str, **arguments: Json) -> Json:
    """Call a tool by its own name and return the result."""
    return (await client.request("tools/call", {"name": name, "arguments": arguments}))["result"]


# --- one client ------------------------------------------------------------------------------------------------


async def test_progress_reaches_the_call_with_its_token_and_a_cancellation_the_server() -> None:
    upstream = FullUpstream()
    async with alone(upstream) as client:
        await client.request(
            "tools/call", {"name": "progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}}
        )
        assert [each["params"]["progressToken"] for each in client.heard("notifications/progress")] == ["t", "t"]

        client.send(
            {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "wait", "arguments": {"key": "k"}}}
        )
        await client.hears("notifications/vendor.example/waiting")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})
        await upstream.hears("notifications/cancelled")
        assert text_of(await call(client, "release", key="k")) == "it was cancelled"


async def test_questions_reach_the_client_and_answers_the_server_as_they_are() -> None:
    async with alone(FullUpstream()) as client:
        await client.initialize(capabilities={"sampling": {}, "elicitation": {"form": {}}})
        asked = asyncio.create_task(call(client, "sample"))
        question = await client.hears("sampling/createMessage")
        client.reply(question, b'{"role":"assistant","x":1.0,"content":{"type":"text","text":"hi"}}')
        assert '"x":1.0' in text_of(await asked)


async def test_a_task_keeps_its_id_and_is_asked_about_by_it() -> None:
    async with alone(FullUpstream()) as client:
        params = {"name": "wait", "arguments": {"key": "k"}, "task": {"ttl": 1000}}
        began = (await client.request("tools/call", params))["result"]["task"]
        bare = Bare()
        itself = json.loads(part(await bare.exchange("tools/call", params), "result"))["task"]
        assert began["taskId"] == itself["taskId"]
        got = (await client.request("tasks/get", {"taskId": began["taskId"]}))["result"]
        assert got["taskId"] == began["taskId"]
        listed = wire.members(part(await client.exchange("tasks/list", {}), "result"))
        expected = wire.members(part(await bare.exchange("tasks/list", {}), "result"))
        assert wire.elements(listed.pop("tasks")) == wire.elements(expected.pop("tasks"))
        assert listed == expected


async def test_tasks_of_a_server_without_them_are_the_servers_to_refuse() -> None:
    async with alone(FullUpstream(without=("tasks",))) as client:
        error = part(await client.exchange("tasks/get", {"taskId": "x"}), "error")
        assert error == part(await Bare(without=("tasks",)).exchange("tasks/get", {"taskId": "x"}), "error")


async def test_log_messages_and_unknown_notifications_come_as_they_are() -> None:
    upstream = FullUpstream(name="srv")
    async with alone(upstream) as client:
        await call(client, "log", level="error", logger="http")
        await call(client, "vendor")
        message = await client.line(lambda each: each.get("method") == "notifications/message")
        itself = Bare(name="srv")
        await itself.exchange("tools/call", {"name": "log", "arguments": {"level": "error", "logger": "http"}})
        assert part(message, "params") == part(itself.lines[0], "params")
        odd = await client.line(lambda each: each.get("method") == "notifications/vendor.example/odd")
        assert part(odd, "params") == upstream.server.filled(offers.VENDOR)


async def test_notifications_of_the_client_reach_the_server_but_it_hears_only_once_that_it_is_initialized() -> None:
    upstream = FullUpstream()
    async with alone(upstream) as client:
        client.send(b'{"jsonrpc":"2.0","method":"notifications/vendor/hello","params":{"n":1.0, "x":[]}}')
        client.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await upstream.hears("notifications/roots/list_changed")
        said = await upstream.hears("notifications/vendor/hello")
        assert said["params"] == {"n": 1.0, "x": []}
        assert len(upstream.heard("notifications/initialized")) == 1


async def test_an_unknown_request_before_initialize_reaches_nobody() -> None:
    upstream = FullUpstream()
    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[upstream]))
    client = Client(proxy, only="up")
    assert (await client.request("server/discover"))["error"]["code"] == -32601
    assert upstream.sent == []
    await proxy.close()


async def test_a_subscription_gets_its_updates_and_is_done_again_after_a_crash() -> None:
    second = FullUpstream()
    async with alone(FullUpstream(), second) as client:
        answer = await client.request("resources/subscribe", {"uri": "full://text"})
        assert answer["result"] == {"_meta": {"x-subscribed": 1.0}}
        await call(client, "crash")
        await call(client, "echo", text="wake up")
        await second.hears("resources/subscribe")
        await call(client, "update", uri="full://text")
        assert (await client.hears("notifications/resources/updated"))["params"]["uri"] == "full://text"


# --- beside others -----------------------------------------------------------------------------------------------


async def test_each_client_sees_its_own_view_of_one_server_at_once() -> None:
    async with scene() as it:
        grouped, own = await asyncio.gather(it.all.request("tools/list"), it.alone.request("tools/list"))
        assert [each["name"] for each in grouped["result"]["tools"]] == ["get_dynamic_tools", "call_dynamic_tool"]
        assert own["result"]["tools"][0]["name"] == "rich"
        assert text_of(await call(it.alone, "echo", text="a")) == "a"
        assert text_of(await it.all.call("up", "echo", {"text": "b"})) == "b"
        assert (await it.alone.request("tools/call", {"name": "call_dynamic_tool"}))["error"]["code"] == -32602


async def test_stored_results_of_the_other_view_do_not_exist_here() -> None:
    async with scene() as it:
        answer = await it.alone.request("resources/read", {"uri": "dynamic-mcp://results/1"})
        assert answer["error"]["code"] == -32002
        assert answer["error"]["message"] == "up has no such resource"  # the server's own words


async def test_a_changed_list_of_another_group_is_not_told() -> None:
    async with scene() as it:
        await it.call_all()
        await settled()
        it.alone.lines.clear()
        entry = {"name": "fresh", "inputSchema": {"type": "object"}}
        await it.all.call("other", "add", {"list": "tools", "entry": entry})
        await it.all.call("up", "add", {"list": "prompts", "entry": {"name": "fresh"}})
        await it.alone.hears("notifications/prompts/list_changed")
        await it.all.hears("notifications/prompts/list_changed")
        assert it.alone.heard("notifications/tools/list_changed") == []


async def test_a_client_that_has_listed_nothing_before_it_was_known_is_told_of_no_change() -> None:
    async with alone(FullUpstream()) as client:
        await client.request("resources/list")
        await call(client, "add", list="prompts", entry={"name": "fresh"})
        await client.hears("notifications/prompts/list_changed")
        assert client.heard("notifications/tools/list_changed") == []
        assert client.heard("notifications/resources/list_changed") == []


async def test_a_shared_server_is_unsubscribed_when_no_client_of_either_view_wants_it() -> None:
    async with scene() as it:
        await it.call_all()
        await it.all.request("resources/subscribe", {"uri": "full://text"})
        await it.alone.request("resources/subscribe", {"uri": "full://text"})
        await call(it.alone, "update", uri="full://text")
        assert len(it.up.heard("resources/subscribe")) == 1
        for client in (it.all, it.alone):
            assert (await client.hears("notifications/resources/updated"))["params"]["uri"] == "full://text"
        assert (await it.alone.request("resources/unsubscribe", {"uri": "full://text"}))["result"] == {}
        assert it.up.heard("resources/unsubscribe") == []
        await it.all.request("resources/unsubscribe", {"uri": "full://text"})
        assert len(it.up.heard("resources/unsubscribe")) == 1


async def test_a_shared_server_is_told_the_most_verbose_level_and_each_client_hears_its_own() -> None:
    async with scene() as it:
        await it.call_all()
        await it.all.request("logging/setLevel", {"level": "debug"})
        await it.alone.request("logging/setLevel", {"level": "error"})
        assert it.up.heard("logging/setLevel")[-1]["params"]["level"] == "debug"
        assert text_of(await call(it.alone, "log", level="info")) == "debug"
        assert it.alone.heard("notifications/message") == []
        await call(it.alone, "log", level="critical", logger="x")
        assert (await it.alone.hears("notifications/message"))["params"]["logger"] == "x"


async def test_the_proxys_own_complaints_are_for_clients_that_see_a_proxy() -> None:
    async with scene() as it:
        it.proxy.complain("the config was not reloaded")
        await it.all.hears("notifications/message")
        await settled()
        assert it.alone.heard("notifications/message") == []


# --- reload ------------------------------------------------------------------------------------------------------


async def test_a_group_that_leaves_the_config_is_not_found_until_it_is_back() -> None:
    async with scene() as it:
        await it.alone.request("tools/list")
        it.proxy.apply(config_of(group_config("other", share=it.share)))
        await it.alone.hears("notifications/tools/list_changed")
        error = (await it.alone.request("tools/list"))["error"]
        assert error["code"] == -32602
        assert "no group is named `up`" in error["message"]
        assert "other" not in error["message"]
        assert "no group is named `up`" in text_of(await call(it.alone, "echo", text="x"))
        it.alone.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})

        it.proxy.apply(config_of(group_config("up", share=it.share)))
        assert text_of(await call(it.alone, "echo", text="back")) == "back"


async def test_a_filter_that_changes_is_told_and_holds() -> None:
    async with scene() as it:
        await it.alone.request("tools/list")
        only_echo = ToolFilter(include=("echo",), exclude=())
        it.proxy.apply(config_of(group_config("up", share=it.share, tools=only_echo)))
        await it.alone.hears("notifications/tools/list_changed")
        listed = (await it.alone.request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in listed] == ["echo"]


async def test_a_client_that_asks_for_a_group_that_there_never_was_is_told_so() -> None:
    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[FullUpstream()]))
    client = Client(proxy, only="nothing")
    assert "no group is named `nothing`" in (await client.initialize())["error"]["message"]
    client.session.close()
    await proxy.close()


async def test_a_client_that_leaves_while_it_is_greeted_is_forgotten() -> None:
    opener = Opener(up=[FullUpstream()])
    opener.gate.clear()
    proxy = Proxy(config_of(group_config("up")), opener=opener)
    client = Client(proxy, only="up")
    client.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    await settled()
    client.session.close()
    opener.gate.set()
    await settled()
    assert list(proxy.clients) == []
    await proxy.close()
