"""Tools that stand in `tools/list` by themselves: the upstream's own bytes under a name that is mapped back."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from dynamic_mcp.config.resolved import DirectLimit, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.mcp import names
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, client_of, config_of, group_config, settled, text_of, tool
from tests.proxy.skill_upstreams import SkillUpstream, list_skills

DIRECT = DirectTools(is_all=True)
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


def _upstream(*tools: str) -> FakeUpstream:
    return FakeUpstream({"tools/call": DONE}, tools=tools)


async def _names(client: Client) -> list[str]:
    return [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]


async def test_a_config_in_which_all_is_direct_is_a_plain_aggregating_proxy() -> None:
    configs = [group_config(name, direct=DIRECT) for name in ("git", "zoo")]
    opener = Opener(git=[_upstream("log", "show")], zoo=[_upstream("log")])
    async with client_of(opener, *configs) as client:
        await client.initialize()

        assert await _names(client) == ["git__log", "git__show", "zoo__log"]
        answer = await client.request("tools/call", {"name": "zoo__log", "arguments": {"n": 1}})

        assert answer["result"] == DONE
        assert opener.upstreams[1].heard("tools/call")[0]["params"] == {"name": "log", "arguments": {"n": 1}}
        assert opener.upstreams[0].heard("tools/call") == []


async def test_a_server_with_skills_keeps_the_search_which_alone_finds_them() -> None:
    opener = Opener(git=[_upstream("log")], team=[SkillUpstream("team", {"refunds": {}})])
    async with client_of(opener, *(group_config(name, direct=DIRECT) for name in ("git", "team"))) as client:
        await client.initialize()
        assert len(await list_skills(client)) == 1

        listed = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in listed] == ["get_dynamic_tools", "call_dynamic_tool", "git__log"]
        assert listed[0]["inputSchema"]["properties"]["group"]["enum"] == ["team"]


async def test_direct_groups_stand_beside_our_own_tools_and_are_not_told_twice() -> None:
    opener = Opener(git=[_upstream("log")], zoo=[_upstream("feed")])
    async with client_of(opener, group_config("git", direct=DIRECT), group_config("zoo")) as client:
        await client.initialize()

        listed = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in listed] == ["get_dynamic_tools", "call_dynamic_tool", "git__log"]
        assert listed[0]["inputSchema"]["properties"]["group"]["enum"] == ["zoo"]
        assert await client.call("git", "log", {}) == DONE


async def test_pinned_tools_are_listed_too_and_stay_in_their_group() -> None:
    pinned = DirectTools(globs=("log", "show_*"))
    opener = Opener(git=[_upstream("log", "show_a", "show_b", "push")])
    async with client_of(opener, group_config("git", direct=pinned)) as client:
        await client.initialize()

        assert (await _names(client))[2:] == ["git__log", "git__show_a", "git__show_b"]
        assert await client.call("git", "push", {}) == DONE
        found = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "git"}})
        listed = json.loads(text_of(found["result"]))["tools"]
        assert [each["name"] for each in listed] == ["log", "show_a", "show_b", "push"]


async def test_the_schema_and_all_else_of_a_tool_are_listed_byte_for_byte() -> None:
    members = (
        b'"description":"D","inputSchema":{"type" : "object","maximum":1.50},"outputSchema":{ },"x":[ 1e400 ],'
        b'"annotations":{"readOnlyHint":true}'
    )
    upstream = FakeUpstream({"tools/list": b'{"tools":[{"name":"a b",' + members + b"}]}"})
    async with client_of(Opener(up=[upstream]), group_config("up", direct=DIRECT)) as client:
        await client.initialize()

        line = await client.exchange("tools/list")

        assert members in line
        (name,) = await _names(client)
        assert re.fullmatch(r"up__a_b_[0-9a-f]{8}", name)


async def test_names_fit_every_client_do_not_collide_and_lead_back() -> None:
    opener = Opener(a=[_upstream("b__c", "t" * 100, "\u65e5\u672c")], a__b=[_upstream("c")])
    configs = [group_config(name, direct=DIRECT) for name in ("a", "a__b")]
    async with client_of(opener, *configs) as client:
        await client.initialize()

        names = await _names(client)
        for name in names:
            assert (await client.request("tools/call", {"name": name, "arguments": {}}))["result"] == DONE

        assert len(set(names)) == 4
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        called = [[call["params"]["name"] for call in each.heard("tools/call")] for each in opener.upstreams]
        assert called == [["b__c", "t" * 100, "\u65e5\u672c"], ["c"]]


async def test_a_new_tool_is_announced_and_listed() -> None:
    upstream = _upstream("old")
    async with client_of(Opener(up=[upstream]), group_config("up", direct=DIRECT)) as client:
        await client.initialize()
        assert await _names(client) == ["up__old"]
        before = len(client.heard("notifications/tools/list_changed"))

        upstream.answers["tools/list"] = {"tools": [tool("old"), tool("new")]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await client.hears("notifications/tools/list_changed", times=before + 1)

        assert await _names(client) == ["up__old", "up__new"]


async def test_a_group_that_is_down_is_said_to_be_missing() -> None:
    broken = Unreachable("bad", "the command `x` was not found", final=True)
    configs = [group_config(name, direct=DIRECT) for name in ("bad", "good")]
    async with client_of(Opener(bad=[broken], good=[_upstream("a")]), *configs) as client:
        await client.initialize()

        result = (await client.request("tools/list"))["result"]

        assert [each["name"] for each in result["tools"]] == ["good__a"]
        assert "was not found" in result["_meta"]["dynamic-mcp/missing"]["bad"]


async def test_what_servers_say_reaches_the_model_when_nobody_asks_for_their_group() -> None:
    welcome = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
        "instructions": "Mind the gap.",
    }
    proxy = Proxy(
        config_of(group_config("up", direct=DIRECT)), opener=Opener(up=[FakeUpstream({"initialize": welcome})])
    )
    try:
        first, second = Client(proxy), Client(proxy)
        await first.initialize()
        await settled()

        said = (await second.initialize())["result"]["instructions"]

        assert "Mind the gap." in said
        assert "`up__`" in said
        assert "get_dynamic_tools" not in said
    finally:
        await proxy.close()


@pytest.mark.parametrize("order", [("big", "small"), ("small", "big")])
async def test_a_tool_that_is_too_large_leaves_the_limit_to_the_others(order: tuple[str, ...]) -> None:
    big = FakeUpstream({"tools/list": {"tools": [tool("huge", description="x" * 2000), tool("last")]}})
    upstreams = {"big": big, "small": _upstream("a", "b")}
    config = config_of(*(group_config(name, direct=DIRECT) for name in order), max_direct=DirectLimit(3, 400))
    proxy = Proxy(config, opener=Opener(**{name: [upstreams[name]] for name in order}))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(proxy.close)
        client = Client(proxy)
        await client.initialize()

        assert sorted(await _names(client)) == [
            "big__last",
            "call_dynamic_tool",
            "get_dynamic_tools",
            "small__a",
            "small__b",
        ]


async def test_long_lists_come_in_pages() -> None:
    tools = [f"t{n}" for n in range(1500)]
    config = config_of(group_config("up", direct=DIRECT), max_direct=None)
    proxy = Proxy(config, opener=Opener(up=[_upstream(*tools)]))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(proxy.close)
        client = Client(proxy)
        await client.initialize()

        first = (await client.request("tools/list"))["result"]
        second = (await client.request("tools/list", {"cursor": first["nextCursor"]}))["result"]

        assert [each["name"] for each in first["tools"] + second["tools"]] == [f"up__{name}" for name in tools]
        assert "nextCursor" not in second
        assert "error" in await client.request("tools/list", {"cursor": "none"})


async def test_excluded_tools_are_neither_listed_nor_called_by_their_listed_name() -> None:
    config = group_config("up", direct=DIRECT, tools=ToolFilter(include=("*",), exclude=("drop",)))
    upstream = _upstream("keep", "drop")
    async with client_of(Opener(up=[upstream]), config) as client:
        await client.initialize()

        assert await _names(client) == ["up__keep"]
        assert (await client.request("tools/call", {"name": "up__drop"}))["result"]["isError"] is True
        assert upstream.heard("tools/call") == []


async def test_a_name_that_two_groups_could_have_never_changes_its_owner() -> None:
    configs = [group_config(name, direct=DIRECT) for name in ("a", "a__b")]
    for late in ("a", "a__b"):
        opener = Opener(a=[_upstream("b__c")], a__b=[_upstream("c")])
        opener.plan[late] = [Unreachable(late, "is away")]
        async with client_of(opener, *configs) as client:
            await client.initialize()
            await client.request("tools/list")

            answer = await client.request("tools/call", {"name": "a__b__c", "arguments": {}})

            assert (answer["result"] == DONE) == (late == "a")
            assert [name for name in await _names(client) if name == "a__b__c"] == (
                ["a__b__c"] if late == "a" else []
            )


async def test_where_all_is_direct_an_unknown_name_leads_to_the_list() -> None:
    async with client_of(Opener(up=[_upstream("log")]), group_config("up", direct=DIRECT)) as client:
        await client.initialize()

        for name in ("up__lag", "nothing"):
            answer = await client.request("tools/call", {"name": name, "arguments": {}})
            assert "`tools/list` shows what there is" in text_of(answer["result"])


@pytest.mark.parametrize("group", ["my group", "a.b", "gruppe-ä", "日本", "g" * 60, "g" * 64])
@pytest.mark.parametrize("direct", [DIRECT, DirectTools(globs=("l*",))])
async def test_a_group_whose_name_clients_do_not_take_lists_its_tools_by_their_short_form(
    group: str, direct: DirectTools
) -> None:
    opener = Opener(**{group: [_upstream("log")]})
    async with client_of(opener, group_config(group, direct=direct)) as client:
        assert "error" not in await client.initialize()

        listed = (await _names(client))[-1]

        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", listed)
        assert (await client.request("tools/call", {"name": listed, "arguments": {}}))["result"] == DONE


async def test_no_tool_takes_the_short_form_of_another_group_s_tool() -> None:
    short = names.qualified_name("my group", "log")
    theirs = short.removeprefix("my_group__")
    opener = Opener(**{"my_group": [_upstream(theirs)], "my group": [_upstream("log")]})
    configs = [group_config(name, direct=DIRECT) for name in ("my_group", "my group")]
    async with client_of(opener, *configs) as client:
        await client.initialize()
        await _names(client)

        await client.request("tools/call", {"name": short, "arguments": {}})

        assert len(await _names(client)) == 2
        assert [each.heard("tools/call") for each in opener.upstreams if each.heard("tools/call")]
        assert opener.upstreams[1].heard("tools/call")[0]["params"]["name"] == "log"
