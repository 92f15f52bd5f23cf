"""Clients of MCP 2026-07-28: every request says who it is from, and is answered by itself."""

from __future__ import annotations

import gc
import weakref

import pytest

from dynamic_mcp.errors import NotFound, ResourceNotFound
from dynamic_mcp.mcp.revisions import MODERN, NEWEST
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, group_config, settled, text_of
from tests.modern_client import CAN_ALL, INFO, PREFIX, ModernClient, call_of, modern_client_of

UNSUPPORTED, NOT_FOUND, INVALID = -32022, -32601, -32602


# --- the era of a stream ---------------------------------------------------------------------------------------


async def test_the_first_request_decides_the_era_of_a_stream() -> None:
    async with modern_client_of(Opener(a=[FakeUpstream()])) as client:
        await client.request("tools/list")
        client.send({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {"protocolVersion": NEWEST.name}})
        refused = await client.answer_to("i")
        client.send({"jsonrpc": "2.0", "id": "p", "method": "tools/list"})
        without = await client.answer_to("p")
    assert refused["error"]["code"] in (UNSUPPORTED, INVALID)
    assert without["error"]["code"] == INVALID


async def test_a_client_that_said_initialize_stays_a_legacy_client_whatever_it_puts_into_meta() -> None:
    async with client_of(Opener(a=[FakeUpstream()])) as legacy:
        client = ModernClient(legacy.server)  # type: ignore[arg-type]  # a proxy is both
        hello = {"protocolVersion": NEWEST.name, "capabilities": {}, "clientInfo": INFO}
        client.send({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": hello})
        assert (await client.answer_to("i"))["result"]["protocolVersion"] == NEWEST.name
        listed = await client.request("tools/list")
    assert "resultType" not in listed["result"]


async def test_a_revision_that_is_not_spoken_is_refused_with_those_that_are_and_decides_nothing() -> None:
    async with modern_client_of(Opener(a=[FakeUpstream()])) as client:
        refused = await client.request("server/discover", meta={f"{PREFIX}protocolVersion": "2031-01-01"})
        hello = {"protocolVersion": NEWEST.name, "capabilities": {}, "clientInfo": INFO}
        client.send({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": hello})
        greeted = await client.answer_to("i")
    assert refused["error"]["code"] == UNSUPPORTED
    assert refused["error"]["data"]["requested"] == "2031-01-01"
    assert MODERN.name in refused["error"]["data"]["supported"]
    assert NEWEST.name in refused["error"]["data"]["supported"]
    assert greeted["result"]["protocolVersion"] == NEWEST.name


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_request_that_does_not_say_what_it_must_is_refused(missing: str) -> None:
    async with modern_client_of(Opener(a=[FakeUpstream()])) as client:
        await client.request("tools/list")
        refused = await client.request("tools/list", meta={PREFIX + missing: None})
    assert refused["error"]["code"] == INVALID
    assert missing in refused["error"]["message"]


async def test_a_client_need_not_say_its_name() -> None:
    async with modern_client_of(Opener(a=[FakeUpstream()])) as client:
        listed = await client.request("tools/list", meta={f"{PREFIX}clientInfo": None})
    assert listed["result"]["tools"]


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "tasks/list", "tasks/result", "vendor/unknown"]
)
async def test_what_the_revision_does_not_have_is_not_found(method: str) -> None:
    async with modern_client_of(Opener(a=[FakeUpstream()])) as client:
        answer = await client.request(method, {"level": "info", "uri": "x:y", "taskId": "1"})
    assert answer["error"]["code"] == NOT_FOUND


# --- answers ---------------------------------------------------------------------------------------------------


async def test_discover_says_what_a_client_can_use() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        found = (await client.request("server/discover"))["result"]
    assert found["supportedVersions"][0] == MODERN.name
    assert found["resultType"] == "complete"
    assert found["capabilities"]["tools"] == {"listChanged": True}
    assert "tasks" not in found["capabilities"]
    assert found["_meta"][f"{PREFIX}serverInfo"]["name"] == "dynamic-mcp"
    assert "a" in found["instructions"]


async def test_one_group_alone_is_discovered_as_if_there_were_no_proxy() -> None:
    async with modern_client_of(Opener(a=[FullUpstream(name="a")])) as whole:
        client = ModernClient(whole.server, only="a")
        found = (await client.request("server/discover"))["result"]
        listed = (await client.request("tools/list"))["result"]
    assert found["_meta"][f"{PREFIX}serverInfo"]["name"] == "a"
    assert "rich" in [tool["name"] for tool in listed["tools"]]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_lists_say_how_long_they_hold_and_for_whom(method: str) -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        await client.call("a", "plain")
        listed = (await client.request(method))["result"]
    assert listed["ttlMs"] > 0
    assert listed["cacheScope"] == "public"


async def test_a_list_from_which_a_group_is_missing_is_stale_at_once() -> None:
    opener = Opener(a=[FullUpstream()], b=[NotFound("x", "y")])
    async with modern_client_of(opener) as client:
        listed = (await client.request("prompts/list"))["result"]
    assert listed["ttlMs"] == 0


async def test_a_resource_is_for_its_reader_alone_and_stale_at_once() -> None:
    async with modern_client_of(Opener(a=[FullUpstream(scheme="full")])) as client:
        listed = (await client.request("resources/list"))["result"]
        read = (await client.request("resources/read", {"uri": listed["resources"][0]["uri"]}))["result"]
    assert (read["ttlMs"], read["cacheScope"]) == (0, "private")


async def test_a_resource_that_is_not_there_is_told_by_the_code_of_the_revision() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        answer = await client.request("resources/read", {"uri": "nowhere:1"})
    assert ResourceNotFound.rpc_code == -32002
    assert answer["error"]["code"] == INVALID


async def test_a_result_keeps_its_members_and_gets_a_type_and_the_name_of_the_server() -> None:
    async with modern_client_of(Opener(a=[FullUpstream(name="a")])) as client:
        result = (await client.call("a", "rich", {"n": 1}))["result"]
        whole = (await client_result(client, "rich"))["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"][f"{PREFIX}serverInfo"]["name"] == "dynamic-mcp"
    kept = {name: value for name, value in whole.items() if name != "_meta"}
    assert {name: result[name] for name in kept} == kept


async def client_result(client: ModernClient, name: str) -> dict[str, Json]:
    """Return what a legacy client gets of the same call."""
    legacy = Client(client.server)
    await legacy.initialize()
    return await legacy.request("tools/call", call_of("a", name, {"n": 1}))


async def test_a_server_does_not_see_what_a_client_says_of_itself_to_us() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        params = call_of("a", "echo", {"text": "1"}, _meta={"x-own": 1, f"{PREFIX}logLevel": "info"})
        await client.request("tools/call", params)
    call = upstream.heard("tools/call")[0]
    assert call["params"]["_meta"] == {"x-own": 1}
    assert upstream.heard("initialize")[0]["params"]["protocolVersion"] == NEWEST.name
    assert upstream.heard("initialize")[0]["params"]["clientInfo"] == INFO
    assert upstream.heard("initialize")[0]["params"]["capabilities"] == CAN_ALL


async def test_an_id_in_flight_is_not_taken_twice() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        client.send({"jsonrpc": "2.0", "id": id, "method": "server/discover"})
        assert (await client.answer_to(id))["error"]["code"] == -32600


# --- progress, log messages, cancellation ------------------------------------------------------------------------


async def test_progress_comes_before_the_answer_with_the_client_s_token() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        await client.call("a", "progress", {"steps": 2}, _meta={"progressToken": "t"})
        heard = client.heard("notifications/progress")
    assert [each["params"]["progressToken"] for each in heard] == ["t", "t"]


async def test_log_messages_come_only_to_requests_that_ask_for_them() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        asked = call_of("a", "log", {"level": "info"}, _meta={f"{PREFIX}logLevel": "info"})
        await client.request("tools/call", asked)
        await client.hears("notifications/message")
        await client.call("a", "log", {"level": "error"})
        stricter = call_of("a", "log", {"level": "info"}, _meta={f"{PREFIX}logLevel": "error"})
        await client.request("tools/call", stricter)
        await settled()
    assert len(client.heard("notifications/message")) == 1


async def test_a_server_is_told_the_most_verbose_level_that_a_request_asks_for() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        for level in ("error", "debug", "warning"):
            params = call_of("a", "log", {"level": "debug"}, _meta={f"{PREFIX}logLevel": level})
            answer = await client.request("tools/call", params)
        assert text_of(answer["result"]) == "debug"
    assert [each["params"]["level"] for each in upstream.heard("logging/setLevel")] == ["error", "debug"]


async def test_a_level_that_does_not_exist_is_refused() -> None:
    async with modern_client_of(Opener(a=[FullUpstream()])) as client:
        answer = await client.request("tools/list", meta={f"{PREFIX}logLevel": "loud"})
    assert answer["error"]["code"] == INVALID


async def test_a_cancelled_request_is_cancelled_upstream_and_never_answered() -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as client:
        id = client.begin_call("a", "wait", {"key": "k"})
        await upstream.hears("tools/call")
        client.cancel(id)
        await upstream.hears("notifications/cancelled")
        await settled()
    assert id not in [message.get("id") for message in client.messages]


async def test_clients_that_say_the_same_share_a_server_and_others_do_not() -> None:
    opener = Opener(a=[FullUpstream(), FullUpstream(), FullUpstream()])
    async with modern_client_of(opener, group_config("a")) as client:
        twin = ModernClient(client.server)
        other = ModernClient(client.server, info={"name": "other", "version": "1"})
        for each in (client, twin, other):
            await each.call("a", "plain")
    assert len(opener.opened) == 2


@pytest.mark.parametrize("tool", ["wait", "elicit"])
async def test_a_client_that_goes_in_the_middle_of_a_call_is_forgotten(tool: str) -> None:
    upstream = FullUpstream()
    async with modern_client_of(Opener(a=[upstream])) as whole:
        client = ModernClient(whole.server)
        client.begin_call("a", tool, {"key": "k"})
        await upstream.hears("tools/call")
        await client.session.finish(0)
        client.session.close()
        session = weakref.ref(client.session)
        del client
        await settled()
        gc.collect()
        assert session() is None
