"""A link gives every answer to the request it belongs to and to no other, whatever the upstream sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

import pytest
from msgspec import Raw

from dynamic_mcp import wire
from dynamic_mcp.errors import LinkLost, NotFound, NotSent, ProtocolViolation, TimedOut
from dynamic_mcp.lines import Lines
from dynamic_mcp.upstream import call as call_module
from dynamic_mcp.upstream.call import Caller
from dynamic_mcp.upstream.link import Link
from dynamic_mcp.wire import Frame
from tests.fakes import BOUND_S, Ear, FakeCaller, FakeUpstream, Json, frame, link_to, settled


def _request(
    link: Link, method: str = "tools/call", params: Mapping[str, bytes] | None = None, **more: Json
) -> asyncio.Task[Frame]:
    """Begin a request; the answer is the task's result."""
    raw = {key: Raw(value) for key, value in (params or {}).items()}
    return asyncio.create_task(link.request(method, raw, **{"timeout_s": 5, **more}))


def _ids(upstream: FakeUpstream) -> list[int]:
    return [message["id"] for message in upstream.heard("tools/call")]


def _answer(upstream: FakeUpstream, id: object, result: Json) -> None:
    upstream.say({"jsonrpc": "2.0", "id": id, "result": result})


async def _result(request: asyncio.Task[Frame]) -> Json:
    async with asyncio.timeout(BOUND_S):
        return json.loads(bytes((await request).result))


# --- answers -------------------------------------------------------------------------------------------


async def test_answers_are_matched_by_id_in_any_order() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    requests = [_request(link) for _ in range(5)]
    await upstream.hears("tools/call", times=5)

    for id in reversed(_ids(upstream)):
        _answer(upstream, id, {"for": id})

    assert [await _result(request) for request in requests] == [{"for": id} for id in _ids(upstream)]
    assert link.dropped == 0


async def test_an_answer_is_the_bytes_that_arrived_be_it_a_result_or_an_error() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    good, bad = _request(link), _request(link)
    await upstream.hears("tools/call", times=2)
    first, second = _ids(upstream)

    upstream.say(b'{"jsonrpc":"2.0","id":%d,"result":{"n": 1.50,"a":"\\u00e9"}}' % first)
    upstream.say(b'{"jsonrpc":"2.0","id":%d,"error":{"message" : "no","code":-1}}' % second)

    assert bytes((await good).result) == b'{"n": 1.50,"a":"\\u00e9"}'
    assert bytes((await bad).error) == b'{"message" : "no","code":-1}'


@pytest.mark.parametrize("foreign", [999, "{id}", None, True, [1], {}, -1], ids=str)
async def test_an_answer_with_a_foreign_id_is_dropped_and_counted(foreign: Json) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    id = (await upstream.hears("tools/call"))["id"]

    _answer(upstream, str(id) if foreign == "{id}" else foreign, "foreign")
    await settled()
    assert (link.dropped, request.done()) == (1, False)

    _answer(upstream, id, "own")
    assert await _result(request) == "own"


async def test_an_answer_without_an_id_is_dropped_and_counted() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)

    upstream.say({"jsonrpc": "2.0", "result": {}})
    upstream.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse error"}})

    assert link.dropped == 2


async def test_a_second_answer_is_dropped_and_counted() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    first, second = _request(link), _request(link)
    await upstream.hears("tools/call", times=2)
    id, other = _ids(upstream)

    _answer(upstream, id, "once")
    _answer(upstream, id, "twice")
    _answer(upstream, other, "other")

    assert [await _result(first), await _result(second)] == ["once", "other"]
    assert link.dropped == 1


