"""The section of tools: it finds as a model does, and calls as a client does, what a person may see."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from dynamic_mcp.config.access import Access, AccessRule, Effect
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.shell import quote
from dynamic_mcp.ui.argument_form import key_of
from tests.fakes import (
    BOUND_S,
    Client,
    Error,
    FakeUpstream,
    Json,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    tool,
)
from tests.ui.site import Answer, Browser, Site, bearer_http, site_of

HOSTILE = "<script>alert(1)</script>\"'\u202egnp.exe\x1b[31m"
LARGEST_PAGE = 50_000
PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
ADD = tool(
    "add",
    title="Add up",
    description="Adds two numbers. It is exact.",
    inputSchema={
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "number", "default": 1},
            "how": {"enum": ["fast", "slow"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a"],
    },
)
_READS = {"readOnlyHint": True, "destructiveHint": False}
LOOK = tool("get_numbers", description="Get the numbers", annotations=_READS)
REMOVE = tool("remove_all", description="Removes all numbers", annotations={"destructiveHint": True})
CAPABILITIES: Json = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
RESOURCES: Json = [{"uri": "desk://a b/ü", "name": "Notes", "mimeType": "text/plain"}]


def upstream(tools: list[Json] | None = None, **answers: Json) -> FakeUpstream:
    """Return a server that has tools, a resource, a template and a prompt."""
    return FakeUpstream(
        {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": CAPABILITIES,
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "tools/list": {"tools": [ADD, LOOK, REMOVE] if tools is None else tools},
            "resources/list": {"resources": RESOURCES},
            "resources/templates/list": {
                "resourceTemplates": [{"uriTemplate": "desk://{+path}{?page}", "name": "Any"}]
            },
            "resources/read": lambda params: {"contents": [{"uri": params["uri"], "text": f"read {params['uri']}"}]},
            "prompts/list": {"prompts": [{"name": "tidy", "arguments": [{"name": "how", "required": True}]}]},
            "prompts/get": lambda params: {
                "messages": [{"role": "user", "content": {"type": "text", "text": json.dumps(params["arguments"])}}]
            },
            "tools/call": lambda params: {"content": [{"type": "text", "text": json.dumps(params)}]},
            **{name.replace("__", "/"): each for name, each in answers.items()},
        }
    )


@contextlib.asynccontextmanager
async def desk(
    folder: Path, one: FakeUpstream, *more: PresentedGroup, **settings: Json
) -> AsyncIterator[tuple[Site, Browser]]:
    """Run the page in front of a server that is called `desk`; the lists of it have been read."""
    config = config_of(group_config("desk"), *more, **settings)
    plan = {"desk": [one], **{group.name: [upstream()] for group in more}}
    async with site_of(folder, config, Opener(**plan)) as site:
        browser = await site.local_user()
        for group in config.groups:
            assert (await browser.act(f"/ui/tools/{group.name}", on=f"/ui/tools?group={group.name}")).status == 303
        yield site, browser


async def use(browser: Browser, path: str, fields: Mapping[str, str]) -> Answer:
    """Send the form of a page, and go where that leads."""
    sent = await browser.act(path, fields, on=path)
    return await browser.get(sent.headers["location"]) if sent.status == 303 else sent


def typed(**arguments: str) -> dict[str, str]:
    return {key_of(name): text for name, text in arguments.items()}


def sent_arguments(one: FakeUpstream) -> Json:
    return one.heard("tools/call")[-1]["params"]["arguments"]


# --- finding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["add numbers", "remove", "get_numbers", "GetNumbers", "first", "nothing of it"])
async def test_the_page_finds_what_a_model_finds_in_its_order(tmp_path: Path, query: str) -> None:
    async with desk(tmp_path, upstream(), group_config("shelf")) as (site, browser):
        model = Client(site.proxy)
        await model.initialize()
        request = {"name": "get_dynamic_tools", "arguments": {"query": query}}
        answer = await model.request("tools/call", request)
        found = json.loads(answer["result"]["content"][0]["text"])["tools"]

        page = await browser.get(f"/ui/tools?q={query.replace(' ', '+')}")

        links = [each["href"] for each in page.document.find("a") if each["href"].count("/") == 4]
        assert links == [f"/ui/tools/{each['group']}/{each['name']}" for each in found]
        assert page.status == 200


async def test_a_search_says_why_and_how_much(tmp_path: Path) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        page = await browser.get("/ui/tools?q=erase+numbers&group=desk")

        assert "3 tools of 3" in page.text
        assert "erase means remove in the name" in page.text
        assert "numbers in the description" in page.text
        assert page.document.find("meter")[0]["value"] == "1.000"


async def test_a_search_says_which_groups_it_could_not_search(tmp_path: Path) -> None:
    config = config_of(group_config("down"))
    async with site_of(tmp_path, config, Opener(down=[Unreachable("down", "gone", final=True)])) as site:
        page = await (await site.local_user()).get("/ui/tools?q=numbers")

        assert "Nothing fits" in page.text
        assert "down" in page.text


# --- lists ------------------------------------------------------------------------------------------------


async def test_a_group_shows_what_it_has_and_what_the_rules_make_of_it(tmp_path: Path) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        page = await browser.get("/ui/tools?group=desk")
        resources = await browser.get("/ui/tools?group=desk&kind=resource")

        assert "Add up" in page.text
        assert "Get the numbers reads" in page.text
        assert "Removes all numbers may change" in page.text
        assert "Resources 1 Templates 1 Prompts 1" in page.text
        assert "/ui/tools/desk/resource?uri=desk%3A%2F%2Fa%20b%2F%C3%BC" in {
            each.get("href") for each in resources.document.find("a")
        }


async def test_lists_of_an_earlier_start_say_so_until_they_are_read_again(tmp_path: Path) -> None:
    config, store = config_of(group_config("desk")), CatalogStore(tmp_path / "catalogs")
    loop, saved = asyncio.get_running_loop(), asyncio.Event()

    def note_save(*_: object) -> None:
        loop.call_soon_threadsafe(saved.set)

    store.on_save = note_save
    before = Proxy(config, opener=Opener(desk=[upstream()]), catalog_store=store)
    client = Client(before)
    await client.initialize()
    await client.call("desk", "get_numbers")
    async with asyncio.timeout(BOUND_S):
        await saved.wait()
    await before.close()
    async with site_of(tmp_path, config, Opener(desk=[upstream([LOOK])]), catalog_store=store) as site:
        browser = await site.local_user()

        old = await browser.get("/ui/tools?group=desk")
        await browser.act("/ui/tools/desk", on="/ui/tools?group=desk")
        new = await browser.get("/ui/tools?group=desk")

        assert "from an earlier start" in old.text
        assert "remove_all" in old.text
        assert "from an earlier start" not in new.text
        assert "remove_all" not in new.text


async def test_lists_that_are_not_known_can_be_read(tmp_path: Path) -> None:
    config = config_of(group_config("desk"))
    async with site_of(tmp_path, config, Opener(desk=[upstream()])) as site:
        browser = await site.local_user()

        assert "has not been read yet" in (await browser.get("/ui/tools?group=desk")).text
        read = await browser.act("/ui/tools/desk", {"kind": "prompt"}, on="/ui/tools?group=desk")
        assert read.headers["location"] == "/ui/tools?group=desk&kind=prompt"
        assert "tidy" in (await browser.get(read.headers["location"])).text


async def test_five_hundred_groups_and_a_thousand_tools_are_shown_in_parts(tmp_path: Path) -> None:
    many = [tool(f"tool_{number}", description="Does something. " * 50) for number in range(1000)]
    config = config_of(*(group_config(f"group-{number}", description="x" * 500) for number in range(500)))
    async with site_of(tmp_path, config, Opener(**{"group-0": [upstream(many)]})) as site:
        browser = await site.local_user()
        await browser.act("/ui/tools/group-0", on="/ui/tools?group=group-0")
        groups = await browser.get("/ui/tools")
        tools = await browser.get("/ui/tools?group=group-0&from=50")

        assert max(len(each.response.body) for each in (groups, tools)) < LARGEST_PAGE
        assert "1\N{EN DASH}50 of 500 groups" in groups.text
        assert "51\N{EN DASH}100 of 1,000 tools" in tools.text


async def test_every_row_of_a_hostile_list_can_be_reached_and_no_page_is_large(tmp_path: Path) -> None:
    names = [f"{number}{chr(0x1F600) * 120}" for number in range(120)]
    hostile = [tool(name, title="\u202e" * 500, description="<&" * 5000) for name in names]
    async with desk(tmp_path, upstream(hostile)) as (_, browser):
        path, shown = "/ui/tools?group=desk", set[str]()
        for _ in range(40):
            page = await browser.get(path)
            assert len(page.response.body) < LARGEST_PAGE
            shown |= {each["href"] for each in page.document.find("a") if each["href"].startswith("/ui/tools/desk/")}
            following = page.document.find("a", rel="next")
            if not following:
                break
            path = following[0]["href"]

        assert len(shown) == 120


# --- calling ----------------------------------------------------------------------------------------------


async def test_a_form_becomes_the_arguments_of_a_call(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        page = await browser.get("/ui/tools/desk/add")
        slow = next(each["value"] for each in page.document.find("option") if each["value"].startswith("a"))
        fields = typed(a="12345678901234567890", how=slow, tags="one\r\ntwo\r\n")

        result = await use(browser, "/ui/tools/desk/add", fields)

        assert sent_arguments(one) == {"a": 12345678901234567890, "how": "fast", "tags": ["one", "two"]}
        assert "Result" in result.text
        assert "12345678901234567890" in result.text
        arguments = '{"a":12345678901234567890,"how":"fast","tags":["one","two"]}'
        assert quote("dynamic-mcp", "call", "desk", "add", arguments) in result.text


async def test_a_page_says_what_a_tool_is_and_which_arguments_it_takes(tmp_path: Path) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        page = await browser.get("/ui/tools/desk/add")

        assert "Adds two numbers. It is exact." in page.text
        assert "a required the first" in page.text
        assert "a number; default: 1" in page.text
        assert page.document.find("input", id=key_of("a"))[0]["required"] == ""
        assert "only reads, destroys nothing" in (await browser.get("/ui/tools/desk/get_numbers")).text
        assert "may destroy" in (await browser.get("/ui/tools/desk/remove_all")).text


async def test_what_was_typed_stays_when_something_is_wrong(tmp_path: Path) -> None:
    one, odd = upstream(), f"one{HOSTILE}\n\n"
    async with desk(tmp_path, one) as (_, browser):
        answer = await browser.act("/ui/tools/desk/add", typed(a=HOSTILE, tags=odd), on="/ui/tools/desk/add")

        assert answer.status == 422
        assert "“a” is not a number" in answer.text
        assert answer.document.find("input", id=key_of("a"))[0]["value"] == HOSTILE
        assert odd in answer.document.raw_text
        assert not one.heard("tools/call")


async def test_all_arguments_can_be_one_json_text(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        path = "/ui/tools/desk/add"
        as_json = await browser.act(path, {**typed(a="x", b="2.50"), "do": "json"}, on=path)
        assert '{ "a": "x", "b": 2.50 }' in as_json.text

        wrong = await browser.act(path, {"mode": "json", "json": '{"a": 1,}'}, on=path)
        assert wrong.status == 422
        assert '{"a": 1,}' in wrong.text

        back = await browser.act(path, {"mode": "json", "json": '{"a": 1}', "do": "form"}, on=path)
        assert back.document.find("input", id=key_of("a"))[0]["value"] == "1"

        no_field = await browser.act(path, {"mode": "json", "json": '{"z": 1}', "do": "form"}, on=path)
        assert "no fields for all of this" in no_field.text

        await use(browser, path, {"mode": "json", "json": '{"a": 1, "b": 1.10}'})
        assert sent_arguments(one) == {"a": 1, "b": 1.1}


async def test_a_link_can_fill_in_the_form(tmp_path: Path) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        page = await browser.get("/ui/tools/desk/add?args=%7B%22a%22%3A+7%7D")
        other = await browser.get("/ui/tools/desk/add?args=%7B%22z%22%3A+7%7D")

        assert page.document.find("input", id=key_of("a"))[0]["value"] == "7"
        assert '"z": 7' in other.text


async def test_a_call_is_made_once_however_often_its_result_is_looked_at(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        sent = await browser.act("/ui/tools/desk/get_numbers", on="/ui/tools/desk/get_numbers")
        for _ in range(3):
            assert "Result" in (await browser.get(sent.headers["location"])).text

        assert len(one.heard("tools/call")) == 1


async def test_the_result_of_another_tool_or_an_unknown_one_is_not_shown(tmp_path: Path) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        sent = await browser.act("/ui/tools/desk/get_numbers", on="/ui/tools/desk/get_numbers")
        id = sent.headers["location"].partition("result=")[2]

        for path in (f"/ui/tools/desk/add?result={id}", "/ui/tools/desk/get_numbers?result=none"):
            assert "no longer kept" in (await browser.get(path)).text


async def test_what_goes_wrong_is_shown(tmp_path: Path) -> None:
    failed = {"isError": True, "content": [{"type": "text", "text": "no such number"}]}
    for answer, said in ((failed, "no such number"), (Error(-32603, "broken inside"), "broken inside")):
        async with desk(tmp_path, upstream(tools__call=answer)) as (_, browser):
            page = await use(browser, "/ui/tools/desk/get_numbers", {})

            assert "It failed" in page.text
            assert said in page.text


async def test_a_long_call_does_not_hold_the_page_up_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamic_mcp.ui.primitive_page.ANSWER_WITHIN_S", 0.01)
    one = upstream()
    del one.answers["tools/call"]
    async with desk(tmp_path, one) as (_, browser):
        sent = await browser.act("/ui/tools/desk/get_numbers", on="/ui/tools/desk/get_numbers")
        running = await browser.get(sent.headers["location"])
        await one.hears("tools/call")

        id = sent.headers["location"].partition("result=")[2]
        stopped = await use(browser, "/ui/tools/desk/get_numbers", {"do": "stop", "result": id})

        assert "Running" in running.text
        assert "data-live" in running.document.find("section", id="result")[0]
        assert "Stopped" in (await browser.get(sent.headers["location"])).text or "Stopped" in stopped.text
        await one.hears("notifications/cancelled")


async def test_a_call_that_a_rule_asks_about_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.ui.primitive_page.ANSWER_WITHIN_S", 0.01)
    rules = (AccessRule(), AccessRule(id="careful", effect=Effect.ASK, tools=("remove_*",)))
    one, access = upstream(), Access(roles={"me": rules}, people={"local": ("me",)})
    async with desk(tmp_path, one, access=access) as (_, browser):
        before = await browser.get("/ui/tools/desk/remove_all")
        sent = await browser.act("/ui/tools/desk/remove_all", on="/ui/tools/desk/remove_all")
        waiting = await browser.get(sent.headers["location"])

        assert "careful asks a person first" in before.text
        assert "asks first" in (await browser.get("/ui/tools?group=desk")).text
        assert "It goes on once it is approved" in waiting.text
        assert "/ui/approvals" in {each.get("href") for each in waiting.document.find("a")}
        assert not one.heard("tools/call")


async def test_split_call_tools_are_called_by_the_one_that_fits(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one, split_calls=True) as (_, browser):
        for name in ("get_numbers", "remove_all"):
            assert "Result" in (await use(browser, f"/ui/tools/desk/{name}", {})).text

        assert [each["params"]["name"] for each in one.heard("tools/call")] == ["get_numbers", "remove_all"]


# --- results ----------------------------------------------------------------------------------------------


async def test_small_images_are_shown_and_everything_is_saved_as_a_file(tmp_path: Path) -> None:
    content = [
        {"type": "image", "data": PNG, "mimeType": "text/html"},
        {"type": "image", "data": b64encode(b"<svg onload=alert(1)>").decode(), "mimeType": "image/svg+xml"},
        {"type": "audio", "data": b64encode(b"ID3xyz").decode(), "mimeType": "audio/mpeg"},
    ]
    async with desk(tmp_path, upstream(tools__call={"content": content})) as (_, browser):
        page = await use(browser, "/ui/tools/desk/get_numbers", {})
        links = [each["href"] for each in page.document.find("a") if "download" in each]
        types = [(await browser.get(link)).headers for link in links]

        assert [each["src"][:22] for each in page.document.find("img")] == ["data:image/png;base64,"]
        assert [each["content-type"] for each in types] == [
            "image/png",
            "application/octet-stream",
            "audio/mpeg",
            "application/json",
        ]
        assert all(each["content-disposition"].startswith('attachment; filename="get_numbers') for each in types)
        assert all(each["x-content-type-options"] == "nosniff" for each in types)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": HOSTILE * 20_000}]},
        {"structuredContent": {f"{HOSTILE}{number}": HOSTILE for number in range(2000)}, "content": []},
        {"content": [{"type": "text", "text": HOSTILE}] * 2000},
        {"content": [{"type": "resource_link", "uri": f"x:{HOSTILE}", "name": HOSTILE * 99}] * 99},
    ],
)
async def test_results_are_text_and_the_page_stays_small(tmp_path: Path, result: Json) -> None:
    async with desk(tmp_path, upstream(tools__call=result)) as (_, browser):
        page = await use(browser, "/ui/tools/desk/get_numbers", {})

        assert page.status == 200
        assert len(page.response.body) < LARGEST_PAGE
        assert [each.get("type") for each in page.document.find("script")] == ["module"]
        assert not {"\u202e", "\x1b"} & set(page.document.html)


async def test_a_hostile_tool_is_text_everywhere(tmp_path: Path) -> None:
    properties = {f"p{number}{HOSTILE}": {"enum": [HOSTILE], "description": HOSTILE * 99} for number in range(300)}
    schema = {"type": "object", "properties": properties, "required": [{}], "additionalProperties": HOSTILE}
    hostile = tool(HOSTILE, title=HOSTILE, description=HOSTILE * 5000, inputSchema=schema, annotations=HOSTILE)
    async with desk(tmp_path, upstream([hostile])) as (_, browser):
        listed = await browser.get("/ui/tools?group=desk")
        [path] = {each["href"] for each in listed.document.find("a") if each["href"].startswith("/ui/tools/desk/")}
        pages = [
            listed,
            await browser.get(path),
            await browser.get("/ui/tools?q=script"),
            await use(browser, path, {}),
        ]

        for page in pages:
            assert page.status == 200
            assert len(page.response.body) < LARGEST_PAGE
            assert [each.get("type") for each in page.document.find("script")] == ["module"]
            assert not {"\u202e", "\x1b"} & set(page.document.html)


async def test_what_is_more_than_a_page_shows_is_in_the_download(tmp_path: Path) -> None:
    text = "x" * 60_000 + "end"
    async with desk(tmp_path, upstream(tools__call={"content": [{"type": "text", "text": text}]})) as (_, browser):
        page = await use(browser, "/ui/tools/desk/get_numbers", {})
        [link, _] = [each["href"] for each in page.document.find("a") if "download" in each]

        assert "Only the beginning is shown" in page.text
        assert (await browser.get(link)).response.body.decode() == text


# --- resources and prompts --------------------------------------------------------------------------------


async def test_a_resource_is_read(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        path = "/ui/tools/desk/resource?uri=desk%3A%2F%2Fa%20b%2F%C3%BC"
        page = await use(browser, path, {})

        assert "read desk://a b/ü" in page.text
        assert quote("dynamic-mcp", "read", "desk://a b/ü", "--group", "desk") in page.text
        assert one.heard("resources/read")[-1]["params"]["uri"] == "desk://a b/ü"


async def test_a_template_makes_the_uri_that_is_read(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        path = "/ui/tools/desk/template?uri=desk%3A%2F%2F%7B%2Bpath%7D%7B%3Fpage%7D"
        page = await use(browser, path, typed(path="a/b", page="x y"))

        assert one.heard("resources/read")[-1]["params"]["uri"] == "desk://a/b?page=x%20y"
        assert "read desk://a/b?page=x%20y" in page.text


async def test_a_prompt_is_filled_in_and_its_messages_are_shown(tmp_path: Path) -> None:
    one = upstream()
    async with desk(tmp_path, one) as (_, browser):
        path = "/ui/tools/desk/prompt?name=tidy"
        missing = await browser.act(path, on=path)
        page = await use(browser, path, typed(how="12"))

        assert "“how” is required" in missing.text
        assert "user: Text" in page.text
        assert one.heard("prompts/get")[-1]["params"] == {"name": "tidy", "arguments": {"how": "12"}}


async def test_the_page_of_an_app_is_shown_as_text(tmp_path: Path) -> None:
    read = {"contents": [{"uri": "ui://desk/view", "mimeType": "text/html;profile=mcp-app", "text": "<h1>hi</h1>"}]}
    listed = {"resources": [{"uri": "ui://desk/view", "name": "View"}]}
    async with desk(tmp_path, upstream(resources__read=read, resources__list=listed)) as (_, browser):
        page = await use(browser, "/ui/tools/desk/resource?uri=ui%3A%2F%2Fdesk%2Fview", {})

        assert "<h1>hi</h1>" in page.text
        assert "never run here" in page.text
        assert len(page.document.find("h1")) == 1


async def test_tools_that_are_called_like_the_pages_of_others_are_tools(tmp_path: Path) -> None:
    one = upstream([tool("resource"), tool("prompt")])
    async with desk(tmp_path, one) as (_, browser):
        for name in ("resource", "prompt"):
            assert "Result" in (await use(browser, f"/ui/tools/desk/{name}", {})).text

        assert [each["params"]["name"] for each in one.heard("tools/call")] == ["resource", "prompt"]


@pytest.mark.parametrize(
    "path",
    ["/ui/tools/desk/none", "/ui/tools/none/add", "/ui/tools?group=none", "/ui/tools/desk/prompt?name=none"],
)
async def test_what_is_not_there_is_said_to_be_unknown(tmp_path: Path, path: str) -> None:
    async with desk(tmp_path, upstream()) as (_, browser):
        page = await browser.get(path)

        assert page.status == 400
        assert "is named `none`" in page.text


# --- people -----------------------------------------------------------------------------------------------


async def test_a_person_finds_and_calls_only_what_the_rules_let_them(tmp_path: Path) -> None:
    rules = {"staff": (AccessRule(servers=("desk",), tools=("get_*",)),), "admins": (AccessRule(),)}
    access = Access(roles=rules)
    config = config_of(group_config("desk"), group_config("safe"), access=access, ui=Ui(operators=("admins",)))
    async with site_of(tmp_path, config, Opener(desk=[upstream()], safe=[upstream()])) as site:
        site.configure(site.config, bearer_http())
        eve, ann = await site.person("eve"), await site.person("ann")
        for group in ("desk", "safe"):
            await ann.act(f"/ui/tools/{group}", on=f"/ui/tools?group={group}")

        assert "1 group" in (await eve.get("/ui/tools")).text
        assert "remove_all" not in (await eve.get("/ui/tools?group=desk")).text
        assert "remove_all" not in (await eve.get("/ui/tools?q=remove+all+numbers")).text
        assert "remove_all" in (await ann.get("/ui/tools?q=remove+all+numbers")).text
        assert (await eve.get("/ui/tools/desk/remove_all")).status == 400
        assert (await eve.get("/ui/tools?group=safe")).status == 400


async def test_nobody_sees_the_results_of_another_person(tmp_path: Path) -> None:
    access = Access(roles={"staff": (AccessRule(),), "admins": (AccessRule(),)})
    config = config_of(group_config("desk"), access=access, ui=Ui(operators=("admins",)))
    async with site_of(tmp_path, config, Opener(desk=[upstream()])) as site:
        site.configure(site.config, bearer_http())
        eve, ann = await site.person("eve"), await site.person("ann")
        await eve.act("/ui/tools/desk", on="/ui/tools?group=desk")
        sent = await eve.act("/ui/tools/desk/get_numbers", on="/ui/tools/desk/get_numbers")

        assert "Result" in (await eve.get(sent.headers["location"])).text
        assert "no longer kept" in (await ann.get(sent.headers["location"])).text
