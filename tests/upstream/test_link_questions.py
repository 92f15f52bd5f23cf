"""What an upstream asks reaches whoever called it, and the answer comes back under its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec import Raw

from dynamic_mcp.client import Caller
from dynamic_mcp.errors import NotFound
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.link import MAX_QUESTIONS
from tests.fake_parties import FakeCaller, link_to
from tests.fakes import FakeUpstream, Json, settled
from tests.upstream.linked import answer, ask, begin, result_of

# --- requests of the upstream ----------------------------------------------------------------------------


@pytest.mark.parametrize("id", [3, "x", 0], ids=str)
async def test_a_ping_of_the_upstream_is_answered(id: Json) -> None:
    upstream = FakeUpstream()
    link_to(upstream)

    ask(upstream, id, "ping")

    assert upstream.sent == [{"jsonrpc": "2.0", "id": id, "result": {}}]


@pytest.mark.parametrize("id", [b'"a"', b"0", b"1", b"1" + b"0" * 30, b'"\\u00e9\\""', b"1.50"], ids=bytes.decode)
async def test_a_request_of_the_upstream_is_answered_by_the_caller_with_the_upstreams_own_id(id: bytes) -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    begin(link_to(upstream), caller=caller)
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

    ask(upstream, 1)

    answer = await upstream.hears("an answer")
    assert answer["error"] == {"code": -1, "message": "the user said no"}


async def test_a_request_of_the_upstream_goes_to_whoever_called_and_else_to_whoever_opened_the_link() -> None:
    upstream, home, caller = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream, home=home)
    request = begin(link, caller=caller)
    id = (await upstream.hears("tools/call"))["id"]

    ask(upstream, "during the call")
    answer(upstream, id, {})
    await request
    ask(upstream, "after it")
    await settled()

    assert (len(caller.asked), len(home.asked)) == (1, 1)


async def test_a_request_that_nobody_takes_is_refused() -> None:
    upstream = FakeUpstream()
    link = link_to(upstream)
    begin(link)
    await upstream.hears("tools/call")

    ask(upstream, "q", "roots/list")

    answer = await upstream.hears("an answer")
    assert (answer["id"], answer["error"]["code"]) == ("q", -32601)


async def test_requests_of_two_upstreams_with_equal_ids_do_not_mix() -> None:
    upstreams = [FakeUpstream(), FakeUpstream()]
    callers = [FakeCaller(), FakeCaller()]
    for upstream, caller in zip(upstreams, callers, strict=True):
        link_to(upstream, home=caller)
        ask(upstream, 1)
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
    ask(upstream, 1)
    ask(upstream, 1)
    await settled()

    caller.answer.set_result(wire.result_frame(b"{}"))
    await settled()

    assert len(caller.asked) == 1
    assert upstream.sent == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_an_upstream_may_withdraw_its_request() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    ask(upstream, "q")
    await settled()

    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
    await settled()

    assert caller.answer.cancelled()
    assert upstream.sent == []


async def test_the_id_of_a_request_withdrawn_in_the_same_breath_can_be_used_again() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    ask(upstream, 1)
    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    await settled()

    caller.answer.set_result(wire.result_frame(b"{}"))
    ask(upstream, 1)

    assert (await upstream.hears("an answer"))["id"] == 1


async def test_a_request_that_comes_under_the_id_of_a_withdrawn_one_is_waited_for() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link = link_to(upstream, home=caller)
    ask(upstream, 1)
    await settled()
    withdrawn, caller.answer = caller.answer, asyncio.get_running_loop().create_future()

    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    ask(upstream, 1)
    await settled()

    assert (withdrawn.cancelled(), len(caller.asked), link.is_asking()) == (True, 2, True)
    caller.answer.set_result(wire.result_frame(b"{}"))
    assert (await upstream.hears("an answer"))["id"] == 1
    await settled()
    assert not link.is_asking()


async def test_a_request_is_withdrawn_also_while_the_proxy_asks_something_itself() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link = link_to(upstream, home=caller)
    own = begin(link, "prompts/list")
    id = (await upstream.hears("prompts/list"))["id"]
    ask(upstream, "q")
    await settled()

    upstream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
    answer(upstream, id, {"prompts": []})
    await settled()

    assert await result_of(own) == {"prompts": []}
    assert caller.answer.cancelled()


async def test_the_questions_of_one_call_are_not_counted_for_another() -> None:
    upstream, first, second = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream)
    for caller in (first, second):
        begin(link, caller=caller)
    await upstream.hears("tools/call", times=2)
    streams = [b"%d" % call["id"] for call in upstream.heard("tools/call")]

    for number in range(MAX_QUESTIONS):
        link.receive(b'{"jsonrpc":"2.0","id":"1-%d","method":"roots/list"}' % number, streams[0])
    for number in range(MAX_QUESTIONS):
        link.receive(b'{"jsonrpc":"2.0","id":"2-%d","method":"roots/list"}' % number, streams[1])
    link.receive(b'{"jsonrpc":"2.0","id":"too many","method":"roots/list"}', streams[1])
    await settled()

    assert (len(first.asked), len(second.asked)) == (MAX_QUESTIONS, MAX_QUESTIONS)
    assert [(message["id"], message["error"]["code"]) for message in upstream.heard("an answer")] == [
        ("too many", -32600)
    ]


async def test_when_the_link_is_lost_nobody_is_asked_any_longer() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    link_to(upstream, home=caller)
    ask(upstream, "q")
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

    ask(upstream, 1)

    assert (await upstream.hears("an answer"))["error"]["code"] == code
    assert link.loss is None
