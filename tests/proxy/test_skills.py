"""Skills of all groups are one list, and each is read from the server that has it, byte for byte."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.config.resolved import Features
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.proxy import lists, skill_uris
from tests.fakes import Client, FakeUpstream, FullUpstream, Json, Opener, client_of, group_config
from tests.modern_client import modern_client_of
from tests.proxy.counting import counting
from tests.proxy.skill_upstreams import SkillUpstream, list_skills, read_text
from tests.upstreams.skills import EXTENSION, digest, main_file

REFUNDS = "skill://refunds/SKILL.md"
REFUNDS_OF_B = "skill://b/refunds/SKILL.md"


async def _connect(client: Client, *groups: str) -> Json:
    """Shake hands once what the groups can do is known."""
    await client.initialize()
    await client.request("skills/list", {})
    return (await client.initialize())["result"]["capabilities"] if groups else None


async def test_skills_of_all_groups_are_one_list_and_a_colliding_uri_carries_its_group() -> None:
    a = SkillUpstream("a", {"refunds": {"email.md": "of a"}, "only-a": {}})
    b = SkillUpstream("b", {"refunds": {"email.md": "of b"}, "x/only-b": {}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        found = await list_skills(client)

    assert list(found) == [REFUNDS, "skill://only-a/SKILL.md", REFUNDS_OF_B, "skill://x/only-b/SKILL.md"]
    assert found[REFUNDS] == a.server.entry(REFUNDS)
    files = {file["uri"]: file for file in found[REFUNDS_OF_B]["resources"]}
    assert list(files) == [REFUNDS_OF_B, "skill://b/refunds/email.md"]
    assert found[REFUNDS_OF_B]["frontmatter"] == b.server.entry(REFUNDS)["frontmatter"]
    assert files["skill://b/refunds/email.md"]["digest"] == digest("of b")


async def test_each_file_is_read_from_the_server_of_its_skill_and_fits_its_digest() -> None:
    a = SkillUpstream("a", {"refunds": {"email.md": "of a"}})
    b = SkillUpstream("b", {"refunds": {"email.md": "of b"}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        for entry in (await list_skills(client)).values():
            for file in entry["resources"]:
                uri, text = await read_text(client, file["uri"])
                assert uri == file["uri"]
                assert digest(text) == file["digest"]

    assert [each["params"]["uri"] for each in b.heard("resources/read")] == [REFUNDS, "skill://refunds/email.md"]


async def test_a_server_cannot_take_the_place_of_a_skill_that_carries_another_group() -> None:
    """The name of a group decides, not which server lists a URI first."""
    a = SkillUpstream("a", {"b/refunds": {}, "refunds": {}})
    b = SkillUpstream("b", {"refunds": {}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        found = await list_skills(client)
        texts = {uri: (await read_text(client, uri))[1] for uri in found}

    assert texts == {
        "skill://a/b/refunds/SKILL.md": main_file("a", "b/refunds"),
        REFUNDS: main_file("a", "refunds"),
        REFUNDS_OF_B: main_file("b", "refunds"),
    }


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_skill_is_listed_under_a_uri_that_reads_it_where_another_group_is_named_and_has_none(
    order: str,
) -> None:
    upstreams = {"a": SkillUpstream("a", {"b/payroll": {"x.md": "x"}}), "b": SkillUpstream("b", {"other": {}})}
    async with client_of(Opener(**{name: [upstreams[name]] for name in order})) as client:
        await client.initialize()
        found = await list_skills(client)
        entry = found["skill://a/b/payroll/SKILL.md"]
        texts = [(await read_text(client, file["uri"]))[1] for file in entry["resources"]]
        got = await client.request("skills/get", {"uri": entry["uri"]})

    assert "skill://other/SKILL.md" in found
    assert texts == [main_file("a", "b/payroll"), "x"]
    assert got["result"]["skill"] == entry


async def test_a_skill_below_a_directory_with_the_name_of_its_own_group_keeps_its_uri() -> None:
    a = SkillUpstream("a", {"a/refunds": {}})
    async with client_of(Opener(a=[a])) as client:
        await client.initialize()
        assert list(await list_skills(client)) == ["skill://a/refunds/SKILL.md"]
        assert await read_text(client, "skill://a/refunds/SKILL.md") == (
            "skill://a/refunds/SKILL.md",
            main_file("a", "a/refunds"),
        )


async def test_two_skills_of_one_group_that_would_have_one_uri_have_two() -> None:
    a = SkillUpstream("a", {"refunds": {}})
    b = SkillUpstream("b", {"refunds": {}, "b/refunds": {}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        found = await list_skills(client)
        texts = {uri: (await read_text(client, uri))[1] for uri in found}

    assert texts[REFUNDS_OF_B] == main_file("b", "refunds")
    assert texts["skill://b/b/refunds/SKILL.md"] == main_file("b", "b/refunds")


async def test_a_group_whose_name_is_the_beginning_of_anothers_keeps_its_skills_apart() -> None:
    groups = {
        "x": SkillUpstream("x", {"refunds": {}, "b/refunds": {}, "__b/refunds": {}}),
        "a": SkillUpstream("a", {"b/refunds": {}, "__b/refunds": {}}),
        "a/b": SkillUpstream("a/b", {"refunds": {}}),
        "a__b": SkillUpstream("a__b", {"refunds": {}}),
    }
    async with client_of(Opener(**{name: [each] for name, each in groups.items()})) as client:
        await client.initialize()
        texts = {uri: (await read_text(client, uri))[1] for uri in list(await list_skills(client))[3:]}

    assert texts == {
        "skill://a/b/refunds/SKILL.md": main_file("a", "b/refunds"),
        "skill://a/__b/refunds/SKILL.md": main_file("a", "__b/refunds"),
        "skill://a%2Fb/refunds/SKILL.md": main_file("a/b", "refunds"),
        "skill://a__b/refunds/SKILL.md": main_file("a__b", "refunds"),
    }


async def test_one_colliding_file_changes_the_uris_of_its_whole_skill() -> None:
    plain = FakeUpstream(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            },
            "resources/list": {"resources": [{"uri": "skill://refunds/email.md", "name": "email"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{"uri": "skill://refunds/email.md", "text": "not of the skill"}]},
        }
    )
    b = SkillUpstream("b", {"refunds": {"email.md": "of b"}})
    async with client_of(Opener(a=[plain], b=[b])) as client:
        await client.initialize()
        await client.request("resources/list", {})
        (entry,) = (await list_skills(client)).values()

        assert [file["uri"] for file in entry["resources"]] == [REFUNDS_OF_B, "skill://b/refunds/email.md"]
        assert await read_text(client, "skill://b/refunds/email.md") == ("skill://b/refunds/email.md", "of b")


async def test_a_skill_of_another_scheme_keeps_its_name_as_the_last_segment_when_it_collides() -> None:
    uri = "github://owner/repo/skills/refunds/SKILL.md"
    entry = {"uri": uri, "frontmatter": {"name": "refunds", "description": "d"}, "resources": "dynamic"}
    a, b = SkillUpstream("a", {}), SkillUpstream("b", {})
    for upstream in (a, b):
        upstream.answers["skills/list"] = {"skills": [entry]}
        upstream.answers["resources/read"] = {"contents": [{"uri": uri, "text": upstream.server.name}]}
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        first, second = (await list_skills(client)).values()

        assert first == entry
        assert second["uri"].startswith("skill://b/")
        assert second["uri"].endswith("/repo/skills/refunds/SKILL.md")
        assert await read_text(client, second["uri"]) == (second["uri"], "b")
        assert b.heard("resources/read")[0]["params"]["uri"] == uri


# --- skills/get and directories -----------------------------------------------------------------------


async def test_one_skill_is_asked_of_its_owner_and_looks_as_in_the_list() -> None:
    a, b = SkillUpstream("a", {"refunds": {}}), SkillUpstream("b", {"refunds": {"x/y.md": "y"}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        found = await list_skills(client)
        for uri, entry in found.items():
            answer = await client.request("skills/get", {"uri": uri})
            assert answer["result"]["skill"] == entry

    assert [each["params"]["uri"] for each in b.heard("skills/get")] == [REFUNDS]


async def test_a_skill_that_is_not_listed_is_asked_of_all_groups_with_skills_and_no_other() -> None:
    a, b, c = SkillUpstream("a", {}), SkillUpstream("b", {"refunds": {}}), FullUpstream(name="c")
    b.answers["skills/list"] = {"skills": []}
    b.answers["resources/list"] = {"resources": []}
    async with client_of(Opener(c=[c], a=[a], b=[b])) as client:
        await client.initialize()
        await list_skills(client)
        answer = await client.request("skills/get", {"uri": REFUNDS})
        named = await client.request("skills/get", {"uri": REFUNDS_OF_B})

        assert answer["result"]["skill"] == b.server.entry(REFUNDS)
        assert named["result"]["skill"]["uri"] == REFUNDS_OF_B
        assert await read_text(client, REFUNDS_OF_B) == (REFUNDS_OF_B, main_file("b", "refunds"))
    assert not [each for each in c.sent if each.get("method", "").startswith("skills/")]


@pytest.mark.parametrize("method", ["skills/get", "resources/directory/read"])
@pytest.mark.parametrize("uri", ["skill://nope/SKILL.md", "skill://b/nope/SKILL.md", "skill://refunds/email.md"])
async def test_what_is_no_skill_or_directory_is_invalid_params(method: str, uri: str) -> None:
    a, b = SkillUpstream("a", {"refunds": {"email.md": ""}}), SkillUpstream("b", {"refunds": {}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await list_skills(client)
        assert (await client.request(method, {"uri": uri}))["error"]["code"] == -32602


@pytest.mark.parametrize("directories", [True, False])
async def test_a_directory_is_read_from_its_server_or_from_the_entry_where_that_has_no_directories(
    directories: bool,
) -> None:
    a = SkillUpstream("a", {"refunds": {}})
    b = SkillUpstream("b", {"refunds": {"x/y.md": "y", "z.md": "z"}}, directories=directories)
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await list_skills(client)
        answer = await client.request("resources/directory/read", {"uri": "skill://b/refunds"})

    uris = {each["uri"] for each in answer["result"]["resources"]}
    assert uris == {REFUNDS_OF_B, "skill://b/refunds/x", "skill://b/refunds/z.md"}
    assert len(b.heard("resources/directory/read")) == directories


# --- pages, hints, failures ------------------------------------------------------------------------------


async def test_all_pages_of_each_server_are_read() -> None:
    a = SkillUpstream("a", {f"s{number}": {} for number in range(7)}, page=3)
    async with client_of(Opener(a=[a])) as client:
        await client.initialize()
        assert len(await list_skills(client)) == 7


async def test_of_a_long_list_only_the_page_is_worked_on_and_each_page_has_its_own_uris(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lists, "PAGE_ENTRIES", 2)
    a = SkillUpstream("a", {"refunds": {}, "x": {}, "y": {}})
    b = SkillUpstream("b", {"refunds": {}, "z": {}})
    found: list[str] = []
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize()
        await list_skills(client)
        params: Json = {}
        while params is not None:
            with counting(skill_uris.listed_skill) as calls:
                page = (await client.request("skills/list", params))["result"]
            assert len(calls) == len(page["skills"]) <= 2
            found += [each["uri"] for each in page["skills"]]
            params = {"cursor": page["nextCursor"]} if "nextCursor" in page else None

    assert found == [REFUNDS, "skill://x/SKILL.md", "skill://y/SKILL.md", REFUNDS_OF_B, "skill://z/SKILL.md"]


async def test_a_group_that_fails_costs_the_others_nothing_and_is_said_to_be_missing() -> None:
    a, b = SkillUpstream("a", {"refunds": {}}), SkillUpstream("b", {"refunds": {}})
    del b.answers["skills/list"]  # it never answers
    async with client_of(Opener(a=[a], b=[b], c=[Unreachable("c", "no such host")])) as client:
        await client.initialize()
        answer = await client.request("skills/list", {})

    assert [each["uri"] for each in answer["result"]["skills"]] == [REFUNDS]
    assert set(answer["result"]["_meta"]["dynamic-mcp/missing"]) == {"b", "c"}


async def test_a_modern_client_is_told_the_shortest_time_and_private_if_any_is() -> None:
    a, b = SkillUpstream("a", {"refunds": {}}), SkillUpstream("b", {"refunds": {}})
    entries = a.server.answer("skills/list", {})["skills"]
    a.answers["skills/list"] = {"skills": entries, "ttlMs": 3000, "cacheScope": "public"}
    b.answers["skills/list"] = {"skills": entries, "ttlMs": 9000, "cacheScope": "private"}
    async with modern_client_of(Opener(a=[a], b=[b])) as client:
        result = (await client.request("skills/list", {}))["result"]
        got = (await client.request("skills/get", {"uri": REFUNDS}))["result"]

    assert result["resultType"] == got["resultType"] == "complete"
    assert 0 < result["ttlMs"] <= 3000
    assert result["cacheScope"] == "private"
    assert (got["ttlMs"], got["cacheScope"]) == (0, "private")


async def test_changed_skills_are_announced_as_resources_and_listed_anew() -> None:
    a = SkillUpstream("a", {"refunds": {}})
    async with client_of(Opener(a=[a])) as client:
        await client.initialize()
        found = await list_skills(client)
        a.server.add("new-skill", {})
        a.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        times = 0
        while list(found) == [REFUNDS]:
            times += 1
            await client.hears("notifications/resources/list_changed", times)
            found = await list_skills(client)

        assert list(found) == [REFUNDS, "skill://new-skill/SKILL.md"]


# --- what is declared ----------------------------------------------------------------------------------


async def test_the_extension_is_declared_where_a_group_declares_it_with_what_any_of_them_supports() -> None:
    a, b = SkillUpstream("a", {"refunds": {}}, directories=False), SkillUpstream("b", {})
    async with client_of(Opener(a=[a], b=[b], c=[FullUpstream(name="c")])) as client:
        capabilities = await _connect(client, "a", "b", "c")
    assert capabilities["extensions"][EXTENSION] == {"directoryRead": True}


async def test_nothing_is_declared_and_nothing_asked_where_no_group_has_skills() -> None:
    c = FullUpstream(name="c")
    async with client_of(Opener(c=[c])) as client:
        capabilities = await _connect(client, "c")
        answer = await client.request("skills/list", {})

    assert EXTENSION not in capabilities.get("extensions", {})
    assert answer["result"]["skills"] == []
    assert not c.heard("skills/list")


async def test_a_config_without_the_resources_of_a_server_is_without_its_skills() -> None:
    a = SkillUpstream("a", {"refunds": {}})
    without = Features(tools=True, resources=False, prompts=True)
    async with client_of(Opener(a=[a]), group_config("a", features=without)) as client:
        capabilities = await _connect(client, "a")
        assert EXTENSION not in capabilities.get("extensions", {})
        assert await list_skills(client) == {}
        assert (await client.request("skills/get", {"uri": REFUNDS}))["error"]["code"] == -32602
    assert not a.heard("skills/list") + a.heard("skills/get")


# --- a group alone -------------------------------------------------------------------------------------


async def test_a_group_alone_has_its_skills_as_they_came() -> None:
    a, b = SkillUpstream("a", {"refunds": {}}), SkillUpstream("b", {"refunds": {}})
    async with client_of(Opener(a=[a], b=[b])) as client:
        alone = Client(client.server, only="b")
        await alone.initialize()
        assert await list_skills(alone) == {REFUNDS: b.server.entry(REFUNDS)}
        answer = json.loads(await alone.exchange("skills/get", {"uri": REFUNDS}))
        assert answer["result"] == b.server.answer("skills/get", {"uri": REFUNDS})