async def test_a_request_that_is_not_answered_in_time_is_cancelled_and_its_late_answer_meets_no_other() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)

    with pytest.raises(TimedOut, match=r"`add` was not answered within 0\.01 s"):
        await link.request("tools/call", timeout_s=0.01, what="`add`")
    [id] = _ids(upstream)
    assert upstream.heard("notifications/cancelled")[0]["params"]["requestId"] == id

    following = _request(link)
    await upstream.hears("tools/call", times=2)
    _answer(upstream, id, "late")
    _answer(upstream, _ids(upstream)[1], "in time")
    assert await _result(following) == "in time"
    assert link.dropped == 1


async def test_when_the_awaiting_task_is_cancelled_the_upstream_is_told() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request, other = _request(link), _request(link)
    await upstream.hears("tools/call", times=2)
    id, other_id = _ids(upstream)

    request.cancel()

    cancelled = await upstream.hears("notifications/cancelled")
    assert cancelled["params"]["requestId"] == id
    assert "id" not in cancelled
    _answer(upstream, id, "late")
    _answer(upstream, other_id, "other")
    assert await _result(other) == "other"
    assert (request.cancelled(), link.dropped) == (True, 1)


async def test_an_answered_request_is_never_cancelled() -> None:
    upstream = FakeUpstream({"tools/call": {}})
    link = link_to(upstream)
    request = _request(link)
    await _result(request)

    request.cancel()
    await settled()

    assert upstream.heard("notifications/cancelled") == []


@pytest.mark.parametrize(
    "members",
    [b"", b',"result":{},"error":{"code":1,"message":"m"}', b',"x-vendor":1'],
    ids=["neither", "both", "neither, with a member of a vendor"],
)
async def test_an_answer_with_neither_or_both_of_result_and_error_fails_that_call_alone(members: bytes) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    wronged, other = _request(link), _request(link)
    await upstream.hears("tools/call", times=2)
    id, other_id = _ids(upstream)

    upstream.say(b'{"jsonrpc":"2.0","id":%d%s}' % (id, members))

    with pytest.raises(ProtocolViolation):
        await wronged
    _answer(upstream, other_id, "other")
    assert await _result(other) == "other"


# --- lines that are no messages ------------------------------------------------------------------------


def _oversized(line: bytes) -> bytes:
    return Lines(limit=10).feed(line + b"\n")[0]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"temperature":NaN}}',
        b'{"result":{"half":tru},"jsonrpc":"2.0","id":%d}\r',
        b'{"jsonrpc":"2.0","id":%d,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["NaN", "half a word", "deep nesting"],
)
@pytest.mark.parametrize("is_oversized", [False, True])
async def test_an_unreadable_answer_fails_the_call_that_it_names_and_no_other(
    line: bytes, is_oversized: bool
) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    wronged, other = _request(link), _request(link)
    await upstream.hears("tools/call", times=2)
    id, other_id = _ids(upstream)

    broken = line.replace(b"%d", b"%d" % id)
    upstream.say(_oversized(broken) if is_oversized else broken)

    with pytest.raises(ProtocolViolation, match="over `max_message_bytes`" if is_oversized else "cannot be read"):
        await wronged
    _answer(upstream, other_id, "other")
    assert await _result(other) == "other"


@pytest.mark.parametrize("is_oversized", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"temperature":NaN}}',
        b'{"method":"sampling/createMessage","params":{"temperature":NaN},"jsonrpc":"2.0","id":%d}',
    ],
    ids=["id first", "id last"],
)
async def test_an_unreadable_request_of_the_upstream_fails_no_call_whose_id_happens_to_be_the_same(
    line: bytes, is_oversized: bool
) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    id = (await upstream.hears("tools/call"))["id"]

    broken = line.replace(b"%d", b"%d" % id)
    upstream.say(_oversized(broken) if is_oversized else broken)
    _answer(upstream, id, "own")

    assert await _result(request) == "own"


