"""A link to a modern upstream: what each request says of the client, and what the client gets back."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.errors import NotSent, ProtocolViolation, TimedOut
from dynamic_mcp.mcp.revisions import MODERN
from tests.fake_parties import Ear
from tests.fakes import BOUND_S, settled
from tests.upstream.modern import (
    PREFIX,
    ModernUpstream,
    begin_call,
    complete,
    legacy_caller,
    meta_of,
    modern_caller,
    modern_link_to,
    result,
)

CONTENT = [{"type": "text", "text": "hi"}]

# --- what is sent ----------------------------------------------------------------------------------------


async def test_each_request_says_the_revision_the_client_and_its_capabilities() -> None:
    upstream = ModernUpstream(**{"tools/call": complete(content=CONTENT)})
    link = await modern_link_to(upstream)

    await begin_call(link, legacy_caller())

    for sent in upstream.sent:
        assert meta_of(sent)[f"{PREFIX}protocolVersion"] == "2026-07-28"
        assert meta_of(sent)[f"{PREFIX}clientInfo"] == {"name": "old", "version": "9"}
    assert [sent["method"] for sent in upstream.sent] == ["server/discover", "tools/call"]


async def test_a_legacy_clients_tasks_and_its_promise_to_report_roots_are_not_declared() -> None:
    upstream = ModernUpstream()
    await modern_link_to(upstream)

    declared = meta_of(upstream.sent[0])[f"{PREFIX}clientCapabilities"]

    assert declared == {"sampling": {}, "elicitation": {}, "roots": {}}


async def test_the_capabilities_of_a_modern_client_are_declared_word_for_word() -> None:
    upstream = ModernUpstream()
    capabilities = b'{"extensions": {"io.modelcontextprotocol/tasks": {}}, "roots": {"x": 1.50}}'

    await modern_link_to(upstream, hello=ClientInfo(MODERN, Raw(capabilities)))

    assert b'"roots":{"x": 1.50}' in upstream.lines[0]
    assert meta_of(upstream.sent[0])[f"{PREFIX}clientCapabilities"] == json.loads(capabilities)


async def test_on_a_link_for_several_kinds_of_clients_each_request_declares_what_its_own_client_can() -> None:
    upstream = ModernUpstream(**{"tools/call": complete(content=CONTENT)})
    hello = ClientInfo(capabilities=Raw(b'{"elicitation":{},"sampling":{}}'), is_common=True)
    link = await modern_link_to(upstream, hello=hello)
    old, new, plain = legacy_caller(), modern_caller(), modern_caller()
    new.hello = ClientInfo(MODERN, Raw(b'{"elicitation":{"url":{}}}'))

    for caller in (old, new, plain, new):
        await begin_call(link, caller)

    declared = [meta_of(sent)[f"{PREFIX}clientCapabilities"] for sent in upstream.sent]
    assert declared == [
        {"elicitation": {}, "sampling": {}},
        {"sampling": {}, "elicitation": {}, "roots": {}},
        {"elicitation": {"url": {}}},
        {},
        {"elicitation": {"url": {}}},
    ]
    assert {meta_of(sent)[f"{PREFIX}clientInfo"]["name"] for sent in upstream.sent} == {"dynamic-mcp"}


async def test_the_meta_of_a_client_stays_and_what_it_says_of_its_sender_is_replaced() -> None:
    upstream = ModernUpstream(**{"tools/call": complete()})
    link = await modern_link_to(upstream)
    meta = b'{"trace":"t","n":1.50,"%sclientInfo":{"name":"liar"},"%slogLevel":"debug"}' % ((PREFIX.encode(),) * 2)

    await begin_call(link, legacy_caller(), params={"_meta": Raw(meta)})

    sent = meta_of(upstream.sent[-1])
    assert (sent["trace"], sent[f"{PREFIX}clientInfo"]["name"]) == ("t", "old")
    assert f"{PREFIX}logLevel" not in sent
    assert b'"n":1.50' in upstream.lines[-1]
    assert b'"arguments":{"n" : 1.50}' in upstream.lines[-1]


async def test_progress_reaches_the_caller_with_its_own_token() -> None:
    upstream, caller = ModernUpstream(), legacy_caller()
    link = await modern_link_to(upstream)
    call = begin_call(link, caller, params={"_meta": Raw(b'{"progressToken":"mine"}')})
    sent = await upstream.hears("tools/call")

    progress = {"progressToken": meta_of(sent)["progressToken"], "progress": 1}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
    upstream.say({"jsonrpc": "2.0", "id": sent["id"], "result": complete()})
    await call

    assert [json.loads(bytes(frame.params))["progressToken"] for frame in caller.told] == ["mine"]


async def test_a_cancelled_request_is_cancelled_at_the_upstream() -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)
    call = begin_call(link, legacy_caller())
    sent = await upstream.hears("tools/call")

    call.cancel("enough")

    cancelled = await upstream.hears("notifications/cancelled")
    assert cancelled["params"] == {"requestId": sent["id"], "reason": "enough"}


@pytest.mark.parametrize("method", ["initialized", "roots/list_changed", "progress", "tasks/status"])
async def test_what_only_legacy_servers_are_told_is_not_sent(method: str) -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)

    link.notify(f"notifications/{method}", b"{}")

    assert [sent["method"] for sent in upstream.sent] == ["server/discover"]


async def test_a_notification_of_a_vendor_is_sent() -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)

    link.notify("notifications/com.example/x", b'{"n": 1.50}')

    assert upstream.lines[-1] == b'{"jsonrpc":"2.0","method":"notifications/com.example/x","params":{"n": 1.50}}\n'


# --- what comes back -------------------------------------------------------------------------------------

ANSWER = (
    b'{"resultType":"complete", "content": [1.50],"ttlMs":5,"cacheScope":"public","_meta":{"%sserverInfo":{},"x":1}}'
)
ANSWER %= PREFIX.encode()


async def test_a_modern_client_gets_results_as_they_came() -> None:
    upstream = ModernUpstream(**{"tools/call": ANSWER})
    link = await modern_link_to(upstream)

    answer = await begin_call(link, modern_caller())

    assert bytes(answer.result) == ANSWER


async def test_a_legacy_client_gets_results_as_legacy_servers_give_them() -> None:
    upstream = ModernUpstream(**{"tools/call": ANSWER})
    link = await modern_link_to(upstream)

    answer = await begin_call(link, legacy_caller())

    assert bytes(answer.result) == b'{"content":[1.50],"_meta":{"x":1}}'


async def test_the_proxy_itself_gets_results_with_the_hints_for_caches() -> None:
    upstream = ModernUpstream(**{"tools/call": ANSWER})
    link = await modern_link_to(upstream)

    assert await result(begin_call(link)) == {
        "content": [1.5],
        "ttlMs": 5,
        "cacheScope": "public",
        "_meta": {"x": 1},
    }


@pytest.mark.parametrize("caller", [legacy_caller, modern_caller, lambda: None])
async def test_an_error_reaches_everybody_as_it_came(caller: type) -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)
    call = begin_call(link, caller())
    sent = await upstream.hears("tools/call")

    upstream.say(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32021,"message":"m","data":[1.50]}}' % sent["id"])

    assert bytes((await call).error) == b'{"code":-32021,"message":"m","data":[1.50]}'


async def test_a_type_of_result_that_legacy_clients_do_not_know_is_a_violation() -> None:
    upstream = ModernUpstream(**{"tools/call": {"resultType": "task", "taskId": "1"}})
    link = await modern_link_to(upstream)

    assert (await result(begin_call(link, modern_caller())))["resultType"] == "task"
    with pytest.raises(ProtocolViolation, match="answered `t` with a result of the type `task`"):
        await begin_call(link, legacy_caller())


@pytest.mark.parametrize("answer", [b"[]", b"5", b"{}", b'{"resultType":5}'])
async def test_a_result_without_a_type_is_complete(answer: bytes) -> None:
    upstream = ModernUpstream(**{"tools/call": answer})
    link = await modern_link_to(upstream)

    assert await result(begin_call(link, legacy_caller())) in ([], 5, {})


async def test_a_request_of_a_modern_upstream_is_put_to_nobody() -> None:
    upstream, caller = ModernUpstream(), legacy_caller()
    link = await modern_link_to(upstream, listener=Ear(caller))
    call = begin_call(link, caller)
    await upstream.hears("tools/call")

    upstream.say({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
    await settled()

    assert caller.asked == []
    call.cancel()


# --- log levels ------------------------------------------------------------------------------------------


def _level(upstream: ModernUpstream) -> str | None:
    level: str | None = meta_of(upstream.sent[-1]).get(f"{PREFIX}logLevel")
    return level


async def test_legacy_clients_hear_log_messages_from_info_on_until_they_set_a_level() -> None:
    upstream = ModernUpstream({"logging": {}}, **{"tools/call": complete()})
    link = await modern_link_to(upstream)
    await begin_call(link, legacy_caller())
    assert _level(upstream) == "info"

    answer = await link.request("logging/setLevel", {"level": Raw(b'"error"')}, timeout_s=5)
    await begin_call(link, legacy_caller())

    assert bytes(answer.result) == b"{}"
    assert _level(upstream) == "error"
    assert upstream.heard("logging/setLevel") == []


async def test_a_server_without_log_messages_is_asked_for_none() -> None:
    upstream = ModernUpstream(**{"tools/call": complete()})

    await begin_call(await modern_link_to(upstream), legacy_caller())

    assert _level(upstream) is None


@pytest.mark.parametrize("level", ["", "debug"])
async def test_a_modern_request_names_its_own_level_or_none(level: str) -> None:
    upstream = ModernUpstream({"logging": {}}, **{"tools/call": complete()})
    link = await modern_link_to(upstream)
    await link.request("logging/setLevel", {"level": Raw(b'"error"')}, timeout_s=5)

    await begin_call(link, modern_caller(level))

    assert (_level(upstream) or "") == level


async def test_a_log_message_goes_where_the_calls_in_flight_say() -> None:
    upstream, ear = ModernUpstream(), Ear()
    link = await modern_link_to(upstream, listener=ear)
    call = begin_call(link, legacy_caller())
    await upstream.hears("tools/call")

    upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
    await settled()

    assert [frame.method for frame in ear.frames] == ["notifications/message"]
    call.cancel()


# --- is it there? ----------------------------------------------------------------------------------------


async def test_a_ping_becomes_a_question_that_modern_servers_know() -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)

    answer = await link.request("ping", timeout_s=5, caller=legacy_caller())

    assert bytes(answer.result) == b"{}"
    assert [sent["method"] for sent in upstream.sent] == ["server/discover", "server/discover"]


async def test_a_server_that_answers_is_alive_and_a_silent_one_is_not() -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)

    assert await link.is_alive(5)
    del upstream.answers["server/discover"]
    assert not await link.is_alive(0.01)


async def test_a_request_that_is_not_answered_times_out() -> None:
    link = await modern_link_to(ModernUpstream())

    with pytest.raises(TimedOut, match="`t` was not answered"):
        await begin_call(link, legacy_caller(), timeout_s=0.01)


async def test_a_link_that_was_closed_takes_nothing() -> None:
    upstream = ModernUpstream()
    link = await modern_link_to(upstream)

    async with asyncio.timeout(BOUND_S):
        await link.close()

    assert upstream.closed
    with pytest.raises(NotSent):
        await begin_call(link, legacy_caller())


async def test_the_end_of_the_upstream_is_the_end_of_the_link() -> None:
    upstream, ear = ModernUpstream(), Ear()
    link = await modern_link_to(upstream, listener=ear)

    upstream.die("the server exited with code 1")

    assert link.loss is not None
    assert [str(loss) for loss in ear.losses] == [str(link.loss)]
