"""What belongs to one client reaches no other: tasks and elicitations."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from dynamic_mcp.config.resolved import Program, Share
from tests.fakes import Client, FakeUpstream, Json, group_config, settled
from tests.proxy.many_clients import ANSWER, OTHER, RELATED, able, notification, scene

# --- questions -------------------------------------------------------------------------------------------


async def test_a_shared_server_that_asks_what_the_client_of_its_call_cannot_answer_is_refused_at_once() -> None:
    upstream = able()
    del upstream.answers["tools/call"]
    known = Program(command="mcp-server-time", args=(), env={}, cwd=None)
    async with scene(upstream, upstream=known) as on:
        ann, bob = await on.join({"sampling": {}}, transport="socket"), await on.join({}, transport="socket")
        ready = asyncio.create_task(ann.call("up", "echo"))
        asked = await upstream.hears("tools/call")
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        await ready
        call = asyncio.create_task(bob.call("up", "echo"))
        asked = await upstream.hears("tools/call", times=2)

        upstream.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})

        assert (await upstream.hears("an answer"))["error"]["code"] == -32601
        assert (ann.heard("sampling/createMessage"), bob.heard("sampling/createMessage")) == ([], [])
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER})
        await call


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


async def test_a_server_that_ended_with_its_client_is_not_held_for_the_tasks_that_it_had() -> None:
    upstream = with_tasks("t1")
    async with scene(upstream, share=Share.SESSION) as on:
        ann = await on.join()
        await begin_task(ann)
        link = ref(upstream.link)
        del upstream.link
        ann.session.close()
        await settled()
        gc.collect()

        assert upstream.closed
        assert link() is None


async def test_a_subscription_ends_without_a_word_with_the_server_that_only_its_client_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = able({"resources/subscribe": {}}, resources={"subscribe": True})
    upstream.answers["resources/list"] = {"resources": [{"uri": "x://a", "name": "a"}]}
    async with scene(upstream, share=Share.SESSION) as on:
        ann = await on.join()
        assert "error" not in await ann.request("resources/subscribe", {"uri": "x://a"})
        ann.session.close()
        await settled()

        assert upstream.closed
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


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
