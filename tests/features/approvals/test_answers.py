"""Only what a person can have meant, in the form of a client, allows a call."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.features.approvals.config import Approval
from tests.fakes import FakeUpstream, settled, text_of
from tests.features.approvals.scene import (
    ANSWERS,
    CAN_ASK,
    DONE,
    ONE,
    READ_S,
    Json,
    accept,
    answer,
    approving,
    begin,
    status_of,
)


async def test_allowed_once_is_asked_again_and_allowed_for_a_session_is_not() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        for times, decision in enumerate(("once", "session"), 1):
            calling = begin(client)
            await answer(on, client, accept(decision), times=times)
            assert await calling == DONE
        assert await client.call("up", "delete_file", {"path": "/two"}) == DONE
        calling = begin(client, "delete_all")
        await client.hears("elicitation/create", 3)
        calling.cancel()


@pytest.mark.parametrize("said", [accept("deny"), {"action": "decline"}, {"action": "cancel"}])
async def test_a_person_who_says_no_means_it(said: Json) -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await answer(on, client, said)
        assert "the user denied it" in text_of(await calling)
    assert upstream.heard("tools/call") == []


NO_PERSON: dict[str, Json] = {
    "accepts without content": {"action": "accept"},
    "accepts an empty form": {"action": "accept", "content": {}},
    "accepts with another member": {"action": "accept", "content": {"Decision": "once", "allow": True}},
    "accepts with a list": accept(["once"]),
    "accepts with a title": accept("Allow once"),
    "accepts with null": accept(None),
    "accepts at once": accept("once"),
    "accepts for a session at once": accept("session"),
    "accepts to deny at once": accept("deny"),
    "declines at once": {"action": "decline"},
    "cancels at once": {"action": "cancel"},
    "does something else": {"action": "allow", "content": {"decision": "once"}},
    "says nothing": {},
}


@pytest.mark.parametrize("case", NO_PERSON)
async def test_a_client_that_answers_without_a_person_is_not_asked_again_and_the_queue_is(case: str) -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await answer(on, client, NO_PERSON[case], after_s=0.9 if "at once" in case else READ_S)
        await on.waits()
        assert upstream.heard("tools/call") == []
        on.queue.allow("Q1")
        assert await calling == DONE
        calling = begin(client)
        await on.waits()
        assert len(client.heard("elicitation/create")) == 1
        calling.cancel()


async def test_a_client_that_accepts_at_once_has_approved_nothing_where_there_is_no_queue() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream, has_queue=False) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await answer(on, client, accept("session"), after_s=0.9)
        assert "cannot ask a person" in text_of(await calling)
        assert "cannot ask a person" in text_of(await client.call("up", "delete_file", ONE))
        assert len(client.heard("elicitation/create")) == 1
    assert upstream.heard("tools/call") == []


async def test_a_client_that_answers_at_once_leaves_other_clients_their_forms() -> None:
    async with approving() as on:
        hasty, other = await on.join(can=CAN_ASK), await on.join(can=CAN_ASK)
        calls = [begin(hasty)]
        await answer(on, hasty, accept("once"), after_s=0)
        await on.waits()
        calls.append(begin(other, "delete_all"))
        await answer(on, other, accept("once"))
        assert await calls[1] == DONE
        calls[0].cancel()


@pytest.mark.parametrize(("code", "is_asked_again"), [(-32601, False), (-32600, False), (-32603, True)])
async def test_a_client_that_answers_with_an_error_leads_to_the_queue(*, code: int, is_asked_again: bool) -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        question = await client.hears("elicitation/create")
        error = {"code": code, "message": "no"}
        client.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
        await on.waits()
        on.queue.allow("Q1")
        assert await calling == DONE
        calling = begin(client)
        await (client.hears("elicitation/create", 2) if is_asked_again else on.waits())
        assert len(client.heard("elicitation/create")) == 1 + is_asked_again
        calling.cancel()


@pytest.mark.parametrize("declared", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}, {"elicitation": None}])
async def test_a_client_that_shows_no_forms_is_not_asked(declared: Json) -> None:
    async with approving() as on:
        client = await on.join(can=declared)
        calling = begin(client)
        await on.waits()
        assert client.heard("elicitation/create") == []
        calling.cancel()


async def test_a_form_that_stays_open_is_withdrawn_and_the_call_waits_in_the_queue() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        question = await client.hears("elicitation/create")
        await on.clock.pass_(50)
        assert status_of(await calling)["status"] == "pending"
        assert (await client.hears("notifications/cancelled"))["params"]["requestId"] == question["id"]
        client.reply(question, accept("once"))
        await settled()
        assert list(on.queue.pending) == ["Q1"], "the answer came too late"


async def test_a_call_that_comes_again_can_be_answered_in_the_form_and_in_the_queue() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await client.hears("elicitation/create")
        await on.clock.pass_(50)
        await calling
        calling = begin(client)
        await client.hears("elicitation/create", 2)
        on.queue.allow("Q1")
        assert await calling == DONE
        await client.hears("notifications/cancelled", 2)


async def test_without_a_queue_a_form_that_nobody_answers_denies() -> None:
    async with approving(has_queue=False) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await client.hears("elicitation/create")
        await on.clock.pass_(50)
        assert "there was no answer in time" in text_of(await calling)


async def test_channels_are_used_as_configured() -> None:
    async with approving(approval=Approval(channels=("queue",))) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await on.waits()
        assert client.heard("elicitation/create") == []
        calling.cancel()
    async with approving(approval=Approval(channels=("client",))) as on:
        client = await on.join()
        assert "cannot ask a person" in text_of(await client.call("up", "delete_file", ONE))


async def test_two_equal_calls_show_one_form_and_one_of_them_is_made() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calls = [begin(client), begin(client)]
        await client.hears("elicitation/create")
        await settled()
        assert len(client.heard("elicitation/create")) == 1
        await answer(on, client, accept("once"))
        results = await asyncio.gather(*calls)
    assert sorted(result == DONE for result in results) == [False, True]
    assert len(upstream.heard("tools/call")) == 1


async def test_the_form_of_a_call_that_is_cancelled_is_taken_over_by_its_double() -> None:
    async with approving() as on:
        one, two = await on.join(can=CAN_ASK), await on.join(can=CAN_ASK)
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "delete_file", "args": ONE}}
        one.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params})
        await one.hears("elicitation/create")
        second = begin(two)
        await settled()
        assert two.heard("elicitation/create") == []
        one.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        await one.hears("notifications/cancelled")
        await answer(on, two, accept("once"))
        assert await second == DONE


async def test_a_client_that_goes_while_its_form_is_open_leaves_nothing() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await client.hears("elicitation/create")
        client.session.close()
        await settled()
        assert on.proxy.approvals is not None
        assert on.proxy.approvals.pending == 0
        calling.cancel()


async def test_the_tools_of_the_proxy_itself_cannot_approve() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        listed = json.dumps(await client.request("tools/list"))
    assert "approv" not in listed