GARBAGE = [
    pytest.param(b"Server listening on port 3000", id="a banner"),
    pytest.param(b"", id="an empty line"),
    pytest.param(b" \r", id="a blank line"),
    pytest.param(b"\xff\xfe\x00\x80", id="binary"),
    pytest.param(b'{"jsonrpc":"2.0","id":1', id="half a message"),
    pytest.param(b"{}", id="an empty object"),
    pytest.param(b"[]", id="an empty batch"),
    pytest.param(b"null", id="null"),
    pytest.param(b"17", id="a number"),
    pytest.param(b"{", id="a brace"),
    pytest.param(b'{"jsonrpc":"2.0","method":17}', id="a method that is a number"),
    pytest.param(b'{"jsonrpc":"2.0","method":"notifications/progress"}', id="progress without params"),
    pytest.param(b'{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}', id="progress with a list"),
    pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}', id="cancelled without an id"),
    pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}', id="cancelled with a number"),
    pytest.param(b'{"method":"notifications/cancelled","params":{"requestId":99}}', id="cancelled with no such id"),
]


@pytest.mark.parametrize("line", GARBAGE)
async def test_garbage_is_skipped_and_the_calls_around_it_are_answered(line: bytes) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    id = (await upstream.hears("tools/call"))["id"]

    upstream.say(line)
    upstream.say(b'{"jsonrpc":"2.0","id":%d,"result":"own"}\r' % id)

    assert await _result(request) == "own"
    assert link.loss is None


async def test_answers_in_a_batch_are_taken() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    requests = [_request(link), _request(link)]
    await upstream.hears("tools/call", times=2)

    upstream.say([{"jsonrpc": "2.0", "id": id, "result": id} for id in _ids(upstream)])

    assert [await _result(request) for request in requests] == _ids(upstream)


@pytest.mark.parametrize("bad", [b"1", b"[]", b"null", b'{"method":5}', b'"text"'])
async def test_a_bad_item_in_a_batch_costs_the_others_nothing(bad: bytes) -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    id = (await upstream.hears("tools/call"))["id"]

    upstream.say(b"[" + bad + b',{"jsonrpc":"2.0","id":%d,"result":"own"}]' % id)

    assert await _result(request) == "own"


async def test_pretty_printed_answers_are_taken() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    id = (await upstream.hears("tools/call"))["id"]
    result = {"content": [{"type": "text", "text": "{"}], "nested": {"a": {}}}

    for line in json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, indent=2).encode().splitlines():
        upstream.say(line)

    assert await _result(request) == result


# --- the end -------------------------------------------------------------------------------------------


async def test_a_lost_link_fails_all_its_calls_at_once_and_says_that_they_may_have_run() -> None:
    upstream, ear = FakeUpstream(), Ear()
    link = link_to(upstream, listener=ear)
    requests = [_request(link, what=f"`tool_{n}`") for n in range(3)]
    await upstream.hears("tools/call", times=3)

    upstream.die("the server exited with code 1")
    upstream.die("again")

    for n, request in enumerate(requests):
        with pytest.raises(LinkLost, match="exited with code 1") as raised:
            await request
        assert f"`tool_{n}` may have run" in raised.value.hint
    assert [loss.reason for loss in ear.losses] == ["the server exited with code 1"]


async def test_a_lost_link_takes_no_request_and_the_caller_knows_that_it_was_not_sent() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    upstream.die("the server exited with code 1")

    with pytest.raises(NotSent, match="exited with code 1"):
        await link.request("tools/call", timeout_s=5)
    link.notify("notifications/initialized")

    assert upstream.sent == []


async def test_a_request_that_the_transport_does_not_take_was_not_sent() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    upstream.deaf = "the server has stopped reading its input"

    with pytest.raises(NotSent, match="stopped reading"):
        await link.request("tools/call", timeout_s=5)
    link.notify("notifications/initialized")


async def test_closing_ends_the_transport_and_fails_what_is_in_flight() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    request = _request(link)
    await upstream.hears("tools/call")

    await link.close()

    with pytest.raises(LinkLost):
        await request
    assert upstream.closed
    assert link.loss is not None


class Leaving(FakeUpstream):
    """An upstream that says how it ended when it is closed."""

    async def close(self) -> None:
        await super().close()
        self.die("the server was ended by signal SIGTERM")


