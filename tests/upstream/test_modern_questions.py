"""What a modern upstream needs to answer a call: legacy clients are asked, and the call is made again with it."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dynamic_mcp.client import Caller, ClientInfo
from dynamic_mcp.errors import InvalidArguments, LinkLost, ProtocolViolation, TimedOut, Unanswered
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.link import MAX_QUESTIONS
from tests.fake_parties import Ear, FakeCaller
from tests.fakes import BOUND_S, Json, settled
from tests.upstream.modern import (
    Client,
    ModernUpstream,
    begin_call,
    complete,
    in_turn,
    legacy_caller,
    meta_of,
    modern_caller,
    modern_link_to,
    result,
)

NAME: Json = {"method": "elicitation/create", "params": {"mode": "form", "message": "who?", "requestedSchema": {}}}
SAMPLE: Json = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
ROOTS: Json = {"method": "roots/list"}
DONE = complete(content=[])


def needing(state: str | None = "s", **requests: Json) -> dict[str, Json]:
    """Return a result that asks for input."""
    members = {"inputRequests": requests} if requests else {}
    return {"resultType": "input_required", **members, **({} if state is None else {"requestState": state})}


def echo(method: str, params: Json) -> Frame:
    return wire.result_frame({"said to": method})


def _params(upstream: ModernUpstream, call: int) -> dict[str, Json]:
    params: dict[str, Json] = upstream.heard("tools/call")[call]["params"]
    return {name: value for name, value in params.items() if name != "_meta"}


async def test_all_questions_are_asked_at_once_and_the_call_is_made_again_with_their_answers() -> None:
    upstream = ModernUpstream(**{"tools/call": in_turn(needing(a=NAME, b=SAMPLE, c=ROOTS), DONE)})
    client = Client(echo)

    assert await result(begin_call(await modern_link_to(upstream), client)) == {"content": []}

    assert sorted(frame.method for frame in client.asked) == sorted(each["method"] for each in (NAME, SAMPLE, ROOTS))
    first, second = upstream.heard("tools/call")
    assert first["id"] != second["id"]
    assert _params(upstream, 1) == {
        **_params(upstream, 0),
        "requestState": "s",
        "inputResponses": {
            "a": {"said to": "elicitation/create"},
            "b": {"said to": "sampling/createMessage"},
            "c": {"said to": "roots/list"},
        },
    }


async def test_what_is_asked_and_answered_keeps_its_bytes_and_the_state_too() -> None:
    asked = (
        b'{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"n": 1.50}}}'
    )
    answers = iter([asked + b', "requestState":"\\u00e9 \\/"}', json.dumps(DONE).encode()])
    upstream = ModernUpstream(**{"tools/call": lambda _: next(answers)})
    client = Client(lambda *_: Frame(result=Raw(b'{"action" : "accept"}')))

    await begin_call(await modern_link_to(upstream), client)

    assert bytes(client.asked[0].params) == b'{"n": 1.50}'
    assert b'"requestState":"\\u00e9 \\/"' in upstream.lines[-1]
    assert b'"inputResponses":{"a":{"action" : "accept"}}' in upstream.lines[-1]
    assert b'"arguments":{"n" : 1.50}' in upstream.lines[-1]


async def test_a_state_alone_is_given_back_at_once_and_no_state_where_there_was_none() -> None:
    results = in_turn(needing("one"), needing(None, a=NAME), DONE)
    upstream = ModernUpstream(**{"tools/call": results})

    assert await result(begin_call(await modern_link_to(upstream), Client(echo))) == {"content": []}

    assert _params(upstream, 1)["requestState"] == "one"
    assert "inputResponses" not in _params(upstream, 1)
    assert "requestState" not in _params(upstream, 2)


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_prompts_and_resources_may_ask_as_well(method: str) -> None:
    upstream = ModernUpstream(**{method: in_turn(needing(a=NAME), complete(x=1))})
    link = await modern_link_to(upstream)

    answer = await link.request(method, {}, timeout_s=5, caller=Client(echo))

    assert json.loads(bytes(answer.result)) == {"x": 1}


async def test_each_round_has_the_envelope_and_the_progress_token() -> None:
    upstream = ModernUpstream({"logging": {}}, **{"tools/call": in_turn(needing(a=NAME), DONE)})
    link = await modern_link_to(upstream)

    await begin_call(link, Client(echo), params={"_meta": Raw(b'{"progressToken":7}')})

    first, second = map(meta_of, upstream.heard("tools/call"))
    assert {**first, "progressToken": 0} == {**second, "progressToken": 0}
    assert first["progressToken"] != second["progressToken"]


async def test_a_modern_client_is_asked_by_the_answer_itself() -> None:
    upstream = ModernUpstream(**{"tools/call": needing(a=NAME)})

    assert await result(begin_call(await modern_link_to(upstream), modern_caller())) == needing(a=NAME)


async def test_an_error_of_the_second_round_is_the_answer() -> None:
    upstream = ModernUpstream(**{"tools/call": in_turn(needing(a=NAME))})
    del upstream.answers["tools/call"]
    call = begin_call(await modern_link_to(upstream), Client(echo))
    first = await upstream.hears("tools/call")
    upstream.say({"jsonrpc": "2.0", "id": first["id"], "result": needing(a=NAME)})
    second = await upstream.hears("tools/call", times=2)

    upstream.say({"jsonrpc": "2.0", "id": second["id"], "error": {"code": -32602, "message": "bad state"}})

    assert await result(call) == {"code": -32602, "message": "bad state"}


# --- what may not be asked -------------------------------------------------------------------------------


async def test_on_a_link_for_several_kinds_of_clients_one_is_asked_only_what_it_declared() -> None:
    upstream = ModernUpstream(**{"tools/call": needing(a=NAME)})
    link = await modern_link_to(upstream, hello=ClientInfo(capabilities=Raw(b'{"elicitation":{}}'), is_common=True))
    client = Client(echo)
    client.hello = ClientInfo(capabilities=Raw(b'{"roots":{}}'))

    with pytest.raises(Unanswered, match="which the client does not support"):
        await begin_call(link, client)

    assert client.asked == []


async def test_a_client_that_refuses_fails_the_call_and_is_quoted() -> None:
    upstream = ModernUpstream(**{"tools/call": needing(a=NAME)})
    client = Client(lambda *_: wire.error_frame(-1, "not now"))

    with pytest.raises(Unanswered, match=r"`t` needs the client to answer `elicitation/create`, .*: not now"):
        await begin_call(await modern_link_to(upstream), client)

    assert len(upstream.heard("tools/call")) == 1


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (SAMPLE, "`sampling/createMessage`"),
        (ROOTS, "`roots/list`"),
        ({"method": "elicitation/create", "params": {"mode": "url"}}, "`elicitation/create` with a URL"),
    ],
)
async def test_a_client_is_not_asked_what_it_has_not_declared(request_: Json, named: str) -> None:
    upstream = ModernUpstream(**{"tools/call": needing(a=request_)})
    client = Client(echo)
    link = await modern_link_to(upstream, hello=ClientInfo(capabilities=Raw(b'{"elicitation":{}}')))

    with pytest.raises(Unanswered, match=f"{named}, which the client does not support"):
        await begin_call(link, client)

    assert client.asked == []


async def test_an_elicitation_with_a_url_has_an_id_for_legacy_clients() -> None:
    url = {"method": "elicitation/create", "params": {"mode": "url", "message": "go", "url": "https://x.example"}}
    upstream = ModernUpstream(**{"tools/call": in_turn(needing(a=url), DONE)})
    client = Client(echo)
    link = await modern_link_to(upstream, hello=ClientInfo(capabilities=Raw(b'{"elicitation":{"url":{}}}')))

    await begin_call(link, client)

    assert wire.text(wire.member(client.asked[0].params, "elicitationId"))


@pytest.mark.parametrize(
    "odd",
    [
        needing(None),
        needing(a={"method": "ping"}),
        needing(a={"method": "tools/call", "params": {}}),
        needing(a=5),
        {"resultType": "input_required", "inputRequests": [NAME]},
    ],
    ids=str,
)
async def test_what_is_no_question_is_a_violation(odd: Json) -> None:
    upstream = ModernUpstream(**{"tools/call": odd})

    with pytest.raises(ProtocolViolation):
        await begin_call(await modern_link_to(upstream), Client(echo))


async def test_only_the_methods_that_the_protocol_names_may_ask() -> None:
    upstream = ModernUpstream(**{"completion/complete": needing(a=NAME), "tools/call": needing(a=NAME)})
    link = await modern_link_to(upstream)

    with pytest.raises(ProtocolViolation, match="asks for input to answer completion/complete"):
        await link.request("completion/complete", {}, timeout_s=5, caller=Client(echo))
    with pytest.raises(ProtocolViolation, match="asks for input"):
        await begin_call(link)


async def test_an_upstream_that_never_has_enough_is_given_up() -> None:
    upstream = ModernUpstream(**{"tools/call": needing(a=NAME)})

    with pytest.raises(ProtocolViolation, match="asked for input 11 times"):
        await begin_call(await modern_link_to(upstream), Client(echo))

    assert len(upstream.heard("tools/call")) == 11


# --- time ------------------------------------------------------------------------------------------------


async def _asked(caller: FakeCaller) -> None:
    async with asyncio.timeout(BOUND_S):
        while not caller.asked:
            await settled()


async def test_the_time_in_which_the_client_is_asked_does_not_count() -> None:
    upstream, caller = ModernUpstream(**{"tools/call": in_turn(needing(a=NAME), DONE)}), legacy_caller()
    call = begin_call(await modern_link_to(upstream), caller, timeout_s=0.05)
    await _asked(caller)

    await asyncio.wait([call], timeout=0.15)
    caller.answer.set_result(echo("", None))

    assert await result(call) == {"content": []}


async def test_all_rounds_together_take_no_longer_than_progress_may_extend_a_call() -> None:
    upstream, caller = ModernUpstream(**{"tools/call": needing(a=NAME)}), legacy_caller()
    call = begin_call(await modern_link_to(upstream), caller, timeout_s=0.002)

    with pytest.raises(TimedOut):
        async with asyncio.timeout(BOUND_S):
            await call


async def test_a_call_that_is_cancelled_withdraws_its_questions() -> None:
    class Asked(FakeCaller):
        withdrawn: str = ""

        async def ask(self, frame: Frame, on_status: object) -> Frame:
            self.asked.append(frame)
            try:
                return await self.answer
            except asyncio.CancelledError as exc:
                self.withdrawn = exc.args[0]
                raise

    upstream, caller = ModernUpstream(**{"tools/call": needing(a=NAME)}), Asked()
    link = await modern_link_to(upstream)
    call = begin_call(link, caller)
    await _asked(caller)
    assert link.is_asking()

    call.cancel("no longer")
    await asyncio.wait([call])
    await settled()

    assert caller.withdrawn == "no longer"
    assert not link.is_asking()
    assert len(upstream.heard("tools/call")) == 1


async def test_an_upstream_that_dies_while_the_client_is_asked_fails_the_call_which_is_not_repeated() -> None:
    upstream, caller = ModernUpstream(**{"tools/call": needing(a=NAME)}), legacy_caller()
    call = begin_call(await modern_link_to(upstream), caller)
    await _asked(caller)

    upstream.die()

    with pytest.raises(LinkLost, match="may have run") as raised:
        await call
    assert type(raised.value) is LinkLost  # and so nobody sends it again


async def test_a_question_that_must_not_be_asked_fails_the_call_and_says_why() -> None:
    class Refusing(Ear):
        def prepare_question(self, frame: Frame, caller: Caller) -> Frame:
            raise InvalidArguments("asks a person to open 'javascript:x'")

    upstream, client = ModernUpstream(**{"tools/call": needing(a=NAME)}), Client(echo)
    link = await modern_link_to(upstream, listener=Refusing())
    with pytest.raises(Unanswered, match="asks a person to open 'javascript:x'"):
        await begin_call(link, client)
    assert client.asked == []


async def test_one_call_asks_a_bounded_number_of_questions() -> None:
    many = {str(number): NAME for number in range(20)}
    upstream, client = ModernUpstream(**{"tools/call": needing(**many)}), Client(echo)
    with pytest.raises(ProtocolViolation, match=f"more than {MAX_QUESTIONS} questions"):
        await begin_call(await modern_link_to(upstream), client)
    assert len(client.asked) == 40
