"""Streamable HTTP: what each request of a client is answered, and over which stream."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.errors import PARSE_ERROR
from dynamic_mcp.mcp.revisions import MODERN
from tests.face.http.modern_parties import ModernHttpClient
from tests.face.http.parties import EVERYTHING, HELLO, ByUserHeader, HttpClient, face_of
from tests.fakes import FakeUpstream, FullUpstream, Json, Opener, settled

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def test_a_session_begins_with_initialize_and_ends_with_delete() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)

        reply = await client.initialize()

        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.json["result"]["protocolVersion"] == "2025-11-25"
        assert client.send("DELETE").status == 204
        assert client.request("ping").status == 404
        assert client.send("DELETE").status == 404


async def test_an_answer_is_json_when_nothing_has_to_be_said_before_it() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()

        reply = await client.call("echo", {"text": "a"}, id="x").ends()

        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.json["id"] == "x"
        assert "mcp-session-id" not in reply.headers


async def test_what_a_call_causes_comes_on_its_own_stream_before_its_answer() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()
        listening = client.listen()

        reply = await client.call("progress", {"steps": 2}, token="t-1").ends()

        *progress, answer = reply.messages
        assert reply.headers["content-type"] == "text/event-stream"
        assert {each["params"]["progressToken"] for each in progress} == {"t-1"}
        assert "result" in answer
        assert listening.messages_but_lists == []


async def test_two_calls_with_equal_ids_of_two_sessions_get_their_own_answers() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        one, other = HttpClient(face), HttpClient(face)
        await one.initialize()
        await other.initialize()
        replies = [one.call("hold", {"n": 1}, id=7), other.call("hold", {"n": 2}, id=7)]
        await upstream.hears("tools/call", times=2)

        for call in reversed(upstream.heard("tools/call")):
            n = call["params"]["arguments"]["n"]
            upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": [], "n": n}})

        assert [(await each.ends()).json["result"]["n"] for each in replies] == [1, 2]


async def test_a_question_comes_on_the_stream_of_its_call_and_its_answer_by_a_post_of_its_own() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize(EVERYTHING)
        listening = client.listen()
        reply = client.call("ask", {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        question = await reply.hears_of("sampling/createMessage")

        answered = client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant"}})

        assert (answered.status, answered.body) == (202, b"")
        assert "assistant" in json.dumps((await reply.ends()).messages[-1])
        assert listening.messages_but_lists == []


async def test_a_changed_list_comes_on_the_stream_that_the_client_has_opened() -> None:
    async with face_of(Opener(up=[FullUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()
        await client.request("prompts/list").ends()
        listening = client.listen()

        reply = await client.call("add", {"list": "prompts", "entry": {"name": "new"}}).ends()

        assert await listening.hears_of("notifications/prompts/list_changed")
        assert all("method" not in each for each in ([reply.json] if not reply.is_stream else reply.messages))


async def test_a_cancelled_request_gets_no_answer_and_its_exchange_ends() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold", id=5)
        await upstream.hears("tools/call")

        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})

        assert ((await reply.ends()).status, reply.body) == (202, b"")
        assert (await upstream.hears("notifications/cancelled"))["params"]["requestId"]


async def test_a_broken_connection_cancels_nothing() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold")
        await upstream.hears("tools/call")

        reply.cut()
        await settled()

        assert upstream.heard("notifications/cancelled") == []


async def test_a_session_that_ends_answers_what_is_in_flight_and_cancels_it() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.call("hold")
        await upstream.hears("tools/call")
        listening = client.listen()

        client.send("DELETE")

        assert (await reply.ends()).status == 404
        assert (await listening.ends()).messages == []
        await upstream.hears("notifications/cancelled")


# --- batches -------------------------------------------------------------------------------------------


async def test_a_batch_of_a_revision_that_has_them_gets_one_answer() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize(version="2025-03-26")
        ping = {"jsonrpc": "2.0", "method": "ping"}

        reply = await client.post([{**ping, "id": 1}, INITIALIZED, {**ping, "id": "b"}]).ends()

        assert (reply.status, [each["id"] for each in reply.json]) == (200, [1, "b"])


async def test_a_batch_is_answered_whatever_codes_are_in_its_answers() -> None:
    upstream = FakeUpstream()
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize(version="2025-03-26")
        call = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "echo"}}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

        reply = client.post([{**ping, "id": 2, "method": "tools/call", "params": call}, ping])
        id = (await upstream.hears("tools/call"))["id"]
        upstream.say(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":{"code":-32003}}}' % id)
        await reply.ends()

        assert (reply.status, {each["id"] for each in reply.json}) == (200, {1, 2})


async def test_a_batch_of_notifications_is_accepted() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize(version="2025-03-26")

        assert ((await client.post([INITIALIZED, INITIALIZED]).ends()).status) == 202


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_batch_of_a_revision_without_them_is_refused(version: str) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize(version=version)

        reply = client.post([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])

        assert (reply.status, reply.json["error"]["code"]) == (400, -32600)


# --- refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"content_type": "text/plain"}, 415, id="a form that any page can send"),
        pytest.param({"content_type": ""}, 415, id="no content type"),
        pytest.param({"content_type": "application/json; charset=utf-16"}, 415, id="another encoding"),
        pytest.param({"accept": "application/json"}, 406, id="JSON only"),
        pytest.param({"accept": "text/event-stream"}, 406, id="streams only"),
        pytest.param({"accept": "application/json, text/event-stream;q=0"}, 406, id="no streams"),
        pytest.param({"mcp_session_id": ""}, 400, id="no session"),
        pytest.param({"mcp_session_id": "guessed"}, 404, id="an unknown session"),
        pytest.param({"mcp_protocol_version": "1999-01-01"}, 400, id="an unknown version"),
        pytest.param({"mcp_method": "tools/call"}, 400, id="a header that names another method"),
        pytest.param({"content_length": str(1 << 40)}, 413, id="a body that says it is too long"),
    ],
)
async def test_a_request_with_wrong_headers_is_refused(headers: dict[str, str], status: int) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()

        reply = client.request("ping", **headers)

        assert (reply.status, reply.json["error"]["message"] != "") == (status, True)
        assert (await client.request("ping").ends()).json["result"] == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": ""},
        {"accept": "*/*"},
        {"accept": "text/*;q=0.5, application/*"},
        {"content_type": "application/json; charset=UTF-8"},
        {"content_type": 'Application/JSON;charset="utf-8"'},
        {"mcp_protocol_version": "2025-03-26"},
        {"mcp_method": "ping"},
    ],
)
async def test_a_request_with_unusual_headers_is_answered(headers: dict[str, str]) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()

        assert (await client.request("ping", **headers).ends()).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"hello", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"pi\nng"}', -32700),
        (b"17", -32600),
        (b"{}", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b"[" * 1_000_000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 1_000_000, -32700),
    ],
)
async def test_a_body_that_is_no_message_is_refused_and_the_session_lives(body: bytes, code: int) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()

        reply = client.post(body)

        assert (reply.status, reply.json["error"]["code"]) == (400, code)
        assert (await client.request("ping").ends()).json["result"] == {}


async def test_a_message_over_several_lines_reaches_the_upstream_as_one() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        arguments = {"group": "up", "name": "hold", "args": {"text": "a\nb"}}
        params = {"name": "call_dynamic_tool", "arguments": arguments}

        client.post(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, indent=2).encode()
        )

        assert (await upstream.hears("tools/call"))["params"]["arguments"] == {"text": "a\nb"}
        assert all(line.count(b"\n") == 1 for line in upstream.lines)


async def test_a_request_whose_id_is_in_flight_is_refused_and_the_first_goes_on() -> None:
    upstream = FakeUpstream(tools=["hold"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        first = client.call("hold", id=1)
        call = await upstream.hears("tools/call")

        second = client.call("hold", id=1)
        upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}})

        assert (second.status, second.json["error"]["code"]) == (400, -32600)
        assert (await first.ends()).json["result"] == {"content": []}


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/mcp"), ("HEAD", "/mcp"), ("POST", "/sse"), ("GET", "/messages")]
)
async def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(method: str, path: str) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        reply = HttpClient(face).send(method, path, b"{}")

        assert reply.status == 405
        assert method not in reply.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/MCP",
        "/mcp/none",
        "/mcp//",
        "//mcp",
        "/mcp/../mcp",
        "/mcp/%2e%2e/mcp",
        "/mcp/.",
        "/mcp/up/",
        "/mcp/%2F",
    ],
)
async def test_a_path_that_means_nothing_is_not_found(path: str) -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        assert HttpClient(face, path).request("initialize", HELLO).status == 404


async def test_a_session_of_somebody_else_cannot_be_told_from_none() -> None:
    async with face_of(Opener(up=[FakeUpstream()]), authenticator=ByUserHeader()) as face:
        client = HttpClient(face)
        hello = await client.request("initialize", HELLO, x_user="a").ends()
        client.session = hello.headers["mcp-session-id"]

        foreign = client.request("ping", x_user="b")
        client.session, known = "x" * len(client.session), client.session
        unknown = client.request("ping", x_user="b")
        client.session = known

        assert (foreign.status, foreign.body) == (unknown.status, unknown.body) == (404, unknown.body)
        assert client.send("DELETE", x_user="b").status == client.listen(x_user="b").status == 404
        assert (await client.request("ping", x_user="a").ends()).status == 200


async def test_ids_of_sessions_cannot_be_guessed() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        ids: list[str] = []
        for _ in range(200):
            client = HttpClient(face)
            await client.initialize()
            ids.append(client.session)

        assert len({id[:6] for id in ids}) > 190
        assert all(len(id) * 6 >= 128 for id in ids)


async def test_a_message_that_a_result_is_made_of_passes_byte_for_byte() -> None:
    result: Json = b'{"content":[],"x":1.50,"big":123456789012345678901234567890,"a":"\\u00e9\\/"}'
    async with face_of(Opener(up=[FakeUpstream({"tools/call": result})])) as face:
        client = HttpClient(face)
        await client.initialize()

        reply = await client.call("echo", id=3).ends()

        assert reply.body == b'{"jsonrpc":"2.0","id":3,"result":' + result + b"}\n"


@pytest.mark.parametrize("text", [b"caf\xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xff\xfe"])
async def test_a_body_that_is_not_utf8_is_refused_and_reaches_no_server(text: bytes) -> None:
    upstream = FakeUpstream(tools=["echo"])
    async with face_of(Opener(up=[upstream])) as face:
        client = HttpClient(face)
        await client.initialize()
        stream = client.send("GET", "/sse", accept="text/event-stream")
        old = HttpClient(face, stream.body.decode().split("data: ")[1].strip())
        message = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s"}}' % text

        replies = [
            client.post(message),
            client.post(b"[%s]" % message),
            old.post(message),
            ModernHttpClient(face).post(message, {"mcp-protocol-version": MODERN.name, "mcp-method": "tools/call"}),
        ]

        assert [(each.status, each.json["error"]["code"]) for each in replies] == [(400, PARSE_ERROR)] * 4
        assert (await client.request("ping").ends()).status == 200


async def test_a_body_with_other_characters_than_ascii_is_taken() -> None:
    async with face_of(Opener(up=[FakeUpstream()])) as face:
        client = HttpClient(face)
        await client.initialize()
        reply = client.post('{"jsonrpc": "2.0", "id": "é", "method": "ping"}'.encode())
        assert (await reply.ends()).json["id"] == "é"