async def test_what_is_in_flight_at_the_end_hears_how_the_upstream_ended_where_that_is_known() -> None:
    upstream = Leaving()
    link = link_to(upstream)
    request = _request(link)
    await upstream.hears("tools/call")

    await link.close()

    with pytest.raises(LinkLost, match="signal SIGTERM"):
        await request


# --- progress ------------------------------------------------------------------------------------------


def _with_token(token: bytes) -> dict[str, bytes]:
    return {"name": b'"slow"', "_meta": b'{"trace":"t","progressToken":' + token + b',"n":1.50}'}


def _progress(upstream: FakeUpstream, token: object, **more: Json) -> None:
    params = {"progress": 1, "progressToken": token, **more}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


@pytest.mark.parametrize(
    "token", [b'"t"', b'"\\u00e9\\/ "', b"7", b"0", b"-1", b"1.0", b"1" + b"0" * 40, b'""'], ids=bytes.decode
)
async def test_a_progress_token_is_replaced_on_the_way_out_and_put_back_as_it_was(token: bytes) -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    _request(link_to(upstream), params=_with_token(token), caller=caller)
    meta = (await upstream.hears("tools/call"))["params"]["_meta"]

    upstream.say(
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"progressToken":%s,"x":[ ]}}'
        % json.dumps(meta["progressToken"]).encode()
    )
    await settled()

    assert (meta["trace"], meta["n"]) == ("t", 1.5)
    [told] = caller.told
    assert told.method == "notifications/progress"
    assert bytes(told.params) == b'{"progress":0.10,"progressToken":%s,"x":[ ]}' % token


async def test_equal_tokens_of_two_callers_are_told_apart() -> None:
    upstream, ann, bob = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream)
    for caller in (ann, bob):
        _request(link, params=_with_token(b'"same"'), caller=caller)
    await upstream.hears("tools/call", times=2)
    tokens = [message["params"]["_meta"]["progressToken"] for message in upstream.heard("tools/call")]

    _progress(upstream, tokens[1], message="for bob")
    await settled()

    assert tokens[0] != tokens[1]
    assert ann.told == []
    assert [json.loads(bytes(frame.params))["message"] for frame in bob.told] == ["for bob"]


@pytest.mark.parametrize("token", ["unknown", 99, None, "1", 1.5, [1], "{missing}"], ids=str)
async def test_progress_with_an_unknown_token_is_dropped(token: Json) -> None:
    upstream, caller, ear = FakeUpstream(), FakeCaller(), Ear()
    link = link_to(upstream, listener=ear)
    _request(link, params=_with_token(b'"t"'), caller=caller)
    await upstream.hears("tools/call")

    params = {"progress": 1} if token == "{missing}" else {"progress": 1, "progressToken": token}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    assert caller.told == ear.frames == []


async def test_progress_on_a_call_that_asked_for_none_is_dropped() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    _request(link_to(upstream), caller=caller)
    id = (await upstream.hears("tools/call"))["id"]

    _progress(upstream, id)

    assert caller.told == []


async def test_progress_after_the_answer_is_dropped() -> None:
    upstream, caller = FakeUpstream({"tools/call": {}}), FakeCaller()
    request = _request(link_to(upstream), params=_with_token(b'"t"'), caller=caller)
    await _result(request)

    _progress(upstream, upstream.sent[0]["params"]["_meta"]["progressToken"])

    assert caller.told == []


@pytest.mark.parametrize(
    "meta", [b"null", b"[]", b'"text"', b'{"trace":1}', b"{}"], ids=["null", "list", "string", "no token", "empty"]
)
async def test_meta_without_a_token_passes_as_it_is(meta: bytes) -> None:
    upstream = FakeUpstream()
    _request(link_to(upstream), params={"_meta": meta})
    await upstream.hears("tools/call")

    assert b'"_meta":' + meta + b"}" in upstream.lines[0]


