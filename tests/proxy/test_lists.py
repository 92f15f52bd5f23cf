"""The lists of all groups are one list: in config order, paged, whole, and open about what is missing."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import Features, Timeouts
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.mcp import wire
from tests.fakes import BOUND_S, Client, FakeUpstream, FullUpstream, Json, Opener, client_of, group_config, part
from tests.upstreams import full_offers as offers

QUICK = Timeouts(connect_s=5, tools_s=5, resources_s=0.05, prompts_s=0.05)
MISSING = "dynamic-mcp/missing"

# method, the result's member, what tells entries apart, the feature, an entry that nobody has yet
LISTS = [
    pytest.param("resources/list", "resources", "uri", "resources", {"uri": "full://new"}, id="resources"),
    pytest.param(
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
        "resources",
        {"uriTemplate": "full://new/{x}"},
        id="templates",
    ),
    pytest.param("prompts/list", "prompts", "name", "prompts", {"name": "new"}, id="prompts"),
]
every_list = pytest.mark.parametrize(("method", "member", "key", "feature", "new"), LISTS)


def _own(upstream: FullUpstream, member: str) -> list[bytes]:
    """Return the entries that a server writes, byte for byte."""
    entries = {"resources": offers.RESOURCES, "resourceTemplates": offers.TEMPLATES, "prompts": offers.PROMPTS}
    return [upstream.server.filled(entry) for entry in entries[member]]


def _without(key: str, entry: bytes | Raw) -> dict[str, bytes]:
    """Return an entry's members but the one that may be renamed."""
    return {name: bytes(value) for name, value in wire.members(entry).items() if name != key}


async def _result(client: Client, method: str, params: Json = None) -> Mapping[str, Json]:
    result: dict[str, Json] = (await client.request(method, params))["result"]
    return result


# --- whole ---------------------------------------------------------------------------------------------


