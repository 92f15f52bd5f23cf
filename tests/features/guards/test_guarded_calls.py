"""Guards on the way of a call: what they refuse is not sent, and what they ask about waits for a person."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.features.guards.config import Guard
from tests.fakes import BOUND_S, FakeUpstream, Json, group_config, text_of
from tests.features.approvals.scene import (
    ANSWERS,
    CAN_ASK,
    DONE,
    ONE,
    RULES,
    Scene,
    accept,
    answer,
    approving,
    begin,
    status_of,
)
from tests.modern_client import retry_of

ETC = Guard("mcpServers.up.guards[0]", deny="^/etc", message="`/etc` is not for you")
ASK = Guard("mcpServers.up.guards[1]", tools=("delete_*",), path="$.path", deny="one", effect="ask")
VAR = Guard("mcpServers.up.guards[2]", deny="var", effect="ask")
GUARDS = (ETC, ASK, VAR)


@contextlib.asynccontextmanager
async def guarded(upstream: FakeUpstream, **options: Any) -> AsyncIterator[Scene]:  # Any: those of `approving`
    """Run a proxy with these guards, and without access rules unless there are some."""
    async with approving(upstream, call_rules={"guards": GUARDS}, **{"rules": None, **options}) as on:
        yield on


def sent(upstream: FakeUpstream) -> list[Json]:
    return [each["params"]["arguments"] for each in upstream.heard("tools/call")]


async def test_what_a_guard_refuses_is_not_sent_and_its_rule_is_noted() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join()
        result = await client.call("up", "get_file", {"path": "/etc/passwd"})
        seen = on.notes.ended[-1]
        assert await client.call("up", "get_file", ONE) == DONE
    assert result["isError"]
    assert "`/etc` is not for you; nothing was sent" in text_of(result)
    assert (seen.decision, seen.rule, seen.outcome.error_type) == ("deny", ETC.id, "RefusedByGuard")
    assert sent(upstream) == [ONE]


async def test_a_client_of_one_server_alone_is_guarded_too() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join(only="up")
        for params in (
            {"name": "get_file", "arguments": {"path": "/etc"}},
            {"name": "get_file", "arguments": {"path": "/x"}, "Arguments": {"path": "/etc"}},
            {"name": ["get_file"], "arguments": {"path": "/etc"}},
            {"name": "get_file", "arguments": ["/etc"]},
        ):
            answer = await client.request("tools/call", params)
            assert "error" in answer or answer["result"]["isError"]
    assert sent(upstream) == []


async def test_a_form_asks_about_what_a_guard_finds() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = begin(client)
        shown = await answer(on, client, accept("once"))
        assert await calling == DONE
        assert f"Rule: {ASK.id}" in shown["message"]
        seen = on.notes.ended[-1]
    assert (seen.decision, seen.rule) == ("ask", ASK.id)
    assert sent(upstream) == [ONE]


async def test_a_modern_client_is_asked_about_what_a_guard_finds() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = on.join_modern(can=CAN_ASK)
        asked = await client.call("up", "delete_file", ONE)
        assert f"Rule: {ASK.id}" in json.dumps(asked["result"]["inputRequests"])
        await on.clock.pass_(3)
        changed = await client.call("up", "delete_file", {"path": "/etc"}, **retry_of(asked, accept("once")))
        assert "error" in changed
        done = await client.call("up", "delete_file", ONE, **retry_of(asked, accept("once")))
        assert text_of(done["result"]) == "done"
    assert sent(upstream) == [ONE]


async def test_the_queue_has_what_a_guard_asks_about() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join()
        calling = begin(client)
        pending = await on.waits()
        assert (pending.rule, json.loads(bytes(pending.arguments))) == (ASK.id, ONE)
        on.queue.deny("Q1")
        assert (await calling)["isError"]
        calling = begin(client)
        await on.waits()
        on.queue.allow("Q2")
        assert await calling == DONE
    assert sent(upstream) == [ONE]


async def test_what_no_guard_finds_waits_for_nobody() -> None:
    async with guarded(FakeUpstream(ANSWERS)) as on:
        client = await on.join()
        assert await client.call("up", "delete_file", {"path": "/two"}) == DONE
        assert not on.is_queue_open


# --- no way round ------------------------------------------------------------------------------------------------


async def test_changed_arguments_are_judged_again() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        assert "`/etc` is not for you" in on.queue.allow("Q1", arguments={"path": "/etc/passwd"})
        assert "Q1" in on.queue.pending
        assert on.queue.allow("Q1", arguments={"path": "/home"}) == ""
        assert status_of(await calling)["status"] == "changed"
    assert sent(upstream) == [{"path": "/home"}]


async def test_what_one_guard_asks_about_is_not_allowed_as_what_another_one_found() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream, approval=Approval(remember=("session",))) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.allow("Q1", "session")
        assert await calling == DONE
        assert await client.call("up", "delete_file", {"path": "/one/two"}) == DONE  # found by the same guard
        calling = begin(client, args={"path": "/var/one"})
        assert (await on.waits()).rule == f"{ASK.id}, {VAR.id}"
        on.queue.deny("Q2")
        await calling
    assert sent(upstream) == [ONE, {"path": "/one/two"}]


async def test_what_an_access_rule_asks_about_is_not_allowed_as_what_a_guard_found() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream, rules=RULES, approval=Approval(remember=("session",))) as on:
        client = await on.join()
        calling = begin(client, args={"path": "/home"})
        pending = await on.waits()
        on.queue.allow("Q1", "session")
        assert await calling == DONE
        calling = begin(client)
        assert (await on.waits()).rule == f"{pending.rule}, {ASK.id}"
        on.queue.deny("Q2")
        await calling
        assert (await client.call("up", "delete_file", {"path": "/etc"}))["isError"]
    assert sent(upstream) == [{"path": "/home"}]


async def test_changed_guards_drop_what_was_asked_and_allowed_by_the_former_ones() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream, approval=Approval(remember=("session",))) as on:
        client = await on.join()
        calling = begin(client)
        await on.waits()
        on.queue.allow("Q1", "session")
        await calling
        waiting = begin(client, args={"path": "/var"})
        await on.waits()
        on.groups[0] = group_config(rules={"guards": (ASK, VAR, Guard("mcpServers.up.guards[3]", deny="new"))})
        on.change()
        assert "the config has changed" in text_of(await waiting)
        again = begin(client)
        assert (await on.waits()).id == "Q3"
        on.queue.deny("Q3")
        await again
        on.groups[0] = group_config()
        on.change()
        assert await client.call("up", "delete_file", ONE) == DONE
    assert sent(upstream) == [ONE, ONE]


async def test_a_guard_that_a_reload_brings_counts_from_the_next_call_on() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream, rules=None) as on:
        client = await on.join()
        assert await client.call("up", "get_file", {"path": "/etc"}) == DONE
        on.groups[0] = group_config(rules={"guards": GUARDS})
        on.change()
        assert (await client.call("up", "get_file", {"path": "/etc"}))["isError"]


# --- large arguments ---------------------------------------------------------------------------------------------


async def test_large_arguments_are_judged_like_small_ones() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with guarded(upstream) as on:
        client = await on.join()
        texts = ["x" * 100_000, "/etc"]
        assert (await client.call("up", "get_file", {"texts": texts}))["isError"]
        assert await client.call("up", "get_file", {"texts": texts[:1]}) == DONE
    assert sent(upstream) == [{"texts": texts[:1]}]


async def test_a_call_with_large_arguments_keeps_no_other_call_waiting() -> None:
    """The pattern makes RE2 go through every state for every character, so it takes seconds."""
    slow = Guard("mcpServers.up.guards[0]", tools=("get_file",), deny="a[ab]{900}c")
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream, rules=None, call_rules={"guards": (slow,)}) as on:
        client = await on.join()
        await client.call("up", "delete_all")
        text = "".join(random.Random(1).choices("ab", k=100_000))  # noqa: S311 - no secret
        large = asyncio.create_task(client.call("up", "get_file", {"text": text}))
        async with asyncio.timeout(BOUND_S):
            for _ in range(3):
                assert await client.call("up", "delete_all") == DONE
        assert not large.done()
        large.cancel()
