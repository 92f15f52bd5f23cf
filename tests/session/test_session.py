"""Every request of a client gets one answer with its own id, and nothing that a client sends ends its session."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dynamic_mcp.errors import Disabled, NotFound, TimedOut
from dynamic_mcp.groups import audience
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.mcp import revisions, wire
from dynamic_mcp.mcp.lines import Lines
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.upstream.handshake import ClientHello
from tests.fakes import BOUND_S, Client, Json, Watcher, config_of, settled

BATCHES = "2025-03-26"  # the one revision that has them
EMPTY_VIEW = View(Groups(config_of(), Watcher()), config_of())


def _unheard(frame: Frame) -> None:
    """Take what a client says of a request that it was asked, and forget it."""


class Desk:
    """Stands where the proxy would: one method for each way of answering."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.given_up: list[str] = []
        self.released: list[audience.Client] = []
        self.gate = asyncio.Event()

    def view_for(self, client: audience.Client) -> View:
        return EMPTY_VIEW

    def greet(self, client: audience.Client) -> dict[str, object]:
        return {"protocolVersion": client.hello.revision.name}

    def notify(self, request: Request) -> None:
        self.heard.append(request.method)

    def release(self, client: audience.Client) -> None:
        self.released.append(client)

    async def answer(self, request: Request) -> Frame:
        match request.method:
            case "echo":
                return wire.result_frame(bytes(request.params) or b"null")
            case "hold":
                return await self._held(request)
            case "ask":
                return await request.ask(Frame(method="sampling/createMessage", params=request.params), _unheard)
            case "members":
                return wire.result_frame({"count": len(wire.members(request.params))})
            case "tools/call" | "missing":
                raise NotFound("group", "x", hint="the groups are `y`")
            case "disabled":
                raise Disabled("tools", "x")
            case "late":
                raise TimedOut("x", "too late")
            case _:
                raise ZeroDivisionError("a bug")

    async def _held(self, request: Request) -> Frame:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up.append(bytes(request.params).decode())
            raise
        return wire.result_frame({"held": True})


def _client(version: str = "2025-11-25") -> tuple[Client, Desk]:
    desk = Desk()
    client = Client(desk)
    client.session.hello = ClientHello(revisions.negotiate(version))
    return client, desk


async def _client_with(*capabilities: str, version: str = "2025-11-25") -> tuple[Client, Desk]:
    """Return a client that has declared these, and what it has heard up to now is forgotten."""
    client, desk = _client(version)
    await client.initialize(version, capabilities={name: {} for name in capabilities})
    client.lines.clear()
    desk.heard.clear()
    return client, desk


async def _next_json(client: Client, after: int = 0) -> Json:
    return json.loads(await client.next_line(after))


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
    client, _ = _client()

    client.send(line)

    answer = await _next_json(client)
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", id, code)
    assert (await client.request("echo", {"a": 1}))["result"] == {"a": 1}
    assert len(client.lines) == 2


@pytest.mark.parametrize("line", [b"", b"  \r", b"\t"])
async def test_a_blank_line_is_no_message(line: bytes) -> None:
    client, _ = _client()

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
    client, _ = _client()

    client.send(_oversized(line))

    answer = await _next_json(client)
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
    client, _ = _client()
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"hold"}')
    await settled()

    client.send(_oversized(line))
    await settled()

    assert all(json.loads(line)["id"] != 1 for line in client.lines)


async def test_invalid_utf8_in_a_request_is_replaced() -> None:
    client, _ = _client()

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"name":"a\xffb"}}')

    assert (await _next_json(client))["result"] == {"name": "a\ufffdb"}


@pytest.mark.parametrize(
    "answer",
    [{"id": 1, "result": {}}, {"id": None, "error": {"code": -32700, "message": "what?"}}, {"result": {}}],
    ids=["a result", "an error", "no id"],
)
async def test_an_answer_that_nobody_asked_for_is_dropped(answer: Json) -> None:
    client, _ = _client()

    client.send({"jsonrpc": "2.0", **answer})
    await client.request("echo")

    assert len(client.lines) == 1


async def test_notifications_are_heard_and_not_answered() -> None:
    client, desk = _client()

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
    client, _ = _client()

    client.send(b'{"method":"echo","params":{"n": 1.50},"id":  ' + id + b',"jsonrpc":"2.0"}')

    assert await client.next_line(0) == b'{"jsonrpc":"2.0","id":' + id + b',"result":{"n": 1.50}}\n'


async def test_many_requests_run_at_once_and_a_slow_one_delays_none() -> None:
    client, desk = _client()
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
    client, _ = _client()

    answer = await client.request(method)

    assert answer["error"]["code"] == code
    assert "result" in await client.request("echo")