async def test_progress_extends_the_timeout() -> None:
    upstream = FakeUpstream()
    request = _request(link_to(upstream), params=_with_token(b'"t"'), caller=FakeCaller(), timeout_s=0.06)
    hello = await upstream.hears("tools/call")
    loop = asyncio.get_running_loop()
    for n in range(1, 6):
        loop.call_later(0.03 * n, _progress, upstream, hello["params"]["_meta"]["progressToken"])

    loop.call_later(0.16, _answer, upstream, hello["id"], "after more than two timeouts")

    assert await _result(request) == "after more than two timeouts"


async def test_progress_does_not_extend_the_timeout_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "PROGRESS_EXTENDS_TO", 2)
    upstream = FakeUpstream()
    request = _request(link_to(upstream), params=_with_token(b'"t"'), caller=FakeCaller(), timeout_s=0.03)
    token = (await upstream.hears("tools/call"))["params"]["_meta"]["progressToken"]
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        _progress(upstream, token)
        if not request.done():
            loop.call_later(0.01, go_on)

    go_on()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await request


async def test_a_call_does_not_time_out_while_the_client_answers_a_question_of_the_upstream() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    other = _request(link_to(upstream), caller=FakeCaller(), timeout_s=0.02)
    request = _request(upstream.link, caller=caller, timeout_s=0.02)
    call = await upstream.hears("tools/call", times=2)
    _ask(upstream, 1, "elicitation/create")

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await other  # which waits for nobody
    caller.answer.set_result(frame(result=b"{}"))
    await upstream.hears("an answer")
    _answer(upstream, call["id"], "after the question")

    assert await _result(request) == "after the question"


async def test_a_call_that_waits_for_no_answer_any_more_may_time_out_again() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    request = _request(link_to(upstream), caller=caller, timeout_s=0.02)
    await upstream.hears("tools/call")
    _ask(upstream, 1, "elicitation/create")
    caller.answer.set_result(frame(result=b"{}"))
    await upstream.hears("an answer")

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await request


async def test_a_token_of_a_call_that_asked_to_be_a_task_and_was_none_is_forgotten() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    params = {**_with_token(b'"t"'), "task": b"{}"}
    request = _request(link_to(upstream), params=params, caller=caller)
    call = await upstream.hears("tools/call")
    _answer(upstream, call["id"], {"content": []})
    await _result(request)

    _progress(upstream, call["params"]["_meta"]["progressToken"])
    await settled()

    assert caller.told == []


# --- requests of the upstream --------------------------------------------------------------------------


def _ask(upstream: FakeUpstream, id: object, method: str = "sampling/createMessage") -> None:
    upstream.say({"jsonrpc": "2.0", "id": id, "method": method, "params": {"n": 1}})


@pytest.mark.parametrize("id", [3, "x", 0], ids=str)
async def test_a_ping_of_the_upstream_is_answered(id: Json) -> None:
    upstream = FakeUpstream()
    link_to(upstream)

    _ask(upstream, id, "ping")

    assert upstream.sent == [{"jsonrpc": "2.0", "id": id, "result": {}}]


@pytest.mark.parametrize("id", [b'"a"', b"0", b"1", b"1" + b"0" * 30, b'"\\u00e9\\""', b"1.50"], ids=bytes.decode)
async def test_a_request_of_the_upstream_is_answered_by_the_caller_with_the_upstreams_own_id(id: bytes) -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    _request(link_to(upstream), caller=caller)
    await upstream.hears("tools/call")

    upstream.say(b'{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"n": 1.50}}' % id)
    caller.answer.set_result(Frame(id=Raw(b"99"), result=Raw(b'{"action" : "accept"}')))
    await upstream.hears("an answer")

    assert [(asked.method, bytes(asked.params)) for asked in caller.asked] == [("elicitation/create", b'{"n": 1.50}')]
    assert upstream.lines[-1] == b'{"jsonrpc":"2.0","id":%s,"result":{"action" : "accept"}}\n' % id


