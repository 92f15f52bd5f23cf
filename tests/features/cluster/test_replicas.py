"""Sessions over HTTP whose requests come to any replica: each is answered by the one that has the session."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.face.http import limits
from tests.fakes import BOUND_S, Json, text_of
from tests.features.cluster.replicas import BEARER, KEY, Replica, RoundRobin, as_user, replicas, status_of
from tests.http_client import HttpClient
from tests.mcp_client import McpClient, Refused


@pytest.fixture
async def pair() -> AsyncIterator[list[Replica]]:
    """Two replicas, `a` and `b`."""
    async with replicas() as running:
        yield running


@pytest.fixture
async def balanced(pair: list[Replica]) -> AsyncIterator[McpClient]:
    """A client whose requests go to both in turn."""
    async with RoundRobin(*(each.url for each in pair)) as http:
        yield McpClient(http)


@pytest.fixture
async def elsewhere(pair: list[Replica]) -> AsyncIterator[McpClient]:
    """A client that has begun its session at `a`, and sends everything else to `b`."""
    async with HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize({"elicitation": {}, "roots": {"listChanged": True}})
        client.http = second
        yield client


async def say(client: McpClient, text: str) -> str:
    answer = await client.call("up", "echo", {"text": text})
    return text_of(answer["result"])


async def test_the_id_of_a_session_names_its_replica(elsewhere: McpClient) -> None:
    assert re.fullmatch(r"d1\.a\.[\w-]{22}\.[\w-]{22}", elsewhere.id)


async def test_each_request_of_a_session_may_come_to_another_replica(
    balanced: McpClient, pair: list[Replica]
) -> None:
    await balanced.initialize()
    assert [await say(balanced, str(n)) for n in range(6)] == [str(n) for n in range(6)]
    used = [each.opener.upstreams for each in pair]
    assert sorted(map(len, used)) == [0, 1], "one replica alone has the session, and its server"


async def test_an_answer_has_the_same_bytes_and_headers_over_another_replica(
    elsewhere: McpClient, pair: list[Replica]
) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    message["params"] = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "plain", "args": {}}}
    through = await elsewhere.post(message)
    async with HttpClient(pair[0].url) as http:
        elsewhere.http = http
        direct = await elsewhere.post(message)
        assert await through.read() == await direct.read()
        assert {**through.headers, "date": ""} == {**direct.headers, "date": ""}


async def test_an_answer_of_many_bytes_comes_whole_over_another_replica(elsewhere: McpClient) -> None:
    text = "".join(f"{n:x}" for n in range(600_000))
    assert await say(elsewhere, text) == text


async def test_calls_at_once_over_another_replica_are_not_mixed_up(elsewhere: McpClient) -> None:
    said = await asyncio.gather(*(say(elsewhere, f"n{n}") for n in range(64)))
    assert said == [f"n{n}" for n in range(64)]


async def test_a_server_asks_the_client_over_another_replica(elsewhere: McpClient) -> None:
    id, stream = await elsewhere.begin("tools/call", call_of("elicit"))
    question = await stream.hear("elicitation/create")
    await elsewhere.reply(question, {"action": "accept", "content": {"a": 1}})
    answer = await stream.until(id)
    assert json.loads(text_of(answer["result"]))["result"] == {"action": "accept", "content": {"a": 1}}


async def test_progress_comes_over_another_replica(elsewhere: McpClient) -> None:
    arguments = call_of("wait", {"key": "k"})
    id, stream = await elsewhere.begin("tools/call", {**arguments, "_meta": {"progressToken": "p"}})
    assert (await stream.hear("notifications/progress"))["params"]["progressToken"] == "p"
    await elsewhere.call("up", "release", {"key": "k"})
    assert text_of((await stream.until(id))["result"]) == "waited"


async def test_a_cancellation_reaches_the_server_over_another_replica(
    elsewhere: McpClient, pair: list[Replica]
) -> None:
    arguments = call_of("wait", {"key": "k"})
    id, stream = await elsewhere.begin("tools/call", {**arguments, "_meta": {"progressToken": "p"}})
    await stream.hear("notifications/progress")
    await elsewhere.notify("notifications/cancelled", {"requestId": id})
    await pair[0].opener.upstreams[0].hears("notifications/cancelled")


async def test_a_client_listens_and_resumes_over_another_replica(elsewhere: McpClient, pair: list[Replica]) -> None:
    stream = await elsewhere.listen()
    await pair[0].opener.upstreams[0].hears("tools/list")
    upstream = pair[0].opener.upstreams[0]
    arguments = call_of("wait", {"key": "k"})
    id, call = await elsewhere.begin("tools/call", {**arguments, "_meta": {"progressToken": "p"}})
    await call.hear("notifications/progress")
    call.cut()
    await elsewhere.call("up", "release", {"key": "k"})
    async with asyncio.timeout(BOUND_S):
        await elsewhere.resume(call)
        assert text_of((await call.until(id))["result"]) == "waited"
    upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "x"}})
    assert (await stream.hear("notifications/message"))["params"]["data"] == "x"


async def test_connections_of_replicas_are_not_limited_by_address(
    pair: list[Replica], elsewhere: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 4
    monkeypatch.setattr(limits, "CONNECTIONS_OF_ADDRESS", count)
    streams = []
    for n in range(count):
        params = {**call_of("wait", {"key": str(n)}), "_meta": {"progressToken": n}}
        id, stream = await elsewhere.begin("tools/call", params)
        await stream.hear("notifications/progress")
        streams.append((id, stream))
    async with HttpClient(pair[0].url) as http:
        elsewhere.http = http
        for n, (id, stream) in enumerate(streams):
            await elsewhere.call("up", "release", {"key": str(n)})
            assert text_of((await stream.until(id))["result"]) == "waited"


async def test_a_session_is_deleted_over_another_replica(elsewhere: McpClient) -> None:
    assert await elsewhere.delete() == 204
    with pytest.raises(Refused) as refused:
        await elsewhere.request("ping")
    assert refused.value.status == 404


async def test_the_old_transport_works_over_another_replica(pair: list[Replica]) -> None:
    async with HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        stream = await first.request("GET", "/sse", {"Accept": "text/event-stream"})
        event = await stream.next_event()
        assert event is not None
        path = event.data.decode()
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
        posted = await second.request("POST", path, {"Content-Type": "application/json"}, body)
        assert await status_of(posted) == 202
        answer = await stream.next_event()
        assert answer is not None
        assert json.loads(answer.data)["id"] == 1


async def test_a_session_of_another_user_does_not_exist_at_any_replica() -> None:
    async with replicas(auth=(BEARER,)) as pair, RoundRobin(*(each.url for each in pair)) as http:
        ann = McpClient(http, headers=as_user("ann"))
        await ann.initialize()
        bob = McpClient(http, headers=as_user("bob"))
        bob.id, bob.version = ann.id, ann.version
        for _ in pair:
            with pytest.raises(Refused) as refused:
                await bob.request("ping")
            assert refused.value.status == 404
        assert [await say(ann, "still"), await say(ann, "here")] == ["still", "here"]


async def test_a_token_is_judged_by_the_replica_to_which_it_comes() -> None:
    async with (
        replicas(auth=(BEARER,)) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        ann = McpClient(first, headers=as_user("ann"))
        await ann.initialize()
        ann.http = second
        stream = await ann.listen()
        await pair[1].admit(BearerAuth(BEARER.tokens[1:]))
        async with asyncio.timeout(BOUND_S):
            while await stream.next() is not None:
                pass
        with pytest.raises(Refused) as refused:
            await ann.request("ping")
        assert refused.value.status == 401
        ann.http = first
        assert await say(ann, "x") == "x", "the replica that knows the token still takes it"


async def test_a_session_of_another_path_does_not_exist(elsewhere: McpClient) -> None:
    elsewhere.path = "/mcp/up"
    with pytest.raises(Refused) as refused:
        await elsewhere.request("ping")
    assert refused.value.status == 404


@pytest.mark.parametrize("part", [0, 1, 2, 3])
async def test_an_id_that_was_changed_names_no_session(elsewhere: McpClient, part: int) -> None:
    parts = elsewhere.id.split(".")
    parts[part] = parts[part][:-1] + ("a" if parts[part][-1] != "a" else "c")
    elsewhere.id = ".".join(parts)
    with pytest.raises(Refused) as refused:
        await elsewhere.request("ping")
    assert refused.value.status == 404


async def test_a_session_whose_replica_is_gone_is_answered_404(elsewhere: McpClient, pair: list[Replica]) -> None:
    assert await say(elsewhere, "once")
    await pair[0].service.finish(0)
    with pytest.raises(Refused) as refused:
        await elsewhere.request("ping")
    assert refused.value.status == 404


async def test_a_page_may_read_that_its_session_is_gone() -> None:
    origin = "https://app.example.com"
    async with (
        replicas(allowed_origins=(origin,)) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        client = McpClient(first, headers={"Origin": origin})
        await client.initialize()
        client.http = second
        await pair[0].service.finish(0)
        with pytest.raises(Refused) as refused:
            await client.request("ping")
        assert refused.value.status == 404
        assert refused.value.headers["access-control-allow-origin"] == origin


async def test_a_call_whose_replica_ends_may_have_run(elsewhere: McpClient, pair: list[Replica]) -> None:
    message = elsewhere.message("tools/call", call_of("wait", {"key": "k"}))
    call = asyncio.create_task(elsewhere.post(message))
    await pair[0].opener.upstreams[0].hears("tools/call")
    listener = pair[0].service._listener  # noqa: SLF001 - as if the process were killed
    assert listener is not None
    await listener.server.abort()
    answer = json.loads(await (await call).read())
    assert answer["id"] == message["id"]
    assert "may have run" in answer["error"]["message"]


async def test_a_replica_that_ends_does_not_wait_for_streams_that_are_opened_again(
    elsewhere: McpClient, pair: list[Replica]
) -> None:
    stream = await elsewhere.listen()
    arguments = call_of("wait", {"key": "k"})
    id, call = await elsewhere.begin("tools/call", {**arguments, "_meta": {"progressToken": "p"}})
    await call.hear("notifications/progress")
    ending = asyncio.create_task(pair[1].service.finish(10 * BOUND_S))
    while await stream.next() is not None:
        pass
    again = await elsewhere.listen()
    async with HttpClient(pair[0].url) as http:
        elsewhere.http = http
        await elsewhere.call("up", "release", {"key": "k"})
    assert text_of((await call.until(id))["result"]) == "waited"
    async with asyncio.timeout(BOUND_S):
        while await again.next() is not None:
            pass
        await ending


@pytest.mark.parametrize("path", ["/cluster/mcp", "/cluster/replica", "/cluster/"])
@pytest.mark.parametrize("field", ["", "x", "e30.e30", "a.b.c"])
async def test_a_request_that_no_replica_has_signed_is_refused(elsewhere: McpClient, path: str, field: str) -> None:
    headers = elsewhere.fields(x_dynamic_mcp_hop=field)
    assert await status_of(await elsewhere.http.request("GET", path, headers)) == 403


async def test_a_call_that_was_passed_on_ends_though_the_settings_change(
    elsewhere: McpClient, pair: list[Replica]
) -> None:
    arguments = call_of("wait", {"key": "k"})
    id, stream = await elsewhere.begin("tools/call", {**arguments, "_meta": {"progressToken": "p"}})
    await stream.hear("notifications/progress")
    await pair[1].apply(keys=(KEY, KEY[::-1]))
    await elsewhere.call("up", "release", {"key": "k"})
    assert text_of((await stream.until(id))["result"]) == "waited"


async def test_a_replica_with_another_key_is_not_believed(pair: list[Replica], elsewhere: McpClient) -> None:
    await pair[1].apply(keys=(KEY[::-1],))
    with pytest.raises(Refused) as refused:
        await elsewhere.request("ping")
    assert refused.value.status == 404


async def test_keys_are_replaced_one_after_another() -> None:
    old, new = KEY, KEY[::-1]
    async with replicas(keys=(old, new)) as pair, HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        client = McpClient(first)
        await client.initialize()
        await pair[1].apply(keys=(new, old))
        client.http = second
        assert await say(client, "x") == "x"


async def test_a_retry_of_a_modern_client_reaches_the_replica_where_its_call_waits(pair: list[Replica]) -> None:
    async with HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        asked = await modern_call(first, call_of("elicit"))
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"a": 1}}}
        retry = {**call_of("elicit"), "requestState": asked["requestState"], "inputResponses": answers}
        answered = await modern_call(second, retry)
        assert json.loads(text_of(answered))["result"] == {"action": "accept", "content": {"a": 1}}
    assert [len(each.opener.upstreams) for each in pair] == [1, 0]


async def test_a_retry_whose_replica_is_gone_is_refused(pair: list[Replica]) -> None:
    async with HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        asked = await modern_call(first, call_of("elicit"))
        await pair[0].service.finish(0)
        retry = {**call_of("elicit"), "requestState": asked["requestState"], "inputResponses": {}}
        with pytest.raises(Refused) as refused:
            await modern_call(second, retry)
        assert b"restarted" in refused.value.body


async def test_a_retry_is_refused_though_its_replica_was_known(pair: list[Replica]) -> None:
    async with HttpClient(pair[0].url) as first, HttpClient(pair[1].url) as second:
        states = [(await modern_call(first, call_of("elicit")))["requestState"] for _ in range(2)]
        retries = [{**call_of("elicit"), "requestState": each, "inputResponses": {}} for each in states]
        await modern_call(second, retries[0])
        await pair[0].service.finish(0)
        with pytest.raises(Refused) as refused:
            await modern_call(second, retries[1])
        assert b"restarted" in refused.value.body


async def modern_call(http: HttpClient, params: Json) -> Json:
    """Send a call of a modern client; return its result."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    response = await http.request("POST", "/mcp", headers, json.dumps(message).encode())
    body = await response.read()
    answer = json.loads(body)
    if response.status != 200 or "error" in answer:
        raise Refused(response, body)
    return answer["result"]


def call_of(tool: str, args: Json = None) -> dict[str, Json]:
    """Return the params of a call of a tool."""
    return {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": tool, "args": args or {}}}