@every_list
async def test_entries_come_as_their_servers_wrote_them_in_config_order(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    a, b = FullUpstream(name="a", scheme="a"), FullUpstream(name="b", scheme="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        listed = wire.elements(part(await client.exchange(method), "result", member))

        own = _own(a, member) + _own(b, member)
        assert [_without(key, entry) for entry in listed] == [_without(key, entry) for entry in own]
        if member != "prompts":
            assert [bytes(entry) for entry in listed] == own


@every_list
async def test_the_other_members_of_a_list_come_too(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    upstream = FullUpstream(name="a")
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        line = await client.exchange(method)
        rest = _without(member, part(line, "result"))
        assert rest == _without(member, b"{%s}" % upstream.server.filled(offers.LIST_REST))


@every_list
async def test_all_pages_of_a_server_are_fetched(method: str, member: str, key: str, feature: str, new: Json) -> None:
    plain, paged = FullUpstream(many=5), FullUpstream(many=5, page=2)
    async with client_of(Opener(a=[plain])) as client:
        await client.initialize()
        whole = await client.exchange(method)
    async with client_of(Opener(a=[paged])) as client:
        await client.initialize()
        assert await client.exchange(method) == whole
    assert len(paged.heard(method)) > 2


@every_list
async def test_a_group_alone_can_be_asked_for(method: str, member: str, key: str, feature: str, new: Json) -> None:
    a, b = FullUpstream(name="a", scheme="a"), FullUpstream(name="b", scheme="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        both, of_b = await _result(client, method), await _result(client, method, {"group": "b"})
        assert of_b[member] == both[member][len(both[member]) // 2 :]

        unknown = (await client.request(method, {"group": "c"}))["error"]
        assert unknown["code"] == -32602
        assert "`a`" in unknown["message"]


@every_list
async def test_a_feature_that_is_switched_off_is_not_listed_and_asking_for_it_says_so(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    a, b = FullUpstream(name="a", scheme="a"), FullUpstream(name="b", scheme="b")
    off = group_config("b", features=Features(**{"tools": True, "resources": True, "prompts": True, feature: False}))
    async with client_of(Opener(a=[a], b=[b]), group_config("a"), off) as client:
        await client.initialize()
        result = await _result(client, method)
        assert len(result[member]) == len(_own(a, member))
        assert MISSING not in result["_meta"]

        error = (await client.request(method, {"group": "b"}))["error"]
        assert (error["code"], error["message"]) == (-32601, f"the {feature} feature is disabled for group `b`")
        assert b.heard(method) == []


# --- pages for the client ------------------------------------------------------------------------------------


@every_list
async def test_a_long_list_is_paged(method: str, member: str, key: str, feature: str, new: Json) -> None:
    a, b = FullUpstream(name="a", scheme="a", many=1500), FullUpstream(name="b", scheme="b", many=1500, page=700)
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        pages = [await _result(client, method)]
        while "nextCursor" in pages[-1]:
            pages.append(await _result(client, method, {"cursor": pages[-1]["nextCursor"]}))

        found = [entry[key] for page in pages for entry in page[member]]
        assert len(pages) == 4
        assert len(found) == len(set(found)) == 3000 + len(_own(a, member)) + len(_own(b, member))
        assert found[0 : len(pages[0][member])] == [entry[key] for entry in pages[0][member]]


def _cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ä",
        "page 2",
        _cursor("-1"),
        _cursor("99"),
        _cursor("1.5"),
        _cursor("one"),
        _cursor("9" * 6000),
        7,
        {},
    ],
    ids=lambda cursor: str(cursor)[:12],
)
@every_list
async def test_a_cursor_that_is_none_is_refused(
    method: str, member: str, key: str, feature: str, new: Json, cursor: Json
) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        assert (await client.request(method, {"cursor": cursor}))["error"]["code"] == -32602


@every_list
async def test_a_null_cursor_begins_at_the_beginning(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    async with client_of(Opener(a=[FullUpstream()])) as client:
        await client.initialize()
        assert await _result(client, method, {"cursor": None}) == await _result(client, method)


# --- what is missing -----------------------------------------------------------------------------------------


@every_list
async def test_a_list_that_a_server_refuses_is_said_to_be_missing_and_the_others_are_there(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    a, b = FullUpstream(name="a", refuse=(method,)), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        result = await _result(client, method)
        assert len(result[member]) == len(_own(b, member))
        assert list(result["_meta"][MISSING]) == ["a"]
        assert "-32603" in result["_meta"][MISSING]["a"]


@every_list
async def test_a_list_that_a_server_does_not_have_is_empty_and_not_missing(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    upstream = FullUpstream(name="a")
    del upstream.server.handlers[method]
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        result = await _result(client, method)
        assert result[member] == []
        assert MISSING not in result.get("_meta", {})


@every_list
async def test_a_list_that_a_server_does_not_answer_is_said_to_be_missing(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    a, b = FullUpstream(name="a", hang=(method,)), FullUpstream(name="b")
    async with client_of(Opener(a=[a], b=[b]), group_config("a", timeouts=QUICK), group_config("b")) as client:
        await client.initialize()
        result = await _result(client, method)
        assert len(result[member]) == len(_own(b, member))
        assert "not answered" in result["_meta"][MISSING]["a"]


async def test_a_list_that_hangs_delays_no_other_of_its_group() -> None:
    upstream = FullUpstream(hang=("prompts/list",))
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await upstream.hears("prompts/list")
        await client.hears("notifications/resources/list_changed")
        result = await _result(client, "resources/list")
        assert len(result["resources"]) == len(_own(upstream, "resources"))
        assert MISSING not in result["_meta"]


async def test_a_list_that_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    upstream = FullUpstream(name="a", hang=("prompts/list",))
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        await _result(client, "prompts/list")
        async with asyncio.timeout(BOUND_S):  # three times the wait is more
            for _ in range(3):
                assert (await _result(client, "prompts/list"))["_meta"][MISSING] == {"a": "not read yet"}


async def test_a_group_that_hangs_is_named_and_what_it_has_follows_with_a_notification() -> None:
    a, b = FakeUpstream(), FullUpstream(name="b")
    welcome = a.answers.pop("initialize")
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        hello = await a.hears("initialize")
        members = {str(each.values[0]): str(each.values[1]) for each in LISTS}
        lists = await asyncio.gather(*(_result(client, method) for method in members))
        for (_, member), result in zip(members.items(), lists, strict=True):
            assert len(result[member]) == len(_own(b, member))
            assert result["_meta"][MISSING] == {"a": "not connected yet"}

        welcome["capabilities"] = {"resources": {}, "prompts": {}}
        for method, key in (
            ("resources/list", "uri"),
            ("resources/templates/list", "uriTemplate"),
            ("prompts/list", "name"),
        ):
            a.answers[method] = {members[method]: [{key: "late://{x}"}]}
        a.say({"jsonrpc": "2.0", "id": hello["id"], "result": welcome})

        await client.hears("notifications/resources/list_changed")
        await client.hears("notifications/prompts/list_changed")
        for method, member in members.items():
            result = await _result(client, method)
            assert len(result[member]) == len(_own(b, member)) + 1
            assert MISSING not in result["_meta"]


@every_list
async def test_a_group_that_is_down_keeps_what_it_had(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    a, b = FullUpstream(name="a", scheme="a"), FullUpstream(name="b", scheme="b")
    async with client_of(Opener(a=[a, Unreachable("a", "gone")], b=[b])) as client:
        await client.initialize()
        before = await client.exchange(method)
        a.die()
        assert part(await client.exchange(method), "result") == part(before, "result")


@every_list
async def test_a_group_that_never_came_up_says_why(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    b = FullUpstream(name="b")
    async with client_of(Opener(a=[Unreachable("a", "the command was not found")], b=[b])) as client:
        await client.initialize()
        result = await _result(client, method)
        assert len(result[member]) == len(_own(b, member))
        assert result["_meta"][MISSING] == {"a": "the command was not found"}
        assert "vendor.example/list" in result["_meta"]


# --- changes -------------------------------------------------------------------------------------------------


async def _changed(client: Client, method: str, member: str, feature: str, entries: int) -> Mapping[str, Json]:
    """Return the list once it has so many entries, asking for it when the client hears that it has changed."""
    changes = 0
    while True:
        changes += 1
        await client.hears(f"notifications/{feature}/list_changed", times=changes)
        result = await _result(client, method)
        if len(result[member]) == entries:
            return result


@every_list
async def test_a_list_that_changes_is_announced_and_read_anew(
    method: str, member: str, key: str, feature: str, new: Json
) -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        before = await _result(client, method)
        await client.call("a", "add", {"list": member, "entry": new})
        after = await _changed(client, method, member, feature, len(before[member]) + 1)
        assert new[key] in after[member][-1][key]


async def test_a_list_that_cannot_be_read_again_stays_and_says_so() -> None:
    upstream = FullUpstream()
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        before = await _result(client, "resources/list")
        prompts = await _result(client, "prompts/list")
        upstream.server.options = upstream.server.options._replace(refuse=("resources/list",))
        await client.call("a", "add", {"list": "resources", "entry": {"uri": "full://new"}})
        await client.call("a", "add", {"list": "prompts", "entry": {"name": "new"}})
        # read with the resources or after them, and a sign that they were asked for
        await _changed(client, "prompts/list", "prompts", "prompts", len(prompts["prompts"]) + 1)

        after = await _result(client, "resources/list")
        assert after["resources"] == before["resources"]
        assert "resources/list could not be read" in after["_meta"][MISSING]["a"]


async def test_entries_without_a_key_and_second_ones_are_left_out_and_said_to_be() -> None:
    entries = [{"name": "p"}, {"title": "no name"}, 7, {"name": "p", "title": "again"}, {"name": "q"}]
    upstream = FakeUpstream({"prompts/list": {"prompts": entries}})
    upstream.answers["initialize"]["capabilities"] = {"prompts": {}}
    async with client_of(Opener(a=[upstream])) as client:
        await client.initialize()
        result = await _result(client, "prompts/list")
        assert [prompt["name"] for prompt in result["prompts"]] == ["a__p", "a__q"]
        assert json.dumps(result["_meta"][MISSING]).count("left out") == 3