async def test_a_bug_shows_in_the_log_and_not_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    client, _ = _client()

    answer = await client.request("bug")

    assert "ZeroDivisionError" not in json.dumps(answer)
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_of_a_tool_call_is_a_result_that_a_model_can_read() -> None:
    client, _ = _client()

    answer = await client.request("tools/call", {})

    text = "no group is named `x`\nhint: the groups are `y`"
    assert answer["result"] == {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize("params", [b"", b',"params":[1]', b',"params":"text"', b',"params":null'])
async def test_params_that_are_no_object_are_invalid_where_one_is_needed(params: bytes) -> None:
    client, _ = _client()

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"members"%s}' % params)

    assert (await _next_json(client))["error"]["code"] == -32602


async def test_an_id_that_is_in_flight_is_refused_and_can_be_used_again_afterwards() -> None:
    client, desk = _client()
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"hold"}')

    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')
    refusal = await _next_json(client)
    desk.gate.set()
    answer = await _next_json(client, after=1)
    client.send(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')

    assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
    assert answer["result"] == {"held": True}
    assert "result" in await _next_json(client, after=2)


# --- cancelling ----------------------------------------------------------------------------------------


def _cancel(client: Client, id: Json) -> None:
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})


@pytest.mark.parametrize("id", [1, "x", 0], ids=str)
async def test_a_cancelled_request_is_given_up_and_not_answered(id: Json) -> None:
    client, desk = _client()
    client.send({"jsonrpc": "2.0", "id": id, "method": "hold", "params": id})
    await settled()

    _cancel(client, id)
    await settled()

    assert desk.given_up == [json.dumps(id)]
    assert client.lines == []


@pytest.mark.parametrize("wait", [True, False], ids=["in flight", "in the same breath"])
async def test_the_id_of_a_cancelled_request_can_be_used_again(*, wait: bool) -> None:
    client, _ = _client()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    if wait:
        await settled()
    _cancel(client, 1)
    await settled()

    client.send({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {}})

    assert (await _next_json(client)).get("result") == {}


@pytest.mark.parametrize(
    "params",
    [{"requestId": 99}, {"requestId": "1"}, {"requestId": None}, {}, None, [1]],
    ids=["another id", "the id as a string", "null", "no id", "no params", "a list"],
)
async def test_cancelling_what_is_not_in_flight_cancels_nothing(params: Json) -> None:
    client, desk = _client()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    await settled()

    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    desk.gate.set()

    assert (await _next_json(client))["id"] == 1


# --- batches -------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_with_one_array() -> None:
    client, desk = _client(BATCHES)
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "two", "method": "missing"},
        {"jsonrpc": "1.0", "id": 3, "method": "echo"},
        {"jsonrpc": "2.0", "id": 77, "result": "to nothing that was asked"},
        {"jsonrpc": "2.0", "id": 4, "method": "hold"},
    ]

    client.send(batch)
    await settled()
    assert client.lines == []
    desk.gate.set()

    answers = {answer["id"]: answer for answer in await _next_json(client)}
    assert answers[1]["result"] == [1]
    assert answers["two"]["error"]["code"] == -32602
    assert answers[3]["error"]["code"] == -32600
    assert answers[4]["result"] == {"held": True}
    assert len(answers) == 4
    assert desk.heard == ["notifications/initialized"]
    assert len(client.lines) == 1


@pytest.mark.parametrize("item", [b"1", b"[]", b"null", b'"text"', b"{}", b'{"foo":"boo"}', b'{"method":1}'])
async def test_an_invalid_item_of_a_batch_is_answered_in_the_array(item: bytes) -> None:
    client, _ = _client(BATCHES)

    client.send(b"[" + item + b',{"jsonrpc":"2.0","id":1,"method":"echo"}]')
    await settled()

    [line] = client.lines
    by_id = {answer["id"]: answer for answer in json.loads(line)}
    assert by_id[None]["error"]["code"] == -32600
    assert by_id[1]["result"] is None


