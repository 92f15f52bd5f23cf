"""Every request of a client gets one answer with its own id, and nothing that a client sends ends its session."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.mcp.lines import Lines
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from tests.fakes import Json, settled
from tests.session.desk import BATCHES, Desk, cancel, make_client, next_json

# --- lines that are no good requests -------------------------------------------------------------------

BAD = [
    pytest.param(b"hello", -32700, None, id="garbage"),
    pytest.param(b"\xff\xfe\x00", -32700, None, id="binary"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ec', -32700, None, id="half a message"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":NaN}', -32700, None, id="NaN"),
    pytest.param(b"[" * 100_000, -32700, None, id="deep nesting"),
    pytest.param(b"17", -32600, None, id="a number"),
    pytest.param(b'"echo"', -32600, None, id="a string"),
    pytest.param(b"null", -32600, None, id="null"),
    pytest.param(b"{}", -32600, None, id="an empty object"),
    pytest.param(b'{"foo":"boo"}', -32600, None, id="an object of something else"),
    pytest.param(b'{"jsonrpc":"2.0","id":1}', -32600, None, id="no method"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1, id="a method that is no string"),
    pytest.param(b'{"jsonrpc":"2.0","id":"a","method":["echo"]}', -32600, "a", id="a method that is a list"),
    pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"echo"}', -32600, 1, id="another version of JSON-RPC"),
    pytest.param(b'{"jsonrpc":2.0,"id":1,"method":"echo"}', -32600, 1, id="a version that is a number"),
    pytest.param(b'{"id":1,"method":"echo"}', -32600, 1, id="no version of JSON-RPC"),
    pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"echo"}', -32600, None, id="an id that is null"),
    pytest.param(b'{"jsonrpc":"2.0","id":{"a":1},"method":"echo"}', -32600, None, id="an id that is an object"),
    pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"echo"}', -32600, None, id="an id that is a boolean"),
    pytest.param(b'{"jsonrpc":"2.0","id":[1],"method":"echo"}', -32600, None, id="an id that is a list"),
    pytest.param(b'[{"jsonrpc":"2.0","id":1,"method":"echo"}]', -32600, None, id="a batch"),
    pytest.param(b"[]", -32600, None, id="an empty batch"),
]


@pytest.mark.parametrize(("line", "code", "id"), BAD)
async def test_a_bad_line_gets_one_error_and_the_session_lives(line: bytes, code: int, id: Json) -> None:
    client, _ = make_client()

    client.send(line)

    answer = await next_json(client)
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", id, code)
    assert (await client.request("echo", {"a": 1}))["result"] == {"a": 1}
    assert len(client.lines) == 2


async def test_a_session_counts_the_requests_that_it_serves_and_nothing_else() -> None:
    client, _ = make_client()
    client.send(b"garbage")
    client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    client.send({"jsonrpc": "1.0", "id": 1, "method": "echo"})
    assert client.session.requests == 0

    await client.request("echo")
    await client.request("missing")
    await client.request("ping")

    assert client.session.requests == 3


async def test_every_request_of_a_batch_counts() -> None:
    client, _ = make_client(BATCHES)
    client.send([{"jsonrpc": "2.0", "id": n, "method": "echo"} for n in range(3)])
    await client.next_line(0)

    assert client.session.requests == 3


async def test_a_session_knows_when_it_began() -> None:
    session = Session(ClientConnection(lambda line: None), Desk(), now=lambda: 1_800_000_000.0)

    assert session.since == 1_800_000_000.0


@pytest.mark.parametrize("line", [b"", b"  \r", b"\t"])
async def test_a_blank_line_is_no_message(line: bytes) -> None:
    client, _ = make_client()

    client.send(line)
    await client.request("echo")

    assert len(client.lines) == 1


def _oversized(line: bytes) -> bytes:
    return Lines(limit=10).feed(line + b"\n")[0]


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":"big","method":"echo","params":"' + b"x" * 50_000 + b'"}', "big"),
        (b'{"method":"echo","params":"' + b"x" * 50_000 + b'","jsonrpc":"2.0","id":7}', 7),
        (b"x" * 50_000, None),
    ],
    ids=["id first", "id last", "no id"],
)
async def test_an_oversized_request_is_refused_with_its_size_and_its_id_where_it_can_be_told(
    line: bytes, id: Json
) -> None:
    client, _ = make_client()

    client.send(_oversized(line))

    answer = await next_json(client)
    assert (answer["id"], answer["error"]["code"]) == (id, -32600)
    assert str(len(line)) in answer["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 50_000 + b'"}',
        b'{"result":"' + b"x" * 50_000 + b'","jsonrpc":"2.0","id":1}',
    ],
    ids=["id first", "id last"],
)
async def test_an_oversized_answer_of_the_client_is_not_taken_for_a_request_with_its_id(line: bytes) -> None:
    client, _ = make_client()
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"hold"}')
    await settled()

    client.send(_oversized(line))
    await settled()

    assert all(json.loads(line)["id"] != 1 for line in client.lines)


async def test_invalid_utf8_in_a_request_is_replaced() -> None:
    client, _ = make_client()

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"name":"a\xffb"}}')

    assert (await next_json(client))["result"] == {"name": "a\ufffdb"}


@pytest.mark.parametrize(
    "answer",
    [{"id": 1, "result": {}}, {"id": None, "error": {"code": -32700, "message": "what?"}}, {"result": {}}],
    ids=["a result", "an error", "no id"],
)
async def test_an_answer_that_nobody_asked_for_is_dropped(answer: Json) -> None:
    client, _ = make_client()

    client.send({"jsonrpc": "2.0", **answer})
    await client.request("echo")

    assert len(client.lines) == 1


async def test_notifications_are_heard_and_not_answered() -> None:
    client, desk = make_client()

    client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    client.send({"jsonrpc": "2.0", "method": "notifications/nobody/knows", "params": [1]})
    await client.request("echo")

    assert desk.heard == ["notifications/initialized", "notifications/nobody/knows"]
    assert len(client.lines) == 1


# --- answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id",
    [b"1", b"0", b"-7", b"1.50", b"-0", b"1e2", b"1" + b"0" * 40, b'""', b'"\\u00e9\\/\\n"', b'"\xc3\xa9"', b'"1"'],
    ids=lambda id: id.decode(),
)
async def test_an_answer_has_the_id_of_its_request_byte_for_byte(id: bytes) -> None:
    client, _ = make_client()

    client.send(b'{"method":"echo","params":{"n": 1.50},"id":  ' + id + b',"jsonrpc":"2.0"}')

    assert await client.next_line(0) == b'{"jsonrpc":"2.0","id":' + id + b',"result":{"n": 1.50}}\n'


async def test_many_requests_run_at_once_and_a_slow_one_delays_none() -> None:
    client, desk = make_client()
    held = [asyncio.create_task(client.request("hold")) for _ in range(20)]
    await settled()

    assert (await client.request("echo", 1))["result"] == 1
    assert len(client.lines) == 1

    desk.gate.set()
    answers = await asyncio.gather(*held)
    assert len({answer["id"] for answer in answers}) == 20
    assert len(client.lines) == 21


@pytest.mark.parametrize(
    ("method", "code"),
    [("missing", -32602), ("disabled", -32601), ("late", -32001), ("bug", -32603)],
)
async def test_an_error_is_answered_with_its_code_and_the_session_lives(method: str, code: int) -> None:
    client, _ = make_client()

    answer = await client.request(method)

    assert answer["error"]["code"] == code
    assert "result" in await client.request("echo")


async def test_a_bug_shows_in_the_log_and_not_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    client, _ = make_client()

    answer = await client.request("bug")

    assert "ZeroDivisionError" not in json.dumps(answer)
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_of_a_tool_call_is_a_result_that_a_model_can_read() -> None:
    client, _ = make_client()

    answer = await client.request("tools/call", {})

    text = "no group is named `x`\nhint: the groups are `y`"
    assert answer["result"] == {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize("params", [b"", b',"params":[1]', b',"params":"text"', b',"params":null'])
async def test_params_that_are_no_object_are_invalid_where_one_is_needed(params: bytes) -> None:
    client, _ = make_client()

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"members"%s}' % params)

    assert (await next_json(client))["error"]["code"] == -32602


async def test_an_id_that_is_in_flight_is_refused_and_can_be_used_again_afterwards() -> None:
    client, desk = make_client()
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"hold"}')

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')
    refusal = await next_json(client)
    desk.gate.set()
    answer = await next_json(client, after=1)
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')

    assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
    assert answer["result"] == {"held": True}
    assert "result" in await next_json(client, after=2)


# --- cancelling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [1, "x", 0], ids=str)
async def test_a_cancelled_request_is_given_up_and_not_answered(id: Json) -> None:
    client, desk = make_client()
    client.send({"jsonrpc": "2.0", "id": id, "method": "hold", "params": id})
    await settled()

    cancel(client, id)
    await settled()

    assert desk.given_up == [json.dumps(id)]
    assert client.lines == []


@pytest.mark.parametrize("wait", [True, False], ids=["in flight", "in the same breath"])
async def test_the_id_of_a_cancelled_request_can_be_used_again(*, wait: bool) -> None:
    client, _ = make_client()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    if wait:
        await settled()
    cancel(client, 1)
    await settled()

    client.send({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {}})

    assert (await next_json(client)).get("result") == {}


@pytest.mark.parametrize(
    "params",
    [{"requestId": 99}, {"requestId": "1"}, {"requestId": None}, {}, None, [1]],
    ids=["another id", "the id as a string", "null", "no id", "no params", "a list"],
)
async def test_cancelling_what_is_not_in_flight_cancels_nothing(params: Json) -> None:
    client, desk = make_client()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    await settled()

    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    desk.gate.set()

    assert (await next_json(client))["id"] == 1
