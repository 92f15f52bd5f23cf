"""A task belongs to the group that runs it: every request about it goes there, and everything about it comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, part, settled, text_of
from tests.upstreams import full_offers as offers

TTL = 60000
RELATED = "io.modelcontextprotocol/related-task"
CLIENT_TASKS: Json = {"tasks": {"requests": {"sampling": {"createMessage": {}}}}, "sampling": {}, "elicitation": {}}


def _task(upstream: FullUpstream, id: str, status: str = "working") -> bytes:
    """Return a task as its server writes it, but for the id."""
    values = {"task": id, "status": status, "ttl": TTL}
    return upstream.server.filled(offers.TASK, **{name: json.dumps(value).encode() for name, value in values.items()})


def _twins() -> tuple[FullUpstream, FullUpstream]:
    """Return the servers of two groups whose tasks have equal ids."""
    return FullUpstream(name="a", task_ids="same"), FullUpstream(name="b", task_ids="same")


async def _begin(client: Client, group: str, **params: Json) -> str:
    """Make a task of a call and return its id."""
    id: str = (await client.call(group, "plain", task={"ttl": TTL}, **params))["task"]["taskId"]
    return id


async def _ask(client: Client, method: str, id: str) -> bytes:
    """Send a request about a task and return the result's bytes."""
    return part(await client.exchange(method, {"taskId": id}), "result")


# --- one group -------------------------------------------------------------------------------------------


async def test_a_call_becomes_a_task_with_the_params_and_the_answer_as_they_were_sent() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        arguments = b'{"group":"a","name":"plain","args":{"n":1.0}}'
        rest = b'"task":{"ttl":60000,"x-task":1E2,"twice":1,"twice":2},"_meta":{"x": 1}'
        line = await client.exchange(
            "tools/call", b'{"name":"call_dynamic_tool","arguments":%s,%s}' % (arguments, rest)
        )

        shown = _task(upstream, "a-task-1")
        assert part(line, "result") == upstream.server.filled(offers.TASK_BEGAN, shown=shown)
        [sent] = [line for line in upstream.lines if b'"tools/call"' in line]
        assert part(sent, "params") == b'{"name":"plain","arguments":{"n":1.0},%s}' % rest


async def test_a_task_is_got_cancelled_and_listed_as_its_server_shows_it() -> None:
    upstream = FullUpstream(name="a", page=1)
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        first, second = await _begin(client, "a"), await _begin(client, "a")
        assert await _ask(client, "tasks/get", first) == _task(upstream, first)
        assert await _ask(client, "tasks/cancel", first) == _task(upstream, first, "cancelled")
        listed = part(await client.exchange("tasks/list"), "result", "tasks")
        assert listed == b"[%s,%s]" % (_task(upstream, first, "cancelled"), _task(upstream, second))


async def test_a_result_comes_when_the_task_is_over() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        id = await _begin(client, "a")
        waiting = asyncio.create_task(_ask(client, "tasks/result", id))
        await upstream.hears("tasks/result")
        await client.call("a", "finish", {"task": id})

        related = upstream.server.filled(offers.RELATED, task=json.dumps(id).encode())
        assert await waiting == upstream.server.filled(offers.TASK_RESULT, related=related)
        line = await client.line(lambda message: message.get("method") == "notifications/tasks/status")
        assert part(line, "params") == _task(upstream, id, "completed")


async def test_a_tool_called_by_its_own_name_becomes_a_task_too() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await client.request("resources/list")
        answer = await client.request("tools/call", {"name": "plain", "arguments": {}, "task": {}})
        assert answer["result"]["task"]["taskId"] == "a-task-1"


async def test_progress_on_a_task_arrives_with_the_token_of_the_call_that_it_came_from() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        id = await _begin(client, "a", _meta={"progressToken": "tök"})
        other = await _begin(client, "a", _meta={"progressToken": 7})
        for task in (other, id):
            await client.call("a", "step_task", {"task": task, "step": 2})

        await client.hears("notifications/progress", times=2)
        tokens = [message["params"]["progressToken"] for message in client.heard("notifications/progress")]
        assert tokens == [7, "tök"]


