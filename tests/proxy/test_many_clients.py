"""What one client does, has or was told reaches no other client of the same proxy."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import weakref
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.resolved import Features, Program, Share, ToolFilter
from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, PresentedGroup, config_of, group_config, settled, text_of

OTHER = Program(command="other", args=(), env={}, cwd=None)
RELATED = "io.modelcontextprotocol/related-task"
ANSWER: Json = {"content": []}


class Scene:
    """A proxy in front of one group, `up`, for several clients that call themselves the same."""

    def __init__(self, *upstreams: FakeUpstream, **changes: Json) -> None:
        self.opener = Opener(up=list(upstreams))
        self.proxy = Proxy(config_of(group_config("up", **changes)), opener=self.opener)

    async def join(self, capabilities: Json = None) -> Client:
        """Greet one more client."""
        client = Client(self.proxy)
        await client.initialize(capabilities=capabilities)
        await settled()
        return client

    def reload(self, *configs: PresentedGroup) -> None:
        self.proxy.apply(config_of(*configs))


@contextlib.asynccontextmanager
async def scene(*upstreams: FakeUpstream, **changes: Json) -> AsyncIterator[Scene]:
    made = Scene(*upstreams, **changes)
    try:
        async with asyncio.timeout(5):
            yield made
    finally:
        await made.proxy.close()


def able(answers: Json = None, **capabilities: Json) -> FakeUpstream:
    """Return an upstream that answers calls and declares these capabilities besides tools."""
    hello = FakeUpstream().answers["initialize"]
    hello = hello | {"capabilities": hello["capabilities"] | capabilities}
    return FakeUpstream({"initialize": hello, "tools/call": ANSWER, **(answers or {})})


def notification(method: str, **params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


# --- tasks -----------------------------------------------------------------------------------------------


def with_tasks(*ids: str) -> FakeUpstream:
    """Return an upstream whose calls become tasks of these ids, one after the other."""
    left = list(ids)
    return able(
        {
            "tools/call": lambda _: {"task": {"taskId": left.pop(0), "status": "working"}},
            "tasks/get": lambda params: {"taskId": params["taskId"], "status": "working"},
            "tasks/cancel": lambda params: {"taskId": params["taskId"], "status": "cancelled"},
            "tasks/list": {"tasks": [{"taskId": id, "status": "working"} for id in ids]},
        },
        tasks={"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    )


async def begin_task(client: Client) -> str:
    id: str = (await client.call("up", "echo", task={}))["task"]["taskId"]
    return id


async def test_a_question_about_a_task_goes_to_the_client_whose_task_it_is_whoever_calls_meanwhile() -> None:
    upstream = with_tasks("t1")
    async with scene(upstream, share=Share.ALL) as on:
        ann, bob = [await on.join({"elicitation": {}}) for _ in range(2)]
        await begin_task(ann)
        del upstream.answers["tools/call"]
        call = asyncio.create_task(bob.call("up", "echo"))
        asked = await upstream.hears("tools/call", times=2)

        meta = {RELATED: {"taskId": "t1"}}
        upstream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"_meta": meta}})
        ann.reply(await ann.hears("elicitation/create"), {"action": "decline"})

        assert (await upstream.hears("an answer"))["result"] == {"action": "decline"}
        assert bob.heard("elicitation/create") == []
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        await call


async def test_a_question_about_a_task_whose_client_has_gone_is_refused() -> None:
    upstream = with_tasks("t1")
    async with scene(upstream, share=Share.ALL) as on:
        ann, bob = [await on.join({"elicitation": {}}) for _ in range(2)]
        await bob.call("up", "nothing")
        await begin_task(ann)
        ann.session.close()

        meta = {RELATED: {"taskId": "t1"}}
        upstream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"_meta": meta}})

        assert (await upstream.hears("an answer"))["error"]["code"] == -32601
        assert bob.heard("elicitation/create") == []


async def test_a_task_that_a_restarted_server_gives_the_id_of_another_clients_is_its_own_clients_alone() -> None:
    first, second = with_tasks("t1"), with_tasks("t1")
    async with scene(first, second) as on:
        ann, bob = await on.join(), await on.join()
        await begin_task(ann)
        first.die()
        await begin_task(bob)

        answers = [await client.request("tasks/get", {"taskId": "t1"}) for client in (ann, bob)]

        assert ["error" in answer for answer in answers] == [True, False]


async def test_a_task_of_a_server_that_was_changed_is_not_looked_for_at_the_one_that_took_its_place() -> None:
    first, second = with_tasks("t1"), with_tasks("t1")
    async with scene(first, second) as on:
        ann, bob = await on.join(), await on.join()
        await begin_task(ann)
        on.reload(group_config("up", upstream=OTHER))
        await settled()
        await begin_task(bob)

        answer = await ann.request("tasks/get", {"taskId": "t1"})

        assert "error" in answer
        assert second.heard("tasks/get") == []


async def test_a_server_that_lists_the_tasks_of_all_its_connections_shows_each_client_its_own() -> None:
    first, second = with_tasks("t1", "t2"), with_tasks("t2", "t1")
    async with scene(first, second, share=Share.SESSION) as on:
        ann, bob = await on.join(), await on.join()
        mine = {client: await begin_task(client) for client in (ann, bob)}

        for client, id in mine.items():
            listed = await client.request("tasks/list")
            assert [task["taskId"] for task in listed["result"]["tasks"]] == [id]
        assert "error" in await bob.request("tasks/get", {"taskId": mine[ann]})


# --- elicitations ------------------------------------------------------------------------------------------


def url_error(id: str) -> Json:
    return {"code": -32042, "message": "open it", "data": {"elicitations": [{"mode": "url", "elicitationId": id}]}}


async def _require(client: Client, upstream: FakeUpstream, id: str, times: int = 1) -> None:
    call = asyncio.create_task(client.request("tools/call", {"name": "up__echo", "arguments": {}}))
    asked = await upstream.hears("tools/call", times=times)
    upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": url_error(id)})
    assert (await call)["error"]["code"] == -32042


async def test_elicitations_of_two_instances_with_one_id_are_each_completed_to_their_own_client() -> None:
    first, second = FakeUpstream(), FakeUpstream()
    async with scene(first, second, share=Share.SESSION) as on:
        ann, bob = await on.join(), await on.join()
        await _require(ann, first, "e1")
        await _require(bob, second, "e1")

        first.say(notification("notifications/elicitation/complete", elicitationId="e1"))
        await ann.hears("notifications/elicitation/complete")
        await settled()

        assert bob.heard("notifications/elicitation/complete") == []


async def test_the_completion_of_an_elicitation_whose_client_has_gone_is_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dynamic_mcp.groups.users._RECENT_S", 0.0)
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        ann, bob = await on.join(), await on.join()
        await _require(bob, upstream, "e0")
        await _require(ann, upstream, "e1", times=2)
        ann.session.close()
        await settled()

        upstream.say(notification("notifications/elicitation/complete", elicitationId="e1"))
        await settled()

        assert bob.heard("notifications/elicitation/complete") == []


async def test_an_elicitation_that_a_prompt_requires_is_completed_to_the_client_that_asked_for_it() -> None:
    prompts = {"prompts/list": {"prompts": [{"name": "greet"}]}}
    upstream = able(prompts, prompts={})
    async with scene(upstream) as on:
        ann, bob = await on.join(), await on.join()
        await ann.call("up", "echo")
        await bob.call("up", "echo")
        getting = asyncio.create_task(ann.request("prompts/get", {"name": "up__greet"}))
        asked = await upstream.hears("prompts/get")
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": url_error("e1")})
        assert (await getting)["error"]["code"] == -32042

        upstream.say(notification("notifications/elicitation/complete", elicitationId="e1"))
        await ann.hears("notifications/elicitation/complete")
        await settled()

        assert bob.heard("notifications/elicitation/complete") == []


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
    exposure = group_config("up").presentation.exposure
    direct = type(exposure)(direct=True, pinned=())
    async with scene(upstream, exposure=direct) as on:
        both = [await on.join() for _ in range(2)]
        before = (len(upstream.sent), [len(each.heard("notifications/tools/list_changed")) for each in both])

        on.reload(group_config("up", exposure=direct, tools=ToolFilter(include=("read",), exclude=())))
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
