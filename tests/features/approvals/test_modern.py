"""Modern clients are asked by `input_required`; a retry that a server wants is part of the call that was allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from tests.fakes import FakeUpstream, settled, text_of, tool
from tests.features.approvals.scene import ANSWERS, CAN_ASK, ONE, Json, Scene, approving, status_of
from tests.modern_client import ModernClient, call_of, retry_of
from tests.upstream.modern import ModernUpstream, complete, open_modern

ALLOW = {"action": "accept", "content": {"decision": "once"}}


async def test_a_modern_client_is_asked_and_comes_back() -> None:
    upstream = FakeUpstream(ANSWERS)
    async with approving(upstream) as on:
        client = on.join_modern(can=CAN_ASK)
        asked = await client.call("up", "delete_file", ONE)
        (question,) = asked["result"]["inputRequests"].values()
        assert upstream.heard("tools/call") == []
        await on.clock.pass_(300)  # its person has time: the client does not wait meanwhile
        done = await client.call("up", "delete_file", ONE, **retry_of(asked, ALLOW))
    assert question["method"] == "elicitation/create"
    assert question["params"]["requestedSchema"]["required"] == ["decision"]
    assert text_of(done["result"]) == "done"
    assert len(upstream.heard("tools/call")) == 1


@pytest.mark.parametrize(
    ("said", "after_s", "is_denied"),
    [({"action": "decline"}, 0.5, False), (ALLOW, 0.5, False), ({"action": "decline"}, 3, True)],
)
async def test_a_modern_client_that_answers_at_once_is_not_asked_again(
    *, said: Json, after_s: float, is_denied: bool
) -> None:
    async with approving() as on:
        client = on.join_modern(can=CAN_ASK)
        asked = await client.call("up", "delete_file", ONE)
        await on.clock.pass_(after_s)
        id = client.begin_call("up", "delete_file", ONE, **retry_of(asked, said))
        if is_denied:
            assert "the user denied it" in text_of((await client.answer_to(id))["result"])
            return
        await on.waits()
        await on.clock.pass_(50)
        assert status_of((await client.answer_to(id))["result"])["id"] == "Q1"
        on.queue.allow("Q1")
        assert text_of((await client.call("up", "delete_file", ONE))["result"]) == "done"


async def test_a_modern_client_that_shows_no_forms_waits_in_the_queue() -> None:
    async with approving() as on:
        client = on.join_modern()
        id = client.begin_call("up", "delete_file", ONE)
        await on.waits()
        await on.clock.pass_(50)
        result = (await client.answer_to(id))["result"]
        assert result["resultType"] == "complete"
        assert status_of(result)["status"] == "pending"


async def test_a_prompt_and_a_resource_are_asked_about_too() -> None:
    async with approving() as on:
        client = on.join_modern(can=CAN_ASK)
        for method, params in (("prompts/get", {"name": "up__secret"}), ("resources/read", {"uri": "x://one"})):
            asked = await client.request(method, params)
            await on.clock.pass_(3)
            assert "error" not in await client.request(method, {**params, **retry_of(asked, ALLOW)})


async def test_a_modern_client_that_goes_while_it_is_asked_leaves_nothing() -> None:
    async with approving() as on:
        client = on.join_modern(can=CAN_ASK)
        await client.call("up", "delete_file", ONE)
        assert on.proxy.approvals is not None
        assert on.proxy.approvals.pending == 1
        client.session.close()
        await settled()
        assert on.proxy.approvals.pending == 0


# --- a server that needs more input ------------------------------------------------------------------------------


class ModernOpener:
    """Opens links to a modern upstream."""

    def __init__(self, upstream: ModernUpstream) -> None:
        self._upstream = upstream

    async def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        return await open_modern(self._upstream, listener, hello)


def wanting_input() -> ModernUpstream:
    """Return a server whose tool needs two answers of the client, one after the other."""
    states: Iterator[str] = iter(("state 1", "state 2"))

    def answer(params: Json) -> Json:
        state = next(states, None)
        if state is None:
            return complete(content=[{"type": "text", "text": "done"}])
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
        return complete() | {
            "resultType": "input_required",
            "inputRequests": {"q": question},
            "requestState": state,
        }

    tools = complete(tools=[tool("delete_file")], ttlMs=60_000, cacheScope="private")
    return ModernUpstream(**{"tools/list": tools, "tools/call": answer})


async def allow(on: Scene, client: ModernClient) -> dict[str, Json]:
    """Call the tool, allow it, and return what the server wants to know."""
    id = client.begin_call("up", "delete_file", ONE)
    pending = await on.waits()
    on.queue.allow(pending.id)
    return await client.answer_to(id)


async def test_a_retry_of_an_allowed_call_asks_nobody() -> None:
    upstream = wanting_input()
    async with approving(opener=ModernOpener(upstream)) as on:
        client = on.join_modern()
        asked = await allow(on, client)
        assert asked["result"]["requestState"] == "state 1"
        asked = await client.call("up", "delete_file", ONE, **retry_of(asked))
        assert asked["result"]["requestState"] == "state 2"
        done = await client.call("up", "delete_file", ONE, **retry_of(asked))
        assert text_of(done["result"]) == "done"
        assert on.queue.put_count == 1
    assert len(upstream.heard("tools/call")) == 3


async def test_changed_arguments_stay_changed_in_the_retry() -> None:
    upstream = wanting_input()
    async with approving(opener=ModernOpener(upstream)) as on:
        client = on.join_modern()
        id = client.begin_call("up", "delete_file", ONE)
        await on.waits()
        on.queue.allow("Q1", arguments={"path": "/two"})
        asked = await client.answer_to(id)
        await client.call("up", "delete_file", ONE, **retry_of(asked))
    assert [each["params"]["arguments"] for each in upstream.heard("tools/call")] == [{"path": "/two"}] * 2


FORGED: dict[str, Json] = {
    "another state": {"requestState": "state 3", "inputResponses": {}},
    "no state": {"inputResponses": {"q": {"action": "accept"}}},
    "a state that is no text": {"requestState": 1, "inputResponses": {}},
    "the state with something after it": {"requestState": "state 1 ", "inputResponses": {}},
}


@pytest.mark.parametrize("case", FORGED)
async def test_a_retry_of_what_was_not_allowed_is_denied(case: str) -> None:
    upstream = wanting_input()
    async with approving(opener=ModernOpener(upstream)) as on:
        client = on.join_modern()
        await allow(on, client)
        denied = await client.call("up", "delete_file", ONE, **FORGED[case])
    assert "that was not approved" in text_of(denied["result"])
    assert len(upstream.heard("tools/call")) == 1


async def test_a_retry_is_for_one_principal_and_one_set_of_arguments_and_passes_once() -> None:
    upstream = wanting_input()
    async with approving(opener=ModernOpener(upstream)) as on:
        client, bob = on.join_modern(), on.join_modern(subject="bob")
        asked = await allow(on, client)
        for other, args in ((bob, ONE), (client, {"path": "/two"})):
            denied = await other.request("tools/call", call_of("up", "delete_file", args, **retry_of(asked)))
            assert "that was not approved" in text_of(denied["result"])
        assert len(upstream.heard("tools/call")) == 1
        await client.call("up", "delete_file", ONE, **retry_of(asked))
        again = await client.call("up", "delete_file", ONE, **retry_of(asked))
        assert "that was not approved" in text_of(again["result"])
    assert len(upstream.heard("tools/call")) == 2
