"""From `initialize` to the end: what is negotiated, what is announced, and what is not known."""

from __future__ import annotations

import asyncio

import pytest

from dynamic_mcp.errors import Unreachable
from dynamic_mcp.mcp.revisions import LEGACY, NEWEST
from dynamic_mcp.proxy import subscriptions
from tests.fakes import BOUND_S, Client, FakeUpstream, Json, Opener, client_of, settled

LIST_CHANGED = "notifications/tools/list_changed"


def _described(title: str) -> FakeUpstream:
    """Return an upstream with a title, which is seen in the list of tools once it is known."""
    welcome = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "title": title},
    }
    return FakeUpstream({"initialize": welcome, "tools/call": {"content": []}})


# --- initialize ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(version, version) for version in [revision.name for revision in LEGACY]]
    + [("2099-01-01", NEWEST.name), ("1.0", NEWEST.name), (5, NEWEST.name)],
    ids=str,
)
async def test_a_version_that_we_speak_is_kept_and_any_other_answered_with_the_newest(
    asked: Json, answered: str
) -> None:
    async with client_of(Opener()) as client:
        answer = await client.initialize(asked)

        assert answer["result"]["protocolVersion"] == answered


async def test_the_answer_says_what_this_is_and_how_to_use_it() -> None:
    async with client_of(Opener(zoo=[FakeUpstream()], api=[FakeUpstream()])) as client:
        result = (await client.initialize())["result"]

        assert result["serverInfo"]["name"] == "dynamic-mcp"
        assert result["capabilities"]["tools"] == {"listChanged": True}
        for name in ("get_dynamic_tools", "call_dynamic_tool", "zoo", "api"):
            assert name in result["instructions"]


async def test_initialize_is_answered_before_any_upstream_is_up() -> None:
    opener = Opener(slow=[FakeUpstream()], broken=[Unreachable("broken", "no", final=True)])
    opener.gate.clear()
    async with client_of(opener) as client:
        answer = await client.initialize()
        listed = await client.request("tools/list")

        assert "result" in answer
        assert len(listed["result"]["tools"]) == 2


async def test_upstreams_are_offered_the_version_of_the_client() -> None:
    upstream = FakeUpstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize("2025-03-26")

        assert (await upstream.hears("initialize"))["params"]["protocolVersion"] == "2025-03-26"


@pytest.mark.parametrize(
    "params",
    [None, [], "text", {"protocolVersion": "2025-11-25", "capabilities": []}],
    ids=["none", "a list", "a string", "capabilities that are a list"],
)
async def test_initialize_with_bad_params_is_refused_and_can_be_tried_again(params: Json) -> None:
    async with client_of(Opener()) as client:
        answer = await client.request("initialize", params)

        assert answer["error"]["code"] == -32602
        assert "result" in await client.initialize()


async def test_initialize_needs_no_more_than_an_object() -> None:
    async with client_of(Opener()) as client:
        answer = await client.request("initialize", {})

        assert answer["result"]["protocolVersion"] == NEWEST.name


async def test_clients_that_are_alike_share_an_upstream_and_others_have_their_own() -> None:
    upstreams = [FakeUpstream({"tools/call": {"content": []}}) for _ in range(2)]
    async with client_of(Opener(up=upstreams)) as ann:
        bob, older = Client(ann.server), Client(ann.server)
        for client, version in ((ann, "2025-11-25"), (bob, "2025-11-25"), (older, "2024-11-05")):
            answer = await client.initialize(version)
            assert answer["result"]["protocolVersion"] == version
            assert await client.call("up", "echo") == {"content": []}

        versions = [each.heard("initialize")[0]["params"]["protocolVersion"] for each in upstreams]
        assert versions == ["2025-11-25", "2024-11-05"]
        assert [len(each.heard("tools/call")) for each in upstreams] == [2, 1]


async def test_a_call_before_initialize_is_answered_by_an_upstream_that_was_greeted_in_our_own_name() -> None:
    upstream = FakeUpstream({"tools/call": {"content": [{"type": "text", "text": "here"}]}})
    async with client_of(Opener(up=[upstream])) as client:
        assert await client.call("up", "echo") == {"content": [{"type": "text", "text": "here"}]}

        [greeting] = upstream.heard("initialize")
        assert greeting["params"]["clientInfo"]["name"] == "dynamic-mcp"
        assert greeting["params"]["capabilities"] == {}


