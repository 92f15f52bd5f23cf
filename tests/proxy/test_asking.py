"""Client and server ask each other through the proxy: progress, cancellation and requests go to whom they concern."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FullUpstream, Json, Opener, client_of, config_of, group_config, part, settled, text_of
from tests.upstreams import full_offers as offers

CAN_ALL: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}


async def _params(client: Client, method: str) -> bytes:
    """Wait for a message with this method and return the bytes of its params."""
    return part(await client.line(lambda message: message.get("method") == method), "params")


# --- progress --------------------------------------------------------------------------------------------------

TOKENS = [b'"t"', b'"\\u00e9\\/ t"', b'""', b"7", b"0", b"-1", b"1.0", offers.LONG]


# Row 30 of the fault matrix.


@pytest.mark.parametrize("token", TOKENS)
async def test_progress_comes_with_the_very_token_that_the_client_gave(token: bytes) -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        arguments = b'{"group":"a","name":"progress","args":{"steps":2}}'
        meta = b'{"z":1,"progressToken":%s,"a":2}' % token
        params = b'{"name":"call_dynamic_tool","arguments":%s,"_meta":%s}'
        answer = await client.exchange("tools/call", params % (arguments, meta))

        steps = [upstream.server.filled(offers.PROGRESS, step=step, token=token) for step in (b"1", b"2")]
        progress = [line for line in client.lines if b'"notifications/progress"' in line]
        assert [part(line, "params") for line in progress] == steps
        assert client.lines.index(answer) > client.lines.index(progress[-1])


@pytest.mark.parametrize("token", TOKENS)
async def test_progress_of_the_client_comes_with_the_very_token_that_the_server_gave(token: bytes) -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", "wait", {"key": "k"}))
        await upstream.hears("tools/call")
        upstream.server.ask("sampling/createMessage", b'{"_meta":{"progressToken":%s}}' % token, lambda line: None)
        question = await client.hears("sampling/createMessage")
        given = question["params"]["_meta"]["progressToken"]
        client.send(
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":1.0,"progressToken":%d,"progress":1}}'
            % given
        )
        await upstream.hears("notifications/progress")
        assert part(upstream.lines[-1], "params") == b'{"x":1.0,"progressToken":%s,"progress":1}' % token
        call.cancel()


async def test_progress_that_nobody_asked_for_reaches_nobody() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        await client.call("a", "progress", {"steps": 1})
        upstream.server.report(99, 1)
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
        )
        await settled()
        assert client.heard("notifications/progress") == upstream.heard("notifications/progress") == []


# --- cancellation ------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_cancelled_upstream_by_its_id_there_and_is_never_answered() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        for key in ("first", "second"):
            arguments = {"group": "a", "name": "wait", "args": {"key": key}}
            call = {"name": "call_dynamic_tool", "arguments": arguments}
            client.send({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": call})
        held = (await upstream.hears("tools/call", times=2))["id"]
        params = {"requestId": "second", "reason": "the person left"}
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        told = await upstream.hears("notifications/cancelled")
        assert told["params"] == {"requestId": held, "reason": "the person left"}

        upstream.say({"jsonrpc": "2.0", "id": held, "result": {"content": []}})
        assert text_of(await client.call("a", "release", {"key": "first"})) == "released"
        await client.line(lambda message: message.get("id") == "first")
        assert not any(json.loads(line).get("id") == "second" for line in client.lines)


async def test_a_request_that_a_server_withdraws_is_withdrawn_from_the_client_that_was_asked() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", "elicit"))
        question = await client.hears("elicitation/create")
        await client.call("a", "withdraw")

        assert text_of(await call) == "withdrawn"
        told = await client.hears("notifications/cancelled")
        assert told["params"] == {"requestId": question["id"], "reason": "a has lost interest"}
        client.reply(question, {"action": "accept"})
        await settled()
        assert upstream.heard("an answer") == []


async def test_what_a_server_that_died_has_asked_is_withdrawn() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", "elicit"))
        question = await client.hears("elicitation/create")
        upstream.die()
        assert (await client.hears("notifications/cancelled"))["params"]["requestId"] == question["id"]
        assert (await call)["isError"] is True


# --- requests of servers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "method", "params"),
    [
        ("elicit", "elicitation/create", offers.ELICIT),
        ("elicit_url", "elicitation/create", offers.ELICIT_URL),
        ("roots", "roots/list", offers.ROOTS),
    ],
)
async def test_a_request_of_a_server_and_its_answer_pass_with_the_name_of_the_server(
    tool: str, method: str, params: bytes
) -> None:
    upstream = FullUpstream(name="a")
    answer = (
        b'{"action":"accept","content":{"answer": "\\u00e4","n":%s,"twice":1,"twice":2},"x-last":1E2}' % offers.LONG
    )
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", tool, {"key": "k"}))
        question = await client.hears(method)
        passed = wire.members(await _params(client, method))
        sent = wire.members(upstream.server.filled(params, key=b'"k"'))
        if method == "elicitation/create":
            assert wire.text(passed.pop("message")) == f"a asks: {wire.text(sent.pop('message'))}"
            assert json.loads(bytes(passed.pop("_meta")))["dynamic-mcp/group"] == "a"
            sent.pop("_meta", None)
        assert passed == sent
        client.reply(question, answer)
        assert part(text_of(await call).encode(), "result") == answer


async def test_a_request_to_sample_passes_with_another_token_and_the_name_of_the_server() -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", "sample", {"key": "k"}))
        question = await client.hears("sampling/createMessage")
        sent = upstream.server.filled(offers.SAMPLE, key=b'"k"')
        given = json.dumps(question["params"]["_meta"]["progressToken"]).encode()
        passed = wire.members(await _params(client, "sampling/createMessage"))
        meta = json.loads(bytes(passed["_meta"]))
        assert meta.pop("dynamic-mcp/group") == "a"
        expected = wire.members(sent.replace(b'"tok\\u00e9n a"', given))
        assert meta == json.loads(bytes(expected.pop("_meta")))
        assert {name: each for name, each in passed.items() if name != "_meta"} == expected
        client.reply(question, b'{"content":{"type":"text","text":"\\ud800"}, "role":"assistant"}')
        assert part(text_of(await call).encode(), "result", "role") == b'"assistant"'


async def test_an_error_of_the_client_passes_as_it_is() -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize(capabilities=CAN_ALL)
        call = asyncio.create_task(client.call("a", "elicit"))
        question = await client.hears("elicitation/create")
        error = b'{"message":"no","code":-1,"data":{"twice":1,"twice":2}, "x":1.0}'
        client.send(b'{"jsonrpc":"2.0","id":%d,"error":%s}' % (question["id"], error))
        assert part(text_of(await call).encode(), "error") == error


@pytest.mark.parametrize(
    ("tool", "declared"),
    [
        ("elicit", {"sampling": {}, "roots": {}}),
        ("elicit_url", {}),
        ("sample", {"elicitation": {}}),
        ("roots", {"elicitation": {}}),
    ],
)
async def test_what_the_client_did_not_declare_is_refused_at_once(tool: str, declared: Json) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize(capabilities=declared)
        refused = json.loads(text_of(await client.call("a", tool)))
        assert refused["error"]["code"] == -32601
        assert not [line for line in client.lines if b'"method"' in line and b'"id"' in line]


@pytest.mark.parametrize("declared", [{"experimental": {"vendor": {}}}, {"extensions": {"vendor/x": {}}}])
async def test_a_request_that_nobody_knows_goes_to_a_client_that_knows_more_than_the_protocol(declared: Json) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize(capabilities=declared)
        asking = {"method": "vendor/question", "params": {"n": 1}}
        call = asyncio.create_task(client.call("a", "ask", asking))
        question = await client.hears("vendor/question")
        assert question["params"] == {"n": 1}
        client.reply(question, b'{"n": 1.50}')
        assert part(text_of(await call).encode(), "result") == b'{"n": 1.50}'


async def test_a_request_that_nobody_knows_is_refused_for_any_other_client() -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize(capabilities=CAN_ALL)
        refused = json.loads(text_of(await client.call("a", "ask", {"method": "vendor/question"})))
        assert refused["error"]["code"] == -32601
        assert client.heard("vendor/question") == []


async def test_a_request_goes_to_the_client_whose_call_caused_it() -> None:
    async with _two_clients() as clients:
        for asking, other in (clients, clients[::-1]):
            call = asyncio.create_task(asking.call("a", "elicit"))
            client_was_asked = len(other.heard("elicitation/create"))
            asking.reply(await asking.hears("elicitation/create"), {"action": "decline"})
            assert json.loads(text_of(await call))["result"] == {"action": "decline"}
            assert len(other.heard("elicitation/create")) == client_was_asked


async def test_a_request_that_may_be_for_either_of_two_clients_is_refused() -> None:
    shared = FullUpstream(name="a")
    async with _two_clients(shared) as (one, two), asyncio.TaskGroup() as calls:
        held = calls.create_task(one.call("a", "wait", {"key": "held"}))
        await shared.hears("tools/call")

        refused = json.loads(text_of(await two.call("a", "elicit")))

        assert refused["error"]["code"] == -32601
        assert one.heard("elicitation/create") == two.heard("elicitation/create") == []
        held.cancel()


async def test_two_clients_whose_calls_ask_at_a_time_are_asked_their_own_question_each() -> None:
    async with _two_clients() as clients, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(clients[0].call("a", "elicit"))
        clients[0].reply(await clients[0].hears("elicitation/create"), {"action": "decline"})
        await first  # the group is known to ask now, so that each client has an instance of its own

        keys = ("of one", "of two")
        calls = [
            tasks.create_task(client.call("a", "elicit", {"key": key}))
            for client, key in zip(clients, keys, strict=True)
        ]
        questions = [
            await client.hears("elicitation/create", times=times)
            for client, times in zip(clients, (2, 1), strict=True)
        ]
        assert [question["params"]["x-first"] for question in questions] == list(keys)
        for client, question, key in zip(clients, questions, keys, strict=True):
            client.reply(question, {"action": "accept", "content": {"answer": key}})

        for call, key in zip(calls, keys, strict=True):
            assert json.loads(text_of(await call))["result"]["content"] == {"answer": key}
        assert [len(client.heard("elicitation/create")) for client in clients] == [2, 1]


@contextlib.asynccontextmanager
async def _two_clients(*upstreams: FullUpstream) -> AsyncIterator[tuple[Client, Client]]:
    """Run a proxy for two clients that would start the group identically, and that all can be asked."""
    plan = [*upstreams, *(FullUpstream(name="a") for _ in range(4))]
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=plan))
    try:
        clients = Client(proxy), Client(proxy)
        for client in clients:
            await client.initialize(capabilities=CAN_ALL)
        yield clients
    finally:
        await proxy.close()


async def test_a_server_may_ask_when_no_call_is_in_flight() -> None:
    upstream, answers = FullUpstream(), list[bytes]()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize(capabilities=CAN_ALL)
        await client.call("a", "echo", {"text": "there"})
        upstream.server.ask("roots/list", b"{}", answers.append)
        client.reply(await client.hears("roots/list"), {"roots": []})
        await upstream.hears("an answer")
        await settled()
        assert json.loads(answers[0])["result"] == {"roots": []}


async def test_changed_roots_reach_every_group() -> None:
    a, b = FullUpstream(), FullUpstream()
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize(capabilities=CAN_ALL)
        for group in ("a", "b"):
            await client.call(group, "echo", {"text": "there"})
        client.send(b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":{"x": 1.0}}}')
        for upstream in (a, b):
            await upstream.hears("notifications/roots/list_changed")
            assert part(upstream.lines[-1], "params") == b'{"_meta":{"x": 1.0}}'