async def test_only_what_may_be_a_task_is_said_to_be() -> None:
    for upstream, support in ((FullUpstream(), "optional"), (FullUpstream(without=("tasks",)), None)):
        async with client_of(Opener(a=[upstream])) as client:
            await client.initialize()
            await client.request("resources/list")
            _, call = (await client.request("tools/list"))["result"]["tools"]
            assert call.get("execution", {}).get("taskSupport") == support


async def test_a_task_that_nobody_has_is_not_found() -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")], b=[FullUpstream(name="b")])) as client:
        await client.initialize()
        await client.request("resources/list")
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            error = (await client.request(method, {"taskId": "nobody's"}))["error"]
            assert error["code"] == -32602
            assert "nobody's" in error["message"]


@pytest.mark.parametrize("params", [{}, {"taskId": 7}, {"taskId": ""}, None])
async def test_a_request_without_a_task_is_refused(params: Json) -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")])) as client:
        await client.initialize()
        assert (await client.request("tasks/get", params))["error"]["code"] == -32602


# --- equal ids in two groups -------------------------------------------------------------------------------


async def test_equal_ids_of_two_groups_are_kept_apart_in_every_request() -> None:
    a, b = _twins()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        of_a, of_b = await _begin(client, "a"), await _begin(client, "b")
        assert (of_a, of_b) == ("same-1", "b__same-1")

        assert await _ask(client, "tasks/get", of_a) == _task(a, of_a)
        assert await _ask(client, "tasks/get", of_b) == _task(b, of_b)
        assert await _ask(client, "tasks/cancel", of_b) == _task(b, of_b, "cancelled")
        assert [message["params"] for message in b.heard("tasks/get")] == [{"taskId": "same-1"}]
        listed = part(await client.exchange("tasks/list"), "result", "tasks")
        assert listed == b"[%s,%s]" % (_task(a, of_a), _task(b, of_b, "cancelled"))


async def test_results_and_status_of_equal_ids_name_the_task_that_the_client_knows() -> None:
    a, b = _twins()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        ids = await _begin(client, "a"), await _begin(client, "b")
        results = [asyncio.create_task(_ask(client, "tasks/result", id)) for id in ids]
        for group in ("b", "a"):
            await client.call(group, "finish", {"task": "same-1"})

        for upstream, id, result in zip((a, b), ids, results, strict=True):
            related = upstream.server.filled(offers.RELATED, task=json.dumps(id).encode())
            assert await result == upstream.server.filled(offers.TASK_RESULT, related=related)
        await client.hears("notifications/tasks/status", times=2)
        statuses = [line for line in client.lines if b'"notifications/tasks/status"' in line]
        assert [part(line, "params") for line in statuses] == [
            _task(b, ids[1], "completed"),
            _task(a, ids[0], "completed"),
        ]


async def test_a_status_that_follows_the_answer_at_once_names_the_task_that_the_client_knows() -> None:
    a, b = _twins()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await _begin(client, "a")
        await client.call("b", "echo", {"text": "there"})
        b.server.write = _at_once(b)
        id = await _begin(client, "b")
        status = await client.hears("notifications/tasks/status")
        assert status["params"]["taskId"] == id == "b__same-1"
        messages = [json.loads(line) for line in client.lines]
        [answer] = [each for each in messages if each.get("result", {}).get("task", {}).get("taskId") == id]
        assert messages.index(answer) < messages.index(status)