# --- small methods -------------------------------------------------------------------------------------


async def test_ping_is_answered_at_any_time() -> None:
    async with client_of(Opener()) as client:
        assert (await client.request("ping"))["result"] == {}
        await client.initialize()
        assert (await client.request("ping", {"_meta": {}}))["result"] == {}


@pytest.mark.parametrize("method", ["server/discover", "nobody/knows", "tools/Call", "notifications/cancelled"])
async def test_an_unknown_method_is_not_found_so_that_newer_clients_fall_back(method: str) -> None:
    async with client_of(Opener()) as client:
        assert (await client.request(method, {}))["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/roots/list_changed", "nobody/knows"])
async def test_notifications_get_no_answer(method: str) -> None:
    async with client_of(Opener()) as client:
        client.send({"jsonrpc": "2.0", "method": method})
        await client.request("ping")

        assert len(client.lines) == 1


async def test_a_notification_that_nobody_knows_goes_on_to_the_client() -> None:
    upstream = FakeUpstream({"tools/call": {"content": []}})
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        upstream.say({"jsonrpc": "2.0", "method": "notifications/nobody/knows", "params": [1]})

        assert await client.hears("notifications/nobody/knows") == {
            "jsonrpc": "2.0",
            "method": "notifications/nobody/knows",
            "params": [1],
        }
        assert await client.call("up", "echo") == {"content": []}


# --- list_changed --------------------------------------------------------------------------------------


async def test_clients_are_told_when_a_group_goes_down_and_when_it_is_back() -> None:
    first, second = (FakeUpstream({"tools/call": {"content": []}}) for _ in range(2))
    async with client_of(Opener(up=[first, second])) as client:
        await client.initialize()
        await settled()
        await client.call("up", "echo")
        before = (await client.request("tools/list"))["result"]

        first.die("the server exited with code 1")
        await client.hears(LIST_CHANGED)
        down = (await client.request("tools/list"))["result"]
        await client.call("up", "echo")
        await client.hears(LIST_CHANGED, times=2)

        assert "(Error: the server exited with code 1)" in down["tools"][0]["description"]
        assert (await client.request("tools/list"))["result"] == before


async def test_clients_are_told_when_an_upstream_has_said_what_it_is() -> None:
    async with client_of(Opener(up=[_described("The Title")])) as client:
        await client.initialize()

        await client.hears(LIST_CHANGED)

        listed = (await client.request("tools/list"))["result"]
        assert "- up: The Title" in listed["tools"][0]["description"].splitlines()


async def test_clients_are_not_told_when_nothing_changed_that_they_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SETTLE_S", 0)
    upstream = FakeUpstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        await settled()

        upstream.answers["tools/list"] = {"tools": []}
        upstream.say({"jsonrpc": "2.0", "method": LIST_CHANGED})
        await upstream.hears("tools/list", times=2)
        await settled()

        assert client.heard(LIST_CHANGED) == []


async def test_changes_that_come_together_are_announced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SETTLE_S", 0.2)
    async with client_of(Opener(**{f"g{n}": [_described(f"Title {n}")] for n in range(5)})) as client:
        await client.initialize()

        await client.hears(LIST_CHANGED)
        await settled()

        assert len(client.heard(LIST_CHANGED)) == 1
        assert "Title 4" in str(await client.request("tools/list"))


async def test_only_clients_that_have_shaken_hands_are_told() -> None:
    async with client_of(Opener(up=[_described("The Title")])) as client:
        silent, other = Client(client.server), Client(client.server)
        await client.initialize()
        await other.initialize()

        await client.hears(LIST_CHANGED)
        await other.hears(LIST_CHANGED)

        assert silent.lines == []


# --- the end -------------------------------------------------------------------------------------------


async def test_closing_ends_every_upstream_and_the_calls_in_flight_are_answered() -> None:
    upstream = FakeUpstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        call = asyncio.create_task(client.call("up", "echo"))
        await upstream.hears("tools/call")

    async with asyncio.timeout(BOUND_S):
        assert (await call)["isError"]
    assert upstream.closed


async def test_without_groups_the_proxy_serves_two_tools_that_say_so() -> None:
    async with client_of(Opener()) as client:
        await client.initialize()

        answer = await client.call("any", "tool")

        assert answer["isError"]
        assert "no group is configured" in answer["content"][0]["text"]
