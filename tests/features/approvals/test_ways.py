"""Whatever is asked about, and whichever way it is called: it waits, is counted, and observers are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.config.types import DirectTools
from tests.fakes import Client, FakeUpstream, settled, text_of
from tests.features.approvals.scene import (
    ANSWERS,
    CAN_ASK,
    DONE,
    ONE,
    RULES,
    Json,
    approving,
    begin,
    status_of,
)
from tests.policy.rules import access_of
from tests.proxy.windows import windows


@pytest.mark.parametrize(
    ("method", "params", "kind"),
    [
        ("prompts/get", {"name": "up__secret"}, "prompt"),
        ("resources/read", {"uri": "x://one"}, "resource"),
        ("tools/call", {"name": "up__delete_file", "arguments": ONE}, "tool"),
        ("tools/call", {"name": "delete_file", "arguments": ONE}, "tool"),
    ],
)
async def test_prompts_resources_and_listed_tools_wait_too(method: str, params: Json, kind: str) -> None:
    async with approving(direct=DirectTools(is_all=True)) as on:
        client = await on.join()
        asking = asyncio.create_task(client.request(method, params))
        pending = await on.waits()
        assert pending.kind == kind
        on.queue.allow(pending.id)
        assert "error" not in await asking


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "secret"}),
        ("resources/read", {"uri": "x://one"}),
        ("tools/call", {"name": "delete_file", "arguments": ONE}),
    ],
)
async def test_a_client_that_sees_one_group_alone_waits_too(method: str, params: Json) -> None:
    async with approving() as on:
        client = await on.join(only="up")
        asking = asyncio.create_task(client.request(method, params))
        pending = await on.waits()
        await on.clock.pass_(50)
        answer = await asking
        status = status_of(answer["result"] if method == "tools/call" else {"_meta": answer["error"]["data"]})
        assert status["id"] == pending.id
        on.queue.allow(pending.id)
        assert "error" not in await client.request(method, params)


# --- observers ---------------------------------------------------------------------------------------------------


async def test_observers_are_told_of_each_step_and_of_what_a_person_said() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        await on.clock.pass_(7)
        on.queue.allow("Q1")
        await calling
        assert on.notes.names == ["approval.requested", "approval.decided", "approval.consumed"]
        asked, decided, _ = on.notes.events
        assert asked.client is client.session
        assert asked.members["name"] == "delete_file"
        assert (decided.members["outcome"], decided.members["by"]) == ("allowed", "eve")
        note = on.notes.ended[-1].approval
        assert note is not None
        assert (note.id, note.outcome, note.by, note.channel, note.waited_s) == ("Q1", "allowed", "eve", "queue", 7)


async def test_observers_are_told_why_nobody_was_asked() -> None:
    async with approving(has_queue=False) as on:
        client = await on.join(only="up")
        await client.request("tools/call", {"name": "delete_file", "arguments": ONE})
        await client.exchange("tools/call", b'{"name":"delete_file","arguments":{"a":1,"a":2}}')
        notes = on.notes.approvals
    assert [(note.id, note.outcome) for note in notes] == [("", "denied"), ("", "denied")]
    assert "cannot ask" in notes[0].reason
    assert "more than one way" in notes[1].reason


async def test_observers_are_told_why_a_call_was_denied_that_a_person_has_not_denied() -> None:
    async with approving() as on:
        one, two = await on.join(), await on.join()
        first = begin(one)
        await on.waits()
        second = begin(two)
        await settled()
        on.queue.allow("Q1")
        await asyncio.gather(first, second)
        third = begin(one)
        pending = await on.waits()
        on.queue.deny(pending.id, "not today")
        await third
    told = {(note.id, note.outcome, note.reason) for note in on.notes.approvals}
    assert told == {
        ("Q1", "allowed", ""),
        ("Q1", "denied", "the approval was used by another call with the same arguments"),
        ("Q2", "denied", "not today"),
    }


async def test_a_subscription_that_a_person_would_be_asked_about_is_refused_and_says_what_to_do() -> None:
    hello = {**ANSWERS["initialize"], "capabilities": {"resources": {"subscribe": True}}}
    upstream = FakeUpstream({**ANSWERS, "initialize": hello})
    async with approving(upstream) as on:
        client = await on.join()
        answer = await client.request("resources/subscribe", {"uri": "x://one"})
    said = answer["error"]["message"]
    assert "`resources/subscribe` of group `up`" in said
    assert "read the resource whenever you need it: a person is asked then" in said
    assert upstream.heard("resources/subscribe") == []


async def test_what_is_pending_and_what_was_decided_is_counted() -> None:
    async with approving() as on:
        client = await on.join()
        calls = [begin(client, args={"path": str(number)}) for number in range(3)]
        await on.waits(3)
        approvals = on.proxy.approvals
        assert approvals is not None
        assert approvals.pending == 3
        on.queue.allow("Q1")
        on.queue.deny("Q2")
        assert approvals.pending == 1
        assert dict(approvals.outcomes) == {"allowed": 1, "denied": 1}
        calls[2].cancel()
        await asyncio.gather(*calls[:2])


async def test_without_a_rule_that_asks_there_is_nothing_to_ask_with() -> None:
    async with approving(rules=({},)) as on:
        client = await on.join()
        assert on.proxy.approvals is None
        assert await client.call("up", "delete_file", ONE) == DONE
        on.change(access=access_of(roles={"dev": list(RULES)}))
        calling = begin(client)
        await on.waits()
        calling.cancel()


async def test_without_any_way_to_ask_the_call_is_refused_at_once() -> None:
    async with approving(has_queue=False) as on:
        client = await on.join()
        refused = text_of(await client.call("up", "delete_file", ONE))
        assert "`delete_file` of group `up` needs approval, and this client cannot ask a person" in refused


async def test_the_end_of_the_proxy_denies_what_waits() -> None:
    async with approving() as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        await on.proxy.close()
        assert "dynamic-mcp has ended" in text_of(await calling)


async def test_a_guard_asks_in_a_window_of_a_daemon_which_has_no_servers_of_its_own(tmp_path: Path) -> None:
    guarded = {"command": "server", "guards": [{"deny": "secret", "effect": "ask"}]}
    async with windows(tmp_path, guarded) as on:
        client = Client(on.proxy, await on.workspaces.enter("/work", {}))
        await client.initialize(capabilities=CAN_ASK)
        calling = asyncio.create_task(client.call("s0", "echo", {"text": "a secret"}))
        question = await client.hears("elicitation/create")
        calling.cancel()
    assert "Allow tool `echo` of `s0`?" in question["params"]["message"]