async def test_a_batch_of_notifications_is_not_answered() -> None:
    client, desk = _client(BATCHES)

    client.send([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2)
    await client.request("echo")

    assert len(desk.heard) == 2
    assert len(client.lines) == 1


async def test_an_empty_batch_is_an_invalid_request() -> None:
    client, _ = _client(BATCHES)

    client.send(b"[]")

    answer = await _next_json(client)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


async def test_a_request_of_a_batch_that_is_cancelled_is_not_in_the_array() -> None:
    client, _ = _client(BATCHES)
    client.send([{"jsonrpc": "2.0", "id": id, "method": method} for id, method in [(1, "hold"), (2, "echo")]])
    await settled()

    _cancel(client, 1)

    assert [answer["id"] for answer in await _next_json(client)] == [2]


# --- requests to the client ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "capability"),
    [("sampling/createMessage", "sampling"), ("elicitation/create", "elicitation"), ("roots/list", "roots")],
)
async def test_a_client_is_asked_what_it_can_do(method: str, capability: str) -> None:
    client, _ = await _client_with(capability)
    asking = asyncio.create_task(client.session.ask(Frame(method=method, params=Raw(b'{"n": 1.50}')), _unheard))

    asked = await client.hears(method)
    client.send(b'{"jsonrpc":"2.0","id":%d,"result":{"ok": 1.50}}' % asked["id"])

    assert b'"params":{"n": 1.50}' in client.lines[0]
    assert bytes((await asking).result) == b'{"ok": 1.50}'


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list", "nobody/knows"])
async def test_a_client_is_not_asked_what_it_cannot_do(method: str) -> None:
    client, _ = _client()

    answer = await client.session.ask(Frame(method=method), _unheard)

    assert wire.members(answer.error)["code"] == Raw(b"-32601")
    assert client.lines == []


async def test_answers_of_the_client_are_matched_by_id_in_any_order() -> None:
    client, _ = await _client_with("sampling")
    asking = [asyncio.create_task(client.request("ask", {"n": n})) for n in range(3)]
    await client.hears("sampling/createMessage", times=3)

    for asked in reversed(client.heard("sampling/createMessage")):
        client.send({"jsonrpc": "2.0", "id": str(asked["id"]), "result": "the id of another type"})
        client.send({"jsonrpc": "2.0", "id": asked["id"], "result": asked["params"]})

    assert [(await answer)["result"] for answer in asking] == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_client_is_told_when_its_answer_is_no_longer_needed() -> None:
    client, _ = await _client_with("sampling")
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), _unheard))
    asked = await client.hears("sampling/createMessage")

    asking.cancel()

    cancelled = await client.hears("notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": "late"})


async def test_a_notification_to_the_client_passes_byte_for_byte() -> None:
    client, _ = _client()

    client.session.notify(Frame(method="notifications/progress", params=Raw(b'{"progress":0.10,"x":[ ]}')))

    assert client.lines == [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"x":[ ]}}\n'
    ]


# --- the end -------------------------------------------------------------------------------------------


async def test_finishing_waits_for_what_is_in_flight() -> None:
    client, desk = _client(BATCHES)
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    client.send([{"jsonrpc": "2.0", "id": 2, "method": "hold"}])
    finishing = asyncio.create_task(client.session.finish(within_s=BOUND_S))
    await settled()
    assert not finishing.done()

    desk.gate.set()
    await finishing

    assert len(client.lines) == 2


async def test_finishing_cancels_what_does_not_end_within_the_bound() -> None:
    client, desk = await _client_with("sampling", version=BATCHES)
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold", "params": 1})
    client.send([{"jsonrpc": "2.0", "id": 2, "method": "hold", "params": 2}])
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), _unheard))
    await settled()

    async with asyncio.timeout(BOUND_S):
        await client.session.finish(within_s=0.01)
        client.session.close()
        refused = await asking
    await settled()

    assert sorted(desk.given_up) == ["1", "2"]
    assert len(refused.error) > 0
    assert all("method" in json.loads(line) for line in client.lines)


async def test_a_closed_session_gives_up_everything_and_is_let_go_of() -> None:
    client, desk = await _client_with("sampling")
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold", "params": 1})
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), _unheard))
    await client.hears("sampling/createMessage")
    sent = len(client.lines)

    client.session.close()
    client.session.close()
    refused = await client.session.ask(Frame(method="sampling/createMessage"), _unheard)
    client.session.notify(Frame(method="notifications/message"))
    await settled()

    assert desk.given_up == ["1"]
    assert desk.released == [client.session]
    assert len((await asking).error) > 0
    assert len(refused.error) > 0
    assert len(client.lines) == sent


async def test_finishing_with_nothing_in_flight_is_done_at_once() -> None:
    client, _ = _client()

    await client.session.finish(within_s=0)

    assert client.lines == []


async def test_floods_are_dropped_while_the_client_does_not_read_and_what_matters_is_not() -> None:
    sent: list[bytes] = []
    session = Session(sent.append, Proxy(config_of()), is_congested=lambda: True)

    for method in ("notifications/message", "notifications/progress", "notifications/tools/list_changed"):
        session.notify(Frame(method=method))

    assert [json.loads(line)["method"] for line in sent] == ["notifications/tools/list_changed"]