async def test_a_callers_error_reaches_the_upstream() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    caller.answer.set_result(wire.error_frame(-1, "the user said no"))

    _ask(upstream, 1)

    answer = await upstream.hears("an answer")
    assert answer["error"] == {"code": -1, "message": "the user said no"}


async def test_a_request_of_the_upstream_goes_to_whoever_called_and_else_to_whoever_opened_the_link() -> None:
    upstream, home, caller = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream, home=home)
    request = _request(link, caller=caller)
    id = (await upstream.hears("tools/call"))["id"]

    _ask(upstream, "during the call")
    _answer(upstream, id, {})
    await request
    _ask(upstream, "after it")
    await settled()

    assert (len(caller.asked), len(home.asked)) == (1, 1)


async def test_a_request_that_nobody_takes_is_refused() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    _request(link)
    await upstream.hears("tools/call")

    _ask(upstream, "q", "roots/list")

    answer = await upstream.hears("an answer")
    assert (answer["id"], answer["error"]["code"]) == ("q", -32601)


async def test_requests_of_two_upstreams_with_equal_ids_do_not_mix() -> None:
    upstreams = [FakeUpstream(), FakeUpstream()]
    callers = [FakeCaller(), FakeCaller()]
    for upstream, caller in zip(upstreams, callers, strict=True):
        link_to(upstream, home=caller)
        _ask(upstream, 1)
    await settled()

    callers[1].answer.set_result(wire.result_frame(b'"second"'))
    await upstreams[1].hears("an answer")
    assert upstreams[0].sent == []

    callers[0].answer.set_result(wire.result_frame(b'"first"'))
    assert (await upstreams[0].hears("an answer"))["result"] == "first"
    assert [message["result"] for message in upstreams[1].sent] == ["second"]


async def test_a_second_request_with_an_id_that_is_in_flight_is_dropped() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    _ask(upstream, 1)
    _ask(upstream, 1)
    await settled()

    caller.answer.set_result(wire.result_frame(b"{}"))
    await settled()

    assert len(caller.asked) == 1
    assert upstream.sent == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_an_upstream_may_withdraw_its_request() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    _ask(upstream, "q")
    await settled()

    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
    await settled()

    assert caller.answer.cancelled()
    assert upstream.sent == []


async def test_the_id_of_a_request_withdrawn_in_the_same_breath_can_be_used_again() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    _ask(upstream, 1)
    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    await settled()

    caller.answer.set_result(wire.result_frame(b"{}"))
    _ask(upstream, 1)

    assert (await upstream.hears("an answer"))["id"] == 1


async def test_when_the_link_is_lost_nobody_is_asked_any_longer() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    _ask(upstream, "q")
    await settled()

    upstream.die()
    await settled()

    assert caller.answer.cancelled()
    assert upstream.sent == []


class Broken(FakeCaller):
    """A caller that raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def ask(self, frame: Frame, heard: Callable[[Frame], None]) -> Frame:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("client", "x"), -32602), (ValueError("a bug"), -32603)], ids=["on purpose", "a bug"]
)
async def test_when_asking_fails_the_upstream_is_told_and_the_link_lives(error: Exception, code: int) -> None:
    caller: Caller = Broken(error)
    upstream = FakeUpstream()
    link = link_to(upstream, home=caller)

    _ask(upstream, 1)

    assert (await upstream.hears("an answer"))["error"]["code"] == code
    assert link.loss is None


# --- notifications -------------------------------------------------------------------------------------


async def test_notifications_that_belong_to_no_call_go_to_the_group() -> None:
    upstream, ear, caller = FakeUpstream(), Ear(), FakeCaller()
    link_to(upstream, listener=ear, home=caller)

    upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "log"}})
    await settled()

    assert [frame.method for frame in ear.frames] == ["notifications/tools/list_changed", "notifications/message"]
    assert caller.told == []
