"""Progress reaches the caller that asked for it, under its own token, and keeps a call alive."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.errors import TimedOut
from dynamic_mcp.upstream import call as call_module
from tests.fake_parties import Ear, FakeCaller, link_to
from tests.fakes import BOUND_S, FakeUpstream, Json, frame, settled
from tests.upstream.linked import answer, ask, begin, pass_time, report, result_of, with_token

# --- progress --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", [b'"t"', b'"\\u00e9\\/ "', b"7", b"0", b"-1", b"1.0", b"1" + b"0" * 40, b'""'], ids=bytes.decode
)
async def test_a_progress_token_is_replaced_on_the_way_out_and_put_back_as_it_was(token: bytes) -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    begin(link_to(upstream), params=with_token(token), caller=caller)
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
        begin(link, params=with_token(b'"same"'), caller=caller)
    await upstream.hears("tools/call", times=2)
    tokens = [message["params"]["_meta"]["progressToken"] for message in upstream.heard("tools/call")]

    report(upstream, tokens[1], message="for bob")
    await settled()

    assert tokens[0] != tokens[1]
    assert ann.told == []
    assert [json.loads(bytes(frame.params))["message"] for frame in bob.told] == ["for bob"]


@pytest.mark.parametrize("token", ["unknown", 99, None, "1", 1.5, [1], "{missing}"], ids=str)
async def test_progress_with_an_unknown_token_is_dropped(token: Json) -> None:
    upstream, caller, ear = FakeUpstream(), FakeCaller(), Ear()
    link = link_to(upstream, listener=ear)
    begin(link, params=with_token(b'"t"'), caller=caller)
    await upstream.hears("tools/call")

    params = {"progress": 1} if token == "{missing}" else {"progress": 1, "progressToken": token}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    assert caller.told == ear.frames == []


async def test_progress_on_a_call_that_asked_for_none_is_dropped() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    begin(link_to(upstream), caller=caller)
    id = (await upstream.hears("tools/call"))["id"]

    report(upstream, id)

    assert caller.told == []


async def test_progress_after_the_answer_is_dropped() -> None:
    upstream, caller = FakeUpstream({"tools/call": {}}), FakeCaller()
    request = begin(link_to(upstream), params=with_token(b'"t"'), caller=caller)
    await result_of(request)

    report(upstream, upstream.sent[0]["params"]["_meta"]["progressToken"])

    assert caller.told == []


@pytest.mark.parametrize(
    "meta", [b"null", b"[]", b'"text"', b'{"trace":1}', b"{}"], ids=["null", "list", "string", "no token", "empty"]
)
async def test_meta_without_a_token_passes_as_it_is(meta: bytes) -> None:
    upstream = FakeUpstream()
    begin(link_to(upstream), params={"_meta": meta})
    await upstream.hears("tools/call")

    assert b'"_meta":' + meta + b"}" in upstream.lines[0]


async def test_progress_extends_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = FakeUpstream()
    request = begin(link_to(upstream), params=with_token(b'"t"'), caller=FakeCaller(), timeout_s=1000)
    hello = await upstream.hears("tools/call")
    for _ in range(3):
        pass_time(monkeypatch, 900)
        report(upstream, hello["params"]["_meta"]["progressToken"])
        await settled()

    answer(upstream, hello["id"], "after more than two timeouts")

    assert await result_of(request) == "after more than two timeouts"


async def test_progress_does_not_extend_the_timeout_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "PROGRESS_EXTENDS_TO", 2)
    upstream = FakeUpstream()
    request = begin(link_to(upstream), params=with_token(b'"t"'), caller=FakeCaller(), timeout_s=0.03)
    token = (await upstream.hears("tools/call"))["params"]["_meta"]["progressToken"]
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        report(upstream, token)
        if not request.done():
            loop.call_later(0.01, go_on)

    go_on()
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await request


async def test_a_call_does_not_time_out_while_the_client_answers_a_question_of_the_upstream() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    other = begin(link_to(upstream), caller=FakeCaller(), timeout_s=0.02)
    request = begin(upstream.link, caller=caller, timeout_s=0.02)
    call = await upstream.hears("tools/call", times=2)
    ask(upstream, 1, "elicitation/create")

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await other  # which waits for nobody
    caller.answer.set_result(frame(result=b"{}"))
    await upstream.hears("an answer")
    answer(upstream, call["id"], "after the question")

    assert await result_of(request) == "after the question"


async def test_when_a_client_has_answered_its_calls_have_their_whole_time_again_and_those_of_others_have_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream, asked, other = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream)
    for caller in (asked, other):
        begin(link, caller=caller, timeout_s=1000)
    await upstream.hears("tools/call", times=2)
    ask(upstream, 1, "elicitation/create")
    await settled()
    pass_time(monkeypatch, 900)

    [who] = [caller for caller in (asked, other) if caller.asked]
    who.answer.set_result(frame(result=b"{}"))
    await upstream.hears("an answer")
    await settled()

    left = [link.left_s(b"%d" % call["id"]) for call in upstream.heard("tools/call")]
    assert [each > 500 for each in left] == [who is asked, who is other]


async def test_a_call_that_waits_for_no_answer_any_more_may_time_out_again() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    request = begin(link_to(upstream), caller=caller, timeout_s=0.02)
    await upstream.hears("tools/call")
    ask(upstream, 1, "elicitation/create")
    caller.answer.set_result(frame(result=b"{}"))
    await upstream.hears("an answer")

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(TimedOut):
            await request


async def test_a_token_of_a_call_that_asked_to_be_a_task_and_was_none_is_forgotten() -> None:
    upstream, caller = FakeUpstream(), FakeCaller()
    params = {**with_token(b'"t"'), "task": b"{}"}
    request = begin(link_to(upstream), params=params, caller=caller)
    call = await upstream.hears("tools/call")
    answer(upstream, call["id"], {"content": []})
    await result_of(request)

    report(upstream, call["params"]["_meta"]["progressToken"])
    await settled()

    assert caller.told == []


async def test_a_client_that_is_gone_hears_no_more_of_its_tasks_and_another_of_its_own() -> None:
    upstream, gone, here = FakeUpstream(), FakeCaller(), FakeCaller()
    link = link_to(upstream)
    for number, caller in enumerate((gone, here), start=1):
        request = begin(link, params={**with_token(b'"t"'), "task": b"{}"}, caller=caller)
        call = await upstream.hears("tools/call", times=number)
        answer(upstream, call["id"], {"task": {"taskId": f"t{number}"}})
        await result_of(request)

    link.forget(gone)
    for call in upstream.heard("tools/call"):
        report(upstream, call["params"]["_meta"]["progressToken"])
    await settled()

    assert (len(gone.told), len(here.told)) == (0, 1)
