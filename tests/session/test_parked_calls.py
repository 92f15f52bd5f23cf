"""A legacy server asks in the middle of a call: its modern client is answered `input_required`, and comes back."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.proxy.parked_calls import MAX_OF_ONE_PRINCIPAL, ParkedCalls
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observer, Observers
from tests.fakes import FakeUpstream, FullUpstream, Json, Opener, config_of, group_config, settled, text_of
from tests.modern_client import ModernClient, call_of, modern_client_of, retry_of
from tests.upstreams import full_offers as offers

INVALID = -32602
FORM = {"action": "accept", "content": {"ok": True}}


async def test_a_question_is_answered_with_a_retry_and_the_call_goes_on() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        (question,) = asked["result"]["inputRequests"].values()
        answered = await client.call("a", "elicit", **retry_of(asked, FORM))
    assert asked["result"]["resultType"] == "input_required"
    assert question["method"] == "elicitation/create"
    sent = json.loads(upstream.server.filled(offers.ELICIT, key=b'"1"'))
    assert question["params"] == {
        **sent,
        "message": f"a asks: {sent['message']}",
        "_meta": {**sent.get("_meta", {}), "dynamic-mcp/group": "a"},
    }
    assert json.loads(text_of(answered["result"]))["result"] == FORM
    assert answered["result"]["resultType"] == "complete"
    assert len(upstream.heard("tools/call")) == 1


@pytest.mark.parametrize(
    ("tool", "method", "response"),
    [
        (
            "sample",
            "sampling/createMessage",
            {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        ),
        ("roots", "roots/list", {"roots": [{"uri": "file:///x"}]}),
        ("elicit_url", "elicitation/create", {"action": "decline"}),
    ],
)
async def test_every_kind_of_question_gets_its_answer(tool: str, method: str, response: Json) -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        asked = await client.call("a", tool)
        answered = await client.call("a", tool, **retry_of(asked, response))
    assert [each["method"] for each in asked["result"]["inputRequests"].values()] == [method]
    assert json.loads(text_of(answered["result"]))["result"] == response


async def test_questions_that_come_together_are_one_round_and_may_be_answered_one_after_another() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        heard: list[bytes] = []
        for _ in range(3):
            upstream.server.ask("roots/list", b"{}", heard.append)
        asked = await client.answer_to(id)
        first, *rest = asked["result"]["inputRequests"]
        again = await client.call("a", "wait", {"key": "k"}, **retry_of(asked, **{first: {"roots": []}}))
        assert list(again["result"]["inputRequests"]) == rest
        last = client.begin_call("a", "wait", {"key": "k"}, **retry_of(again, {"roots": []}))
        await upstream.hears("an answer", 3)
        upstream.server.answer_text(upstream.server.held["k"], "done")
        assert text_of((await client.answer_to(last))["result"]) == "done"
    assert len(heard) == 3


async def test_a_call_may_ask_in_several_rounds() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        for number in range(1, 4):
            upstream.server.ask("roots/list", b"{}", lambda line: None)
            asked = await client.answer_to(id)
            id = client.begin_call("a", "wait", {"key": "k"}, **retry_of(asked, {"roots": []}))
            await upstream.hears("an answer", number)
        upstream.server.answer_text(upstream.server.held["k"], "done")
        assert text_of((await client.answer_to(id))["result"]) == "done"


async def test_what_the_client_did_not_declare_is_refused_upstream_and_not_asked() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as whole:
        client = ModernClient(whole.server, capabilities={"roots": {}})
        answered = await client.call("a", "elicit")
    assert json.loads(text_of(answered["result"]))["error"]["code"] == -32601


async def test_an_answer_that_is_no_object_or_was_not_asked_for_is_asked_again() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        asked = await client.call("a", "elicit")
        (key,) = asked["result"]["inputRequests"]
        again = await client.call("a", "elicit", **retry_of(asked, **{key: 12345, "other": FORM}))
        assert list(again["result"]["inputRequests"]) == [key]
        assert again["result"]["requestState"] != asked["result"]["requestState"]
        answered = await client.call("a", "elicit", **retry_of(again, FORM))
    assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_a_server_that_answers_while_its_call_is_parked_is_heard_with_the_retry() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        upstream.server.answer_text(upstream.server.held["1"], "without you")
        await settled()
        answered = await client.call("a", "elicit", **retry_of(asked, FORM))
    assert text_of(answered["result"]) == "without you"


async def test_a_server_that_dies_while_its_call_is_parked_is_told_with_the_retry() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        upstream.die()
        await settled()
        answered = await client.call("a", "elicit", **retry_of(asked, FORM))
    assert answered["result"]["isError"]
    assert "may have run" in text_of(answered["result"])
    assert len(upstream.heard("tools/call")) == 1


async def test_a_retry_that_is_cancelled_cancels_the_call_upstream() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        upstream.server.ask("roots/list", b"{}", lambda line: None)
        asked = await client.answer_to(id)
        retry = client.begin_call("a", "wait", {"key": "k"}, **retry_of(asked, {"roots": []}))
        await upstream.hears("an answer")
        client.cancel(retry)
        await upstream.hears("notifications/cancelled")


async def test_a_url_that_has_to_be_visited_first_is_asked_and_then_the_call_is_made_again() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "need_url")
        (question,) = asked["result"]["inputRequests"].values()
        again = await client.call("a", "need_url", **retry_of(asked, {"action": "accept"}))
        assert again["result"]["resultType"] == "input_required"
        declined = await client.call("a", "need_url", **retry_of(again, {"action": "decline"}))
    assert question["params"]["mode"] == "url"
    assert declined["result"]["isError"]
    assert "open http" in text_of(declined["result"])
    assert len(upstream.heard("tools/call")) == 2


# --- states that are refused -------------------------------------------------------------------------------------


async def refused_states(client: ModernClient, upstream: FakeUpstream, state: str, **params: Json) -> dict[str, Json]:
    """Retry with this state; return the error, once it is certain that the server heard nothing."""
    calls = len(upstream.heard("tools/call"))
    answer = await client.call("a", "elicit", **{"requestState": state, "inputResponses": {}, **params})
    await settled()
    assert len(upstream.heard("tools/call")) == calls
    assert not upstream.heard("an answer")
    error: dict[str, Json] = answer["error"]
    assert error["code"] == INVALID
    return error


@pytest.mark.parametrize("at", [12, 20, 30, 45, -1, -2, -3])
async def test_a_state_that_was_tampered_with_is_refused(at: int) -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        state = (await client.call("a", "elicit"))["result"]["requestState"]
        changed = list(state)
        changed[at] = "A" if state[at] != "A" else "B"
        await refused_states(client, upstream, "".join(changed))


@pytest.mark.parametrize("state", ["", "x", "dynamic-mcp.", "dynamic-mcp.00.AAAA", "dynamic-mcp." + "A" * 5000, "é"])
async def test_a_state_that_nobody_has_given_is_refused_by_a_server_that_gives_none(state: str) -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        await client.call("a", "plain")
        await refused_states(client, upstream, state)


async def test_a_state_that_nobody_has_given_is_refused_also_where_requests_are_observed() -> None:
    upstream = FullUpstream()
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream]))
    proxy.observers = Observers([Observer()])
    try:
        client = ModernClient(proxy)
        await client.call("a", "plain")
        await refused_states(client, upstream, "x")
    finally:
        await proxy.close()


async def test_a_state_is_good_once() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        await client.call("a", "elicit", **retry_of(asked, FORM))
        answer = await client.call("a", "elicit", **retry_of(asked, FORM))
    assert answer["error"]["data"] == {"reason": "used"}
    assert len(upstream.heard("tools/call")) == 1


async def test_a_state_of_an_earlier_round_is_refused() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        asked = await client.call("a", "elicit")
        again = await client.call("a", "elicit", **retry_of(asked, nothing={}))
        answer = await client.call("a", "elicit", **retry_of(asked, FORM))
        assert answer["error"]["code"] == INVALID
        answered = await client.call("a", "elicit", **retry_of(again, FORM))
    assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_a_state_is_for_its_request_alone() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit", {"key": "1"})
        state = asked["result"]["requestState"]
        for other in (call_of("a", "elicit", {"key": "2"}), call_of("a", "plain")):
            answer = await client.request("tools/call", {**other, "requestState": state, "inputResponses": {}})
            assert answer["error"]["code"] == INVALID
        answered = await client.call("a", "elicit", {"key": "1"}, **retry_of(asked, FORM))
    assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_a_state_is_for_its_principal_alone() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        other = ModernClient(
            client.server, authentication=Authentication(Principal("issuer", "somebody else"), "bearer")
        )
        await refused_states(other, upstream, asked["result"]["requestState"])
        twin = ModernClient(client.server)
        answered = await twin.call("a", "elicit", **retry_of(asked, FORM))
    assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_a_state_of_all_groups_together_is_none_of_one_group_alone() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        asked = await client.call("a", "elicit")
        await refused_states(ModernClient(client.server, only="a"), upstream, asked["result"]["requestState"])


async def test_a_state_of_a_process_that_has_ended_says_so() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as before:
        state = (await before.call("a", "elicit"))["result"]["requestState"]
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as after:
        error = await refused_states(after, upstream, state)
    assert error["data"] == {"reason": "restarted"}
    assert "again without" in error["message"]


async def test_a_call_whose_client_does_not_come_back_is_cancelled_upstream() -> None:
    upstream = FullUpstream()
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream]))
    proxy.parked_calls = ParkedCalls(parked_for_s=0.01)
    client = ModernClient(proxy)
    asked = await client.call("a", "elicit")
    await upstream.hears("notifications/cancelled")
    answer = await client.call("a", "elicit", **retry_of(asked, FORM))
    await proxy.close()
    assert answer["error"]["data"] == {"reason": "expired"}


async def test_a_principal_has_a_bounded_number_of_calls_that_wait_for_answers() -> None:
    names = [f"g{number}" for number in range(MAX_OF_ONE_PRINCIPAL + 1)]
    opener = Opener(**{name: [FullUpstream()] for name in names})
    async with modern_client_of(opener) as client:
        asked = [await client.call(name, "elicit") for name in names[:-1]]
        refused = await client.call(names[-1], "elicit")
        assert "too many calls wait" in text_of(refused["result"])
        await client.call(names[0], "elicit", **retry_of(asked[0], FORM))
        now = await client.call(names[-1], "elicit")
    assert now["result"]["resultType"] == "input_required"


# --- whose question it is --------------------------------------------------------------------------------------


async def test_a_question_that_could_be_about_two_calls_is_refused_and_from_then_on_calls_take_turns() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        both = [client.begin_call("a", "wait", {"key": key}) for key in ("x", "y")]
        await upstream.hears("tools/call", 2)
        refused = asyncio.get_running_loop().create_future()
        upstream.server.ask("roots/list", b"{}", refused.set_result)
        assert b"-32601" in await refused
        for key in ("x", "y"):
            upstream.server.answer_text(upstream.server.held[key], "done")
        for id in both:
            await client.answer_to(id)

        running = client.begin_call("a", "wait", {"key": "z"})
        await upstream.hears("tools/call", 3)
        waiting = client.begin_call("a", "plain")
        await settled()
        assert len(upstream.heard("tools/call")) == 3
        upstream.server.answer_text(upstream.server.held["z"], "done")
        await client.answer_to(running)
        await client.answer_to(waiting)
    assert len(upstream.heard("tools/call")) == 4


async def test_a_call_whose_client_thinks_holds_up_no_other_and_goes_on_when_that_is_done() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        first = await client.call("a", "elicit", {"key": "1"})
        await client.call("a", "elicit", {"key": "1"}, **retry_of(first, FORM))  # from now on calls take turns
        asked = await client.call("a", "elicit", {"key": "2"})
        assert text_of((await client.call("a", "plain"))["result"])
        running = client.begin_call("a", "wait", {"key": "z"})
        await upstream.hears("tools/call", 4)
        back = client.begin_call("a", "elicit", {"key": "2"}, **retry_of(asked, FORM))
        await settled()
        assert len(upstream.heard("an answer")) == 1
        upstream.server.answer_text(upstream.server.held["z"], "done")
        await client.answer_to(running)
        answered = await client.answer_to(back)
    assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_two_calls_that_ask_at_once_are_asked_one_after_another_and_both_answered() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        first = await client.call("a", "elicit")
        await client.call("a", "elicit", **retry_of(first, FORM))  # from now on calls take turns
        both = [client.begin_call("a", "elicit", {"key": key}) for key in ("first-key", "second-key")]
        asked = [await client.answer_to(id) for id in both]
        for key, each in zip(("first-key", "second-key"), asked, strict=True):
            (question,) = each["result"]["inputRequests"].values()
            assert key in json.dumps(question)
            answered = await client.call("a", "elicit", {"key": key}, **retry_of(each, FORM))
            assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_three_answers_at_once_take_one_turn() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        first = await client.call("a", "elicit")
        await client.call("a", "elicit", **retry_of(first, FORM))
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call", 2)
        heard: list[bytes] = []
        for _ in range(3):
            upstream.server.ask("roots/list", b"{}", heard.append)
        asked = await client.answer_to(id)
        running = client.begin_call("a", "wait", {"key": "z"})
        await upstream.hears("tools/call", 3)
        back = client.begin_call("a", "wait", {"key": "k"}, **retry_of(asked, {"roots": []}))
        await settled()
        upstream.server.answer_text(upstream.server.held["z"], "done")
        await client.answer_to(running)
        await upstream.hears("an answer", 4)
        upstream.server.answer_text(upstream.server.held["k"], "done")
        await client.answer_to(back)
    assert len(heard) == 3


async def test_a_call_that_fails_for_want_of_a_capability_says_which() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as whole:
        client = ModernClient(whole.server, capabilities={})
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        refused = asyncio.get_running_loop().create_future()
        upstream.server.ask("elicitation/create", offers.ELICIT, refused.set_result, key=b'"1"')
        await refused
        held = upstream.server.held["k"]
        upstream.say(b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no"}}' % held.id)
        error = (await client.answer_to(id))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"elicitation": {}}
    assert "no" in text_of(error["data"]["result"])


async def test_roots_outside_of_a_call_come_from_the_config() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream]), roots=("file:///srv/work",)) as client:
        await client.call("a", "plain")
        heard = asyncio.get_running_loop().create_future()
        upstream.server.ask("roots/list", b"{}", heard.set_result)
        assert json.loads(await heard)["result"] == {"roots": [{"uri": "file:///srv/work"}]}
        nothing = asyncio.get_running_loop().create_future()
        upstream.server.ask("sampling/createMessage", b"{}", nothing.set_result)
        assert json.loads(await nothing)["error"]["code"] == -32601