async def test_a_status_that_comes_before_its_task_is_not_taken_for_one_of_another_group() -> None:
    """A remote server's streams are not in order with each other."""
    a, b = _twins()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await _begin(client, "a")
        await client.call("b", "echo", {"text": "there"})
        status = {"taskId": "same-1", "status": "completed"}
        b.say({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": status})
        await settled()
        assert client.heard("notifications/tasks/status") == []


def _at_once(upstream: FullUpstream) -> Callable[[bytes], None]:
    """Return how a server writes that ends a task in one breath with the answer that began it."""
    write = upstream.server.write

    def write_and_finish(line: bytes) -> None:
        write(line)
        upstream.server.write = write
        upstream.server.tasks.end(upstream.server.tasks["same-1"], "completed")

    return write_and_finish


async def test_a_question_in_a_task_names_the_task_that_the_client_knows() -> None:
    a, b = _twins()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize(capabilities=CLIENT_TASKS)
        ids = [await _begin(client, group) for group in ("a", "b")]
        for group, id in zip(("a", "b"), ids, strict=True):
            call = asyncio.create_task(client.call(group, "elicit_for_task", {"task": "same-1"}))
            question = await client.hears("elicitation/create", times=1 if group == "a" else 2)
            assert question["params"]["_meta"][RELATED] == {"x-r": 1, "taskId": id}
            client.reply(question, {"action": "decline"})
            assert json.loads(text_of(await call))["result"] == {"action": "decline"}


# --- groups that fail --------------------------------------------------------------------------------------


def _with_tasks(**answers: Json) -> FakeUpstream:
    upstream = FakeUpstream({f"tasks/{name}": answer for name, answer in answers.items()})
    upstream.answers["initialize"]["capabilities"] = {"tasks": {"list": {}, "cancel": {}}}
    return upstream


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "hangs"])
async def test_a_task_that_was_begun_before_is_found_by_asking_whatever_another_group_does(*, dies: bool) -> None:
    a, b = _with_tasks(), _with_tasks(get={"taskId": "old", "status": "working"})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await client.request("resources/list")
        got = asyncio.create_task(client.request("tasks/get", {"taskId": "old"}))
        await a.hears("tasks/get")
        if dies:
            a.die()
        assert (await got)["result"]["status"] == "working"


async def test_what_else_a_server_says_with_its_tasks_arrives() -> None:
    page = b'{"tasks":[],"x-quota":{"left":1.0},"_meta":{"vendor/a":1}}'
    upstream = _with_tasks()
    upstream.answers["tasks/list"] = page
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await client.request("resources/list")
        assert part(await client.exchange("tasks/list"), "result") == page


async def test_groups_that_fail_or_hang_do_not_empty_the_list_of_tasks() -> None:
    a, b, c = (FullUpstream(name=name, page=1) for name in "abc")
    async with client_of(Opener(a=[a], b=[b], c=[c])) as client:
        await client.initialize()
        for group in "abc":
            await _begin(client, group)
        a.server.options = a.server.options._replace(refuse=("tasks/list",))
        b.server.options = b.server.options._replace(hang=("tasks/list",))
        result = (await client.request("tasks/list"))["result"]
        assert [task["taskId"] for task in result["tasks"]] == ["c-task-1"]
        missing = result["_meta"]["dynamic-mcp/missing"]
        assert list(missing) == ["a", "b"]
        assert "-32603" in missing["a"]
        assert "not answered" in missing["b"]


# --- tasks of the client -----------------------------------------------------------------------------------


async def test_a_task_that_the_client_runs_is_asked_about_by_the_server_that_began_it() -> None:
    a, b = FullUpstream(name="a"), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize(capabilities=CLIENT_TASKS)
        call = asyncio.create_task(client.call("b", "sample"))
        question = await client.hears("sampling/createMessage")
        client.reply(question, {"task": {"taskId": "mine", "status": "working"}})
        assert json.loads(text_of(await call))["result"]["task"]["taskId"] == "mine"

        status = {"taskId": "mine", "status": "completed", "x-vendor": 1}
        client.send({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": status})
        assert (await b.hears("notifications/tasks/status"))["params"] == status
        token = question["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        client.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        assert (await b.hears("notifications/progress"))["params"] == {"progressToken": "tokén b", "progress": 1}
        assert a.heard("notifications/tasks/status") == a.heard("notifications/progress") == []

        got = asyncio.create_task(client.call("b", "ask", {"method": "tasks/result", "params": {"taskId": "mine"}}))
        client.reply(await client.hears("tasks/result"), b'{"role":"user", "n":1.50}')
        assert part(text_of(await got).encode(), "result") == b'{"role":"user", "n":1.50}'


async def test_a_client_that_runs_no_tasks_is_not_asked_about_any() -> None:
    async with client_of(Opener(a=[FullUpstream(name="a")])) as client:
        await client.initialize(capabilities={"sampling": {}})
        result = await client.call("a", "ask", {"method": "tasks/get", "params": {"taskId": "x"}})
        assert json.loads(text_of(result))["error"]["code"] == -32601
        assert client.heard("tasks/get") == []
