"""A call that a person must allow waits in the queue, and is sent once if the person allows it."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.config.resolved import Share
from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.approvals.questions import DENIALS_WITHIN_S, MAX_DENIALS, MAX_OF_ONE_ASKER
from dynamic_mcp.features.guards.config import Guard
from tests.fakes import Client, FakeUpstream, Json, Opener, settled, text_of
from tests.features.approvals.scene import (
    ANSWERS,
    DONE,
    ONE,
    Scene,
    approving,
    begin,
    status_of,
    wait_in_vain,
)
from tests.policy.rules import access_of


async def test_a_call_waits_and_goes_on_when_it_is_allowed() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        calling = begin(client)
        pending = await on.waits()
        assert upstream.heard("tools/call") == []
        assert on.notified == [pending.id]
        assert on.queue.allow(pending.id) == ""
        assert await calling == DONE
        assert on.queue.pending == {}
    assert [each["params"]["arguments"] for each in upstream.heard("tools/call")] == [ONE]
    assert on.queue.is_closed


async def test_the_queue_shows_who_wants_what() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client, args='{"path": "/one", "token": "secret"}')
        pending = await on.waits()
        calling.cancel()
    assert (pending.subject, pending.issuer, pending.client) == ("ann", "token", client.session.hello.name)
    assert (pending.group, pending.kind, pending.name, pending.access) == ("up", "tool", "delete_file", "write")
    assert pending.description == "Deletes a file."
    assert json.loads(bytes(pending.arguments)) == {**ONE, "token": "secret"}
    assert any("JSON in a string" in note for note in pending.notes)
    assert pending.rule == "roles.dev[1]"
    assert (pending.roles, pending.allowed_by) == (("dev",), "roles.dev[1]")
    assert pending.offered == ("once", "hour", "session")
    assert (pending.held_until - pending.since, pending.expires - pending.since) == (50, 600)


ROLES: dict[str, list[dict[str, object]]] = {"dev": [{"tools": ["get_*"]}], "admin": [{}]}
APPROVE = access_of(approve={"up": ("delete_*",)}, roles=ROLES)


@pytest.mark.parametrize("roles", [(), ("dev",)])
async def test_approve_shows_and_offers_nothing_to_those_who_may_not_use_it(roles: tuple[str, ...]) -> None:
    answers: list[list[str]] = []
    for access in (APPROVE, access_of(roles=ROLES)):
        async with approving() as on:
            on.change(access=access)
            client = await on.join(roles=roles)
            listed = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}})
            answers.append([text_of(listed["result"]), text_of(await begin(client))])
            assert not on.is_queue_open
    assert answers[0] == answers[1]
    assert "delete_file" not in answers[0][0]


async def test_approve_asks_about_what_a_role_allows_and_the_queue_shows_which() -> None:
    async with approving() as on:
        on.change(access=APPROVE)
        client = await on.join(roles=("admin",))
        calling = begin(client)
        pending = await on.waits()
        assert (pending.rule, pending.roles, pending.allowed_by) == (
            "mcpServers.up.approve",
            ("admin",),
            "roles.admin[0]",
        )
        on.queue.allow(pending.id)
        assert await calling == DONE


async def test_a_right_that_is_lost_while_a_call_waits_is_lost_for_the_call() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        on.change(access=APPROVE)
        client = await on.join(roles=("admin",))
        calling = begin(client)
        await on.waits()
        on.change(access=access_of(approve={"up": ("delete_*",)}, roles={"admin": [{"tools": ["get_*"]}]}))
        assert (await calling)["isError"]
    assert upstream.heard("tools/call") == []


async def test_a_guard_that_asks_shows_the_rule_that_allows_the_call() -> None:
    guard = Guard("mcpServers.up.guards[0]", deny="/one", effect="ask")
    async with approving(rules=({},), call_rules={"guards": (guard,)}) as on:
        calling = begin(await on.join())
        pending = await on.waits()
        calling.cancel()
    assert (pending.rule, pending.roles, pending.allowed_by) == (guard.id, ("dev",), "roles.dev[0]")


async def test_a_remote_person_is_told_who_can_approve_and_no_command_that_cannot_work_there() -> None:
    async with approving() as on:
        client = await on.join()
        remote = text_of(await wait_in_vain(on, client))
    assert "only an administrator or an approver of this dynamic-mcp server can approve it" in remote
    assert "Q1" in remote
    assert "dynamic-mcp approve" not in remote


async def test_a_call_that_nobody_allows_in_time_says_how_to_go_on() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(is_local=True)
        result = await wait_in_vain(on, client)
        assert list(on.queue.pending) == ["Q1"], "it waits on"
    assert result["isError"]
    assert "dynamic-mcp approve allow Q1" in text_of(result)
    assert "again with the same arguments" in text_of(result)
    status = status_of(result)
    assert (status["id"], status["status"]) == ("Q1", "pending")
    assert status["expires"].endswith("Z")
    assert upstream.heard("tools/call") == []


async def test_a_call_that_comes_again_attaches_to_its_question() -> None:
    async with approving() as on:
        client = await on.join()
        await wait_in_vain(on, client)
        calling = begin(client, args={"path": "/one"})
        await settled()
        assert list(on.queue.pending) == ["Q1"]
        assert on.queue.put_count == 1
        on.queue.allow("Q1")
        assert await calling == DONE


async def test_what_was_allowed_meanwhile_is_used_by_the_repeated_call_and_by_no_other() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client, bob = await on.join(), await on.join(subject="bob")
        await wait_in_vain(on, client)
        on.queue.allow("Q1")

        others = [begin(bob), begin(client, args={"path": "/two"}), begin(client, "delete_all")]
        await on.waits(3)
        assert upstream.heard("tools/call") == []
        assert await client.call("up", "delete_file", ONE) == DONE
        again = begin(client)
        await on.waits(4)
        assert len(upstream.heard("tools/call")) == 1
        for each in [*others, again]:
            each.cancel()


async def test_one_approval_of_two_equal_calls_makes_one_of_them() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        one, two = await on.join(), await on.join()
        first = begin(one)
        await on.waits()
        second = begin(two)
        await settled()
        on.queue.allow("Q1")
        assert await first == DONE
        assert "used by another call" in text_of(await second)
    assert len(upstream.heard("tools/call")) == 1


async def test_approval_for_an_hour_lets_both_of_two_equal_calls_pass() -> None:
    async with approving() as on:
        client = await on.join()
        calls = [begin(client), begin(client)]
        await on.waits()
        await settled()
        on.queue.allow("Q1", "hour")
        assert await asyncio.gather(*calls) == [DONE, DONE]
        assert await client.call("up", "delete_file", {"path": "/two"}) == DONE
        on.clock.time += 3600
        calls = [begin(client)]
        await on.waits()
        calls[0].cancel()


async def test_approval_for_a_session_is_for_that_session_alone() -> None:
    async with approving() as on:
        one, two = await on.join(), await on.join()
        calling = begin(one)
        await on.waits()
        on.queue.allow("Q1", "session")
        assert await calling == DONE
        assert await one.call("up", "delete_file", {"path": "/two"}) == DONE
        other = begin(two)
        await on.waits()
        other.cancel()


async def test_approval_for_a_session_that_has_gone_does_not_count_and_the_question_stays() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        calling.cancel()
        client.session.close()
        await settled()
        assert "allow it once" in on.queue.allow("Q1", "session")
        assert "Q1" in on.queue.pending
        again = await on.join()
        on.queue.allow("Q1", "once")
        assert await again.call("up", "delete_file", ONE) == DONE


async def test_a_denial_and_its_reason_are_told() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.deny("Q1", "not today")
        result = await calling
    assert "the user denied it: not today" in text_of(result)
    assert upstream.heard("tools/call") == []


async def test_a_denial_is_told_to_the_repeated_call_and_the_next_one_asks_again() -> None:
    async with approving() as on:
        client = await on.join()
        await wait_in_vain(on, client)
        on.queue.deny("Q1")
        assert "the user denied it" in text_of(await client.call("up", "delete_file", ONE))
        calling = begin(client)
        assert (await on.waits()).id == "Q2"
        calling.cancel()


async def test_what_nobody_decides_is_gone_after_ten_minutes() -> None:
    async with approving() as on:
        client = await on.join()
        await wait_in_vain(on, client)
        await on.clock.pass_(550)
        assert on.queue.pending == {}
        assert on.notes.names[-1] == "approval.expired"
        assert on.queue.allow("Q1") != "", "it is too late"


async def test_a_call_that_waits_longer_than_its_question_is_denied_with_it() -> None:
    async with approving(approval=Approval(valid_for_s=10)) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        await on.clock.pass_(10)
        assert "there was no answer in time" in text_of(await calling)
        assert on.queue.pending == {}


async def test_an_approval_that_is_not_used_is_gone_after_ten_minutes() -> None:
    async with approving() as on:
        client = await on.join()
        await wait_in_vain(on, client)
        on.queue.allow("Q1")
        await on.clock.pass_(600)
        calling = begin(client)
        assert (await on.waits()).id == "Q2"
        calling.cancel()


async def flood(on: Scene, client: Client) -> list[asyncio.Task[dict[str, Json]]]:
    """Begin as many calls of a client as may wait, and see that no other one may."""
    calls = [begin(client, args={"path": str(number)}) for number in range(MAX_OF_ONE_ASKER)]
    await on.waits(MAX_OF_ONE_ASKER)
    assert "too many other calls wait" in text_of(await client.call("up", "delete_file", {"path": "more"}))
    return calls


async def test_only_so_many_calls_of_a_person_wait() -> None:
    async with approving() as on:
        client, bob = await on.join(), await on.join(subject="bob")
        calls = [*await flood(on, client), begin(bob)]
        await on.waits(MAX_OF_ONE_ASKER + 1)
        for each in calls:
            each.cancel()


async def test_a_window_of_the_local_user_that_floods_leaves_the_others_their_calls() -> None:
    async with approving() as on:
        flooding, other = Client(on.proxy), Client(on.proxy)
        for client in (flooding, other):
            await client.initialize()
        calls = [*await flood(on, flooding), begin(other)]
        await on.waits(MAX_OF_ONE_ASKER + 1)
        for each in calls:
            each.cancel()


async def test_what_was_denied_three_times_is_denied_at_once_for_a_while() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client, bob = await on.join(), await on.join(subject="bob")
        for number in range(MAX_DENIALS):
            calling = begin(client, args={"path": str(number)})
            pending = await on.waits()
            on.queue.deny(pending.id)
            await calling
        denied = text_of(await client.call("up", "delete_file", {"path": "/other"}))
        assert (
            "users have denied it 3 times within 10 minutes; for 10 min more, it is denied without asking" in denied
        )
        assert on.queue.put_count == MAX_DENIALS
        others = [begin(bob), begin(client, "delete_all")]
        await on.waits(2)
        on.clock.time += DENIALS_WITHIN_S
        others.append(begin(client))
        await on.waits(3)
        for each in others:
            each.cancel()
    assert upstream.heard("tools/call") == []


async def test_a_client_that_wants_progress_waits_longer_and_is_told_every_five_seconds() -> None:
    async with approving() as on:
        client = await on.join()
        meta = {"progressToken": "t"}
        calling = asyncio.create_task(client.call("up", "delete_file", ONE, _meta=meta))
        await on.waits()
        for _ in range(42):
            assert not calling.done()
            await on.clock.pass_(5)
        assert status_of(await calling)["status"] == "pending"
        told = [each["params"] for each in client.heard("notifications/progress")]
    assert len(told) >= 41
    assert {(each["progressToken"], each["message"]) for each in told} == {("t", "waiting for approval Q1")}
    steps = [each["progress"] for each in told]
    assert steps == sorted(set(steps))


async def test_a_call_that_waits_holds_no_place_of_the_server() -> None:
    async with approving(concurrency=1) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        assert await client.call("up", "get_file") == DONE
        on.queue.allow("Q1")
        assert await calling == DONE


async def test_a_question_outlives_the_call_that_was_cancelled() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "delete_file", "args": ONE}}
        client.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params})
        await on.waits()
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        await settled()
        on.queue.allow("Q1")
        assert upstream.heard("tools/call") == [], "nobody wants it now"
        assert await client.call("up", "delete_file", ONE) == DONE


async def test_a_queue_that_cannot_be_written_allows_nothing() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.is_broken = True
        refused = await client.call("up", "delete_all")
        assert "cannot ask a person" in text_of(refused)
        calling.cancel()


async def test_nothing_is_kept_of_a_call_whose_question_reached_nobody() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.is_broken = True
        for number in range(2 * MAX_OF_ONE_ASKER):
            assert "cannot ask a person" in text_of(await client.call("up", "delete_all", {"n": number}))
        calling.cancel()


async def test_a_call_that_is_cancelled_while_it_comes_to_the_queue_is_there_and_not_twice() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client, "delete_all")
        await on.waits()
        on.queue.gate.clear()
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "delete_file", "args": ONE}}
        client.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params})
        await settled()
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        again = begin(client)
        await settled()
        on.queue.gate.set()
        pending = await on.waits(2)
        assert on.queue.put_count == 2
        on.queue.allow(pending.id)
        assert await again == DONE
        calling.cancel()


async def test_what_one_session_may_do_with_a_server_of_its_own_no_other_session_may() -> None:
    async with approving(share=Share.SESSION) as on:
        one, two = await on.join(), await on.join()
        await wait_in_vain(on, one)
        on.queue.allow("Q1")
        other = begin(two)
        await on.waits()
        one.session.close()
        again = begin(await on.join())
        await on.waits(2)
        for each in (other, again):
            each.cancel()


async def test_a_resource_that_several_servers_may_have_says_that_it_waits() -> None:
    answers = {**ANSWERS, "resources/list": {"resources": []}}
    opener = Opener(up=[FakeUpstream(answers)], other=[FakeUpstream(answers)])
    async with approving(opener=opener) as on:
        on.add_group("other")
        client = await on.join()
        reading = asyncio.create_task(client.request("resources/read", {"uri": "x://unlisted"}))
        await on.waits(2)
        await on.clock.pass_(50)
        answer = await reading
        assert answer["error"]["data"]["dynamic-mcp/approval"]["status"] == "pending"
