"""`get_dynamic_tools`: one JSON object first, its best match first, and a short wait for what is not known."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.resolved import CallHandling, Features
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.proxy.lists import WAIT_S
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    BOUND_S,
    Client,
    FakeUpstream,
    Json,
    Opener,
    PresentedGroup,
    client_of,
    config_of,
    group_config,
    settled,
    text_of,
    tool,
)

CODE = [
    tool("create_issue", description="Open a new issue. Needs write access."),
    tool("list_issues", description="List the issues of a repository"),
    tool("delete_branch", description="Remove a branch"),
]
DAYS = [tool("create_event", description="Put an appointment into the calendar"), tool("list_events")]


def upstream(tools: list[Json], **answers: Json) -> FakeUpstream:
    return FakeUpstream({"tools/list": {"tools": tools}, **answers})


@contextlib.asynccontextmanager
async def learnt(*configs: PresentedGroup, **plan: FakeUpstream | Unreachable) -> AsyncIterator[Client]:
    """Run a proxy in front of these groups, which have told what they have."""
    async with client_of(Opener(**{name: [each] for name, each in plan.items()}), *configs) as client:
        await client.initialize()
        await settled()
        yield client


async def get(client: Client, **arguments: Json) -> dict[str, Json]:
    answer = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    result: dict[str, Json] = answer["result"]
    return result


async def rows(client: Client, **arguments: Json) -> list[dict[str, Json]]:
    """Return the tools in the object that is the first block."""
    result = await get(client, **arguments)
    assert not result.get("isError"), result
    return tools_in(result)


def tools_in(result: dict[str, Json]) -> list[dict[str, Json]]:
    found: dict[str, list[dict[str, Json]]] = json.loads(text_of(result))
    assert list(found) == ["tools"]
    return found["tools"]


async def names(client: Client, **arguments: Json) -> list[str]:
    return [row["name"] for row in await rows(client, **arguments)]


async def remarks(client: Client, **arguments: Json) -> str:
    return "\n".join(block["text"] for block in (await get(client, **arguments))["content"][1:])


# --- searching -----------------------------------------------------------------------------------------


async def test_a_query_without_a_group_ranks_the_tools_of_all_and_names_their_groups() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        found = await rows(client, query="create issue")

        assert (found[0]["group"], found[0]["name"]) == ("code", "create_issue")
        assert ("days", "create_event") in [(row["group"], row["name"]) for row in found]


async def test_a_query_within_a_group_stays_there() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        assert await names(client, group="days", query="create event") == ["create_event", "list_events"]
        assert await names(client, group="days", query="create an appointment") == ["create_event"]


async def test_the_first_block_is_one_compact_object_also_when_there_are_remarks() -> None:
    async with learnt(code=upstream(CODE), down=Unreachable("down", "gone", final=True)) as client:
        for arguments in ({"query": "issue"}, {"query": "zebra"}, {"group": "code"}, {"group": "code", "query": "x"}):
            content = (await get(client, **arguments))["content"]

            shown = content[0]["text"]
            assert isinstance(json.loads(shown), dict)
            assert json.dumps(json.loads(shown), separators=(",", ":"), ensure_ascii=False) == shown
            assert all(block["type"] == "text" and block["text"][0] not in "{[" for block in content[1:])


async def test_the_same_state_gives_the_same_bytes() -> None:
    answers = set()
    for _ in range(2):
        async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
            for _ in range(2):
                answers.add(json.dumps(await get(client, query="create something for the calendar issue")))

    assert len(answers) == 1


async def test_there_are_at_most_eight_and_the_exact_name_is_first() -> None:
    many = [tool(f"turn_wheel_{n}", description="Turn the wheel") for n in range(30)]
    async with learnt(many=upstream(many)) as client:
        found = await names(client, query="turn_wheel_17")

        assert len(found) == 8
        assert found[0] == "turn_wheel_17"


async def test_nothing_fits_is_said_with_the_groups_there_are() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        assert await rows(client, query="bake a cake") == []

        said = await remarks(client, query="bake a cake")
        assert "Nothing fits `bake a cake`" in said
        assert "`code`" in said
        assert "`days`" in said


@pytest.mark.parametrize("where", [{}, {"group": "code"}], ids=["all groups", "one group"])
async def test_the_first_search_waits_for_groups_that_are_still_starting(where: dict[str, str]) -> None:
    opener = Opener(code=[upstream(CODE)], days=[upstream(DAYS)])
    async with client_of(opener) as client:
        opener.gate.clear()
        await client.initialize()
        searching = asyncio.create_task(get(client, query="create issue", **where))
        await settled()
        assert not searching.done()

        opener.gate.set()
        result = await asyncio.wait_for(searching, BOUND_S)

        assert tools_in(result)[0]["name"] == "create_issue"
        assert len(result["content"]) == 1


async def test_a_search_does_not_wait_for_ever_and_says_which_groups_it_missed() -> None:
    opener = Opener(code=[upstream(CODE)], slow=[upstream(DAYS)])
    async with client_of(opener) as client:
        opener.gate.clear()
        await client.initialize()

        said = await asyncio.wait_for(remarks(client, query="create issue"), WAIT_S + BOUND_S)

        assert "`code`" in said
        assert "`slow`" in said
        assert "Nothing fits" not in said
        searching = asyncio.create_task(rows(client, group="slow", query="create event"))
        await settled()
        assert searching.done(), "a group is waited for once, not by every search"
        assert searching.result() == []

        opener.gate.set()
        await settled()
        assert await remarks(client, query="create issue") == ""


async def test_a_group_that_is_down_is_named_with_its_reason() -> None:
    broken = Unreachable("down", "the command `x` was not found", final=True)
    async with learnt(code=upstream(CODE), down=broken) as client:
        assert (await names(client, query="create issue"))[0] == "create_issue"
        assert "`down` (the command `x` was not found)" in await remarks(client, query="create issue")


async def test_a_changed_list_is_searched_as_it_is_now() -> None:
    done: Json = {"tools/call": {"content": []}}
    up = upstream(CODE, **done)
    async with learnt(code=up, days=upstream(DAYS)) as client:
        assert await names(client, query="hire a plumber") == []

        up.answers["tools/list"] = {"tools": [*CODE, tool("hire_plumber")]}
        await client.call("code", "hire_plumber")  # an unknown name has the list read again

        assert await names(client, query="hire a plumber") == ["hire_plumber"]


async def test_a_group_that_a_reload_takes_away_is_not_found_any_more() -> None:
    opener = Opener(code=[upstream(CODE)], days=[upstream(DAYS)])
    proxy = Proxy(config_of(group_config("code"), group_config("days")), opener=opener)
    client = Client(proxy)
    try:
        await client.initialize()
        await settled()
        assert await names(client, query="delete_branch") == ["delete_branch"]

        proxy.apply(config_of(group_config("days", description="Appointments")))

        assert await names(client, query="delete_branch") == []
    finally:
        await proxy.close()


async def test_a_group_whose_tools_are_switched_off_is_not_searched() -> None:
    off = group_config("code", features=Features(tools=False, resources=True, prompts=True))
    async with learnt(off, group_config("days"), code=upstream(CODE), days=upstream(DAYS)) as client:
        assert await names(client, query="delete_branch") == []
        assert (await get(client, query="delete_branch", group="code"))["isError"] is True


async def test_searches_at_the_same_time_do_not_mind_each_other() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        found = await asyncio.gather(*(names(client, query=query) for query in ["create_issue", "list_events"] * 20))

        assert [each[0] for each in found] == ["create_issue", "list_events"] * 20


# --- detail --------------------------------------------------------------------------------------------

WIDE = tool(
    "create_issue",
    title="Create issue",
    description="Open a new issue, e.g. for a bug. The second sentence is not told.",
    inputSchema={
        "type": "object",
        "properties": {
            "labels": {"type": "array", "items": {"type": "string"}},
            "state": {"enum": ["open", "closed"]},
            "repo": {"type": "string"},
            "count": {"type": ["integer", "null"]},
            "place": {"type": "object", "properties": {"x": {}, "y": {}}},
            "free": {},
        },
        "required": ["repo"],
    },
)


async def test_brief_is_a_signature_and_the_first_sentence() -> None:
    async with learnt(code=upstream([WIDE])) as client:
        assert await rows(client, group="code", detail="brief") == [
            {
                "name": "create_issue",
                "args": "(repo: str, labels?: str[], state?: open|closed, count?: int, place?: {x, y}, free?)",
                "description": "Open a new issue, e.g. for a bug.",
            }
        ]


async def test_names_are_names() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        assert await rows(client, group="days", detail="names") == [{"name": "create_event"}, {"name": "list_events"}]
        assert (await rows(client, query="delete_branch", detail="names"))[0] == {
            "group": "code",
            "name": "delete_branch",
        }


async def test_full_is_the_tool_with_its_schema() -> None:
    async with learnt(code=upstream([WIDE]), days=upstream(DAYS)) as client:
        (found,) = await rows(client, query="create_issue", group="code", detail="full")
        with_group = (await rows(client, query="create_issue", detail="full"))[0]

        assert found == WIDE
        assert with_group == {"group": "code", **WIDE}


@pytest.mark.parametrize(("count", "is_full"), [(20, True), (21, False)])
async def test_up_to_twenty_tools_are_shown_in_full_and_more_in_brief(count: int, *, is_full: bool) -> None:
    many = [tool(f"turn_{n}", description="Turn the wheel. Then stop it.") for n in range(count)]
    async with learnt(many=upstream(many)) as client:
        for arguments in ({"group": "many"}, {"group": "many", "query": "wheel"}, {"query": "wheel"}):
            found, said = await rows(client, **arguments), await remarks(client, **arguments)

            assert all(("inputSchema" in row) is is_full for row in found)
            assert ("full" in said) is not is_full


async def test_a_tool_that_the_query_names_is_shown_in_full_among_brief_ones() -> None:
    many = [tool(f"turn_{n}", description="Turn the wheel. Then stop it.") for n in range(30)]
    async with learnt(many=upstream(many)) as client:
        named, *others = await rows(client, query="turn_3")

        assert named["name"] == "turn_3"
        assert named["inputSchema"] == {"type": "object"}
        assert not any("inputSchema" in row for row in others)


async def test_a_group_alone_is_listed_in_its_own_order_and_connects_if_it_must() -> None:
    opener = Opener(code=[upstream(CODE)])
    async with client_of(opener) as client:
        await client.initialize()

        assert await names(client, group="code") == ["create_issue", "list_issues", "delete_branch"]
        assert await names(client, group="code", query=" \n\x00") == ["create_issue", "list_issues", "delete_branch"]


LIMITED = CallHandling(validate=None, limit=3000, compact=False)


async def test_a_group_with_ten_thousand_tools_is_listed_within_the_limit_and_says_how_to_narrow_it() -> None:
    many = [tool(f"turn_wheel_{n}", description="Turn the wheel. " * 20) for n in range(10_000)]
    async with learnt(group_config("many", answers=LIMITED), many=upstream(many)) as client:
        result = await get(client, group="many")

        shown = tools_in(result)
        assert [set(row) for row in shown] == [{"name"}] * len(shown)
        assert len(text_of(result)) <= 3000 + len('{"tools":[]}')
        said = await remarks(client, group="many")
        assert f"the first {len(shown)} of 10000 tools" in said
        assert "`query`" in said


@pytest.mark.parametrize(
    ("count", "members"),
    [(30, {"name", "args", "description"}), (60, {"name"})],
    ids=["brief fits", "names fit"],
)
async def test_tools_are_shown_in_the_most_detail_that_shows_all_of_them(count: int, members: set[str]) -> None:
    many = [tool(f"turn_{n}", description="Turn the wheel once, then stop it.") for n in range(count)]
    async with learnt(group_config("many", answers=LIMITED), many=upstream(many)) as client:
        found = await rows(client, group="many")

        assert len(found) == count
        assert all(set(row) == members for row in found)


async def test_a_few_tools_with_huge_schemas_are_shown_in_brief() -> None:
    properties = {f"field_{n}": {"type": "string", "description": "x" * 200} for n in range(50)}
    wide = [tool(f"turn_{n}", inputSchema={"type": "object", "properties": properties}) for n in range(3)]
    async with learnt(group_config("wide", answers=LIMITED), wide=upstream(wide)) as client:
        assert ["inputSchema" in row for row in await rows(client, group="wide")] == [False] * 3
        assert ["inputSchema" in row for row in await rows(client, group="wide", detail="full")] == [True]
        assert "Only the first 1 of 3 tools" in await remarks(client, group="wide", detail="full")
        assert (await rows(client, group="wide", query="turn_2", detail="full"))[0]["name"] == "turn_2"


# --- what is asked wrongly -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": ""},
        {"query": "\x00\x1b\u200b"},
        {"query": None, "group": None},
        {"query": 5},
        {"query": ["create"]},
        {"query": {"text": "x"}},
        {"group": "coed", "query": "create"},
        {"query": "create", "detail": "everything"},
        {"query": "create", "detail": 5},
    ],
    ids=json.dumps,
)
async def test_what_cannot_be_meant_is_answered_with_how_to_ask(arguments: Json) -> None:
    async with learnt(code=upstream(CODE)) as client:
        result = await get(client, **arguments)

        assert result["isError"] is True
        assert any(word in text_of(result) for word in ("`code`", "create issue", "`brief`"))


@pytest.mark.parametrize("filler", ["create issue ", "\x1b\x00", "天気", "🎉", "\ud800", "a" * 1000], ids=ascii)
async def test_a_query_of_a_hundred_kilobytes_is_answered_shortly(filler: str) -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        query = (filler * (100_000 // len(filler))) + " create_issue"

        result = await get(client, query=query)

        assert tools_in(result)[0]["name"] == "create_issue"
        assert len(json.dumps(result)) < 3000


async def test_a_query_is_shown_in_one_line() -> None:
    async with learnt(code=upstream(CODE)) as client:
        said = await remarks(client, query="bake\na `cake` \x1b[2J\u2028now")

        assert said.isprintable()


# --- what it costs -------------------------------------------------------------------------------------


def tokens(text: object) -> float:
    return len(text if isinstance(text, str) else json.dumps(text, separators=(",", ":"), ensure_ascii=False)) / 4


async def start_cost(client: Client) -> float:
    hello = (await client.initialize())["result"]["instructions"]
    await settled()
    return tokens(hello) + tokens((await client.request("tools/list"))["result"])


@pytest.mark.parametrize("count", [0, 1, 5, 40])
async def test_a_start_costs_350_tokens_and_30_for_each_group_at_most(count: int) -> None:
    groups = [f"server{n:02}" for n in range(count)]
    title = "What this server is good for, told in one line of the usual length or more"
    welcome = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "title": title},
    }
    plan = {name: [upstream(DAYS, initialize=welcome)] for name in groups}
    async with client_of(Opener(**plan)) as client:
        assert await start_cost(client) <= 350 + 30 * count


def described(n: int) -> Json:
    text = f"Do number {n} of the many things that one can do with a record. It returns what has become of it." * 3
    schema = {
        key: {"type": "string", "description": f"The {key} of it"} for key in ("owner", "repo", "title", "body")
    }
    return tool(f"update_record_{n}", description=text, inputSchema={"type": "object", "properties": schema})


async def test_five_hundred_tools_cost_under_1500_tokens_to_find_and_call_one() -> None:
    plan = {f"server{g}": [upstream([described(50 * g + n) for n in range(50)])] for g in range(10)}
    async with client_of(Opener(**plan)) as client:
        start = await start_cost(client)
        search = tokens({"query": "update a record"}) + tokens(await get(client, query="update a record"))
        arguments = {"group": "server3", "name": "update_record_17", "args": {}}
        call = tokens({"name": "call_dynamic_tool", "arguments": arguments}) + tokens(
            {"content": [], "isError": False}
        )

        assert len(await rows(client, query="update a record")) == 8
        assert start + search + call < 1500


async def test_a_group_with_very_many_words_is_searched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.search.index.MAX_POSTINGS", 100)
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        assert (await names(client, query="appointment"))[0] == "create_event"


# --- what explains a rank ------------------------------------------------------------------------------


async def explained(client: Client, query: str, group: str = "") -> list[tuple[str, str]]:
    proxy = client.server
    assert isinstance(proxy, Proxy)
    return [
        (each.group, each.name) for each in (await proxy.explain_search(client.session, query, group=group)).tools
    ]


@pytest.mark.parametrize("query", ["create issue", "issue", "an appointment", "delete_branch", "zebra", "list", "  "])
async def test_an_explanation_finds_what_a_model_finds_in_its_order(query: str) -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        found = await rows(client, query=query) if query.strip() else []

        assert await explained(client, query) == [(row["group"], row["name"]) for row in found]


async def test_an_explanation_names_the_words_and_where_they_are() -> None:
    async with learnt(code=upstream(CODE), days=upstream(DAYS)) as client:
        proxy = client.server
        assert isinstance(proxy, Proxy)
        explanation = await proxy.explain_search(client.session, "open issue", group="code")
        first = explanation.tools[0]

        assert explanation.searched == len(CODE)
        assert not explanation.compares_meanings
        assert (first.name, first.similarity) == ("create_issue", None)
        assert {each.word: (each.found, each.fields, each.kind) for each in first.words} == {
            "issue": ("issue", ("name", "description"), "same"),
            "open": ("open", ("description",), "same"),
        }


async def test_an_explanation_says_that_the_query_is_a_name() -> None:
    async with learnt(code=upstream(CODE)) as client:
        proxy = client.server
        assert isinstance(proxy, Proxy)
        explanation = await proxy.explain_search(client.session, "DeleteBranch")

        assert explanation.tools[0].naming == "its name, written in another way"


async def test_an_explanation_says_which_groups_were_not_searched() -> None:
    async with learnt(code=upstream(CODE), down=Unreachable("down", "gone", final=True)) as client:
        proxy = client.server
        assert isinstance(proxy, Proxy)

        assert "`down` (gone)" in (await proxy.explain_search(client.session, "issue")).unsearched
