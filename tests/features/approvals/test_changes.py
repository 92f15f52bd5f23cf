"""What a person changes is checked like a call, and what has changed since is not what the person has allowed."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.features.approvals.config import Approval
from tests.fakes import FakeUpstream, settled, text_of, tool
from tests.features.approvals.scene import (
    ANSWERS,
    DONE,
    ONE,
    RULES,
    Json,
    approving,
    begin,
    status_of,
    wait_in_vain,
)
from tests.policy.rules import access_of

# --- changed arguments -------------------------------------------------------------------------------------------


async def test_a_person_can_change_the_arguments_and_the_answer_says_so() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.allow("Q1", arguments={"path": "/two"})
        result = await calling
        seen = on.notes.ended[-1]
    assert upstream.heard("tools/call")[0]["params"]["arguments"] == {"path": "/two"}
    status = status_of(result)
    assert (status["status"], status["arguments"]) == ("changed", {"path": "/two"})
    assert "the user has changed the arguments" in status["note"]
    assert seen.approval is not None
    assert seen.approval.original is not None
    assert json.loads(bytes(seen.approval.original)) == ONE
    assert seen.params is not None
    assert json.loads(bytes(seen.params["arguments"])) == {"path": "/two"}


@pytest.mark.parametrize("arguments", [{"path": 7}, {}, {"path": "/x", "path2": 1, "path3": [1]}])
async def test_arguments_that_the_tool_does_not_take_are_refused_to_the_person_who_wrote_them(
    arguments: Json,
) -> None:
    upstream = FakeUpstream(ANSWERS)
    strict = {**ANSWERS["tools/list"]["tools"][1]["inputSchema"], "additionalProperties": False}
    upstream.answers["tools/list"] = {"tools": [tool("delete_file", inputSchema=strict)]}
    async with approving(upstream) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        assert "the arguments do not fit `delete_file`" in on.queue.allow("Q1", arguments=arguments)
        assert "Q1" in on.queue.pending
        on.queue.allow("Q1")
        assert await calling == DONE
    assert upstream.heard("tools/call")[0]["params"]["arguments"] == ONE


async def test_changed_arguments_that_the_rules_deny_are_refused_to_the_person() -> None:
    denial = {"tools": ["*"], "arguments": {"$.path": {"pattern": "/etc.*"}}, "effect": "deny"}
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream, rules=(*RULES, denial)) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        assert "do not allow `delete_file`" in on.queue.allow("Q1", arguments={"path": "/etc/passwd"})
        assert "Q1" in on.queue.pending
        on.queue.allow("Q1", arguments={"path": "/var"})
        assert status_of(await calling)["status"] == "changed"
    assert [each["params"]["arguments"] for each in upstream.heard("tools/call")] == [{"path": "/var"}]


async def test_changed_arguments_are_allowed_once_only() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        assert "once only" in on.queue.allow("Q1", "hour", {"path": "/two"})
        assert "Q1" in on.queue.pending
        calling.cancel()


@pytest.mark.parametrize("arguments", [b'{"path":"/a","path":"/b"}', b'{"path":"' + b"x" * 300_000 + b'"}'])
async def test_arguments_that_cannot_be_shown_as_they_are_understood_are_denied(arguments: bytes) -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join(only="up")
        answer = await client.exchange("tools/call", b'{"name":"delete_file","arguments":%s}' % arguments)
    assert b"was not approved" in answer
    assert upstream.heard("tools/call") == []


# --- what changes meanwhile --------------------------------------------------------------------------------------


async def test_other_rules_deny_what_waits_and_forget_what_was_allowed() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        await wait_in_vain(on, client)
        on.queue.allow("Q1")
        calling = begin(client, args={"path": "/two"})
        await on.waits()

        on.change(access=access_of(roles={"dev": [*RULES, {"servers": ["other"]}]}))

        assert "the config has changed" in text_of(await calling)
        assert on.queue.pending == {}
        calling = begin(client)
        assert (await on.waits()).id == "Q3"
        calling.cancel()
    assert upstream.heard("tools/call") == []


async def test_other_settings_count_from_then_on() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.change(approval=Approval(hold_s=5, remember=(), valid_for_s=60))
        assert "the config has changed" in text_of(await calling)
        calling = begin(client)
        pending = await on.waits()
        assert (pending.offered, pending.expires - pending.since) == (("once",), 60)
        await on.clock.pass_(5)
        assert status_of(await calling)["status"] == "pending"


async def test_a_reload_that_changes_neither_leaves_what_waits() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.change()
        on.queue.allow("Q1")
        assert await calling == DONE


async def test_another_definition_of_the_tool_is_not_what_was_allowed() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = await on.join()
        await wait_in_vain(on, client)
        on.queue.allow("Q1")
        waiting = begin(client, args={"path": "/two"})
        await on.waits()
        listed = len(upstream.heard("tools/list"))
        upstream.answers["tools/list"] = {"tools": [tool("delete_file", description="Deletes everything.")]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await upstream.hears("tools/list", listed + 1)
        await settled()

        on.queue.allow("Q2")
        assert "it has changed since" in text_of(await waiting)
        calling = begin(client)
        assert (await on.waits()).description == "Deletes everything."
        calling.cancel()
    assert upstream.heard("tools/call") == []
