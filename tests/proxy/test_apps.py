"""Apps of several servers: each tool shows its own server's page, and tools for apps do not exist for a model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from dynamic_mcp.config.resolved import CallHandling, Features, ToolFilter
from dynamic_mcp.proxy.apps import AppLinks
from dynamic_mcp.proxy.direct_listing import MAX_OF_APPS
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    Client,
    Error,
    FakeUpstream,
    Json,
    Opener,
    client_of,
    config_of,
    group_config,
    part,
    settled,
    text_of,
    tool,
)
from tests.modern_client import modern_client_of
from tests.policy.rules import access_of, person
from tests.proxy.app_servers import (
    DIRECT,
    DONE,
    HOST,
    LINKED,
    PAGE,
    UI,
    app_only,
    app_server,
    by_name,
    listed,
    read,
    with_meta,
)
from tests.proxy.counting import counting


async def found(client: Client, **arguments: Json) -> list[str]:
    """Return the names that a search finds."""
    answer = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
    return [each["name"] for each in json.loads(text_of(answer["result"]))["tools"]]


async def refusal(client: Client, name: str) -> str:
    """Return why a call of a tool by its name is refused."""
    result = (await by_name(client, name))["result"]
    assert result["isError"]
    return text_of(result)


# --- tools that only apps may call ---------------------------------------------------------------------


async def test_a_tool_for_apps_does_not_exist_for_a_model() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)

        assert await found(client, group="clock") == ["show"]
        assert "poll" not in await found(client, query="poll")
        refused = await client.call("clock", "poll")
        unknown = await client.call("clock", "polk")

        assert refused["isError"]
        assert text_of(refused).replace("poll", "polk") == text_of(unknown)
        assert "poll" not in text_of(unknown)
        assert not upstream.heard("tools/call")


async def test_a_tool_for_apps_is_not_listed_for_a_client_that_shows_none() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with client_of(Opener(clock=[upstream]), group_config("clock", direct=DIRECT)) as client:
        await client.initialize()

        assert list(await listed(client)) == ["clock__show"]
        await read(client, PAGE)
        for name in ("poll", "clock__poll"):
            assert (await refusal(client, name)).startswith("no tool")
        assert not upstream.heard("tools/call")


async def test_an_app_calls_the_tools_of_its_server_by_the_names_that_its_page_has() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        assert (await refusal(client, "poll")).startswith("no tool")

        await read(client, PAGE)

        assert (await by_name(client, "poll"))["result"] == DONE
        assert upstream.heard("tools/call")[0]["params"]["name"] == "poll"
        assert (await client.call("clock", "poll"))["isError"]  # by which a model would call it


@pytest.mark.parametrize("name", ["poll", "clock__poll", "show"])
async def test_what_a_tool_answers_an_app_is_not_cut(name: str) -> None:
    result: Json = {"content": [{"type": "text", "text": "x" * 10_000}]}
    upstream = app_server(with_meta("show", LINKED), app_only("poll"), answers={"tools/call": result})
    async with client_of(
        Opener(clock=[upstream]), group_config("clock", answers=CallHandling(validate=None, limit=100, compact=False))
    ) as client:
        await client.initialize(capabilities=HOST)
        await read(client, PAGE)

        assert (await by_name(client, name))["result"] == result
        assert (await client.call("clock", "show")) != result


async def test_an_app_that_was_not_opened_has_no_tools() -> None:
    clock = app_server(with_meta("show", LINKED), app_only("poll"))
    other = app_server(with_meta("map", {"ui": {"resourceUri": "ui://map/page"}}), app_only("tiles"))
    async with client_of(Opener(clock=[clock], map=[other])) as client:
        await client.initialize(capabilities=HOST)
        await read(client, PAGE)

        assert (await refusal(client, "tiles")).startswith("no tool")
        assert not other.heard("tools/call")


async def test_a_name_that_two_open_apps_have_calls_neither() -> None:
    both = [
        app_server(with_meta("show", {"ui": {"resourceUri": f"ui://{name}/p"}}), app_only("poll")) for name in "ab"
    ]
    async with client_of(Opener(a=[both[0]], b=[both[1]])) as client:
        await client.initialize(capabilities=HOST)
        await read(client, "ui://a/p")
        assert (await by_name(client, "poll"))["result"] == DONE

        await read(client, "ui://b/p")

        assert "more than one group" in await refusal(client, "poll")
        assert [len(each.heard("tools/call")) for each in both] == [1, 0]


@pytest.mark.parametrize("name", ["good__pay", "good.pay", "good/pay"])
@pytest.mark.parametrize("good", [("pay",), ()], ids=["has it", "has it not"])
async def test_an_app_takes_no_call_that_is_meant_for_another_server(name: str, good: tuple[str, ...]) -> None:
    evil, honest = app_server(with_meta(name, LINKED), pages=[PAGE]), app_server(*map(tool, good))
    async with client_of(Opener(good=[honest], evil=[evil])) as client:
        await client.initialize(capabilities=HOST)
        await read(client, PAGE)

        await by_name(client, name)

        assert not evil.heard("tools/call")
        assert (await client.call("evil", name))["content"] == DONE["content"]


@pytest.mark.parametrize("name", ["b__poll", "a__b__poll"])
async def test_of_nested_names_an_app_calls_its_own_server_or_nothing_is_sent(name: str) -> None:
    """The tool `b__poll` of `a` is `a__b__poll` in full, which is the name of the tool `poll` of `a__b`."""
    a = app_server(with_meta("show", LINKED), app_only("b__poll"))
    inner = app_server(with_meta("show", {"ui": {"resourceUri": "ui://inner/page"}}), app_only("poll"))
    async with client_of(Opener(a=[a], a__b=[inner])) as client:
        await client.initialize(capabilities=HOST)
        assert "a__b__poll" in await listed(client)
        await read(client, PAGE)
        answer = (await by_name(client, name))["result"]

        assert inner.heard("tools/call") == []  # its page was not read
        assert [each["params"]["name"] for each in a.heard("tools/call")] == ["b__poll"] * (name == "b__poll")
        assert (answer == DONE) is (name == "b__poll")


async def test_a_tool_that_is_not_for_apps_is_not_what_an_app_means() -> None:
    clock = app_server(with_meta("show", {"ui": {"resourceUri": PAGE, "visibility": ["model"]}}))
    other = app_server(tool("show"))
    async with client_of(Opener(clock=[clock], other=[other])) as client:
        await client.initialize(capabilities=HOST)
        await read(client, PAGE)

        assert "more than one group" in await refusal(client, "show")


async def test_a_tool_for_apps_stays_unknown_while_its_list_cannot_be_read() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        assert await found(client, group="clock") == ["show"]
        upstream.answers["tools/list"] = Error(-32603, "no list today")
        upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await upstream.hears("tools/list", times=2)

        assert (await client.call("clock", "poll"))["isError"]
        assert not upstream.heard("tools/call")


@pytest.mark.parametrize(
    ("meta", "is_for_model"),
    [
        ({"ui": {"visibility": ["app"]}}, False),
        ({"ui": {"visibility": []}}, False),
        ({"openai/visibility": "private"}, False),
        ({"openai/visibility": "private", "ui": {"visibility": ["model"]}}, True),
        ({"openai/visibility": "public"}, True),
        ({"ui": {"visibility": "app"}}, True),
        ({"ui": 7}, True),
        ("ui", True),
    ],
)
async def test_who_may_call_a_tool_is_read_as_the_specification_says_it(meta: Json, *, is_for_model: bool) -> None:
    async with client_of(Opener(up=[app_server(with_meta("t", meta))])) as client:
        await client.initialize(capabilities=HOST)

        assert await found(client, group="up") == (["t"] if is_for_model else [])


async def test_keys_that_are_written_with_escapes_are_read_too() -> None:
    hidden = b'{"name":"poll","inputSchema":{"type":"object"},"_\\u006deta":{"\\u0075i":{"visibility":["app"]}}}'
    upstream = app_server(answers={"tools/list": b'{"tools":[' + hidden + b"]}"})
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize(capabilities=HOST)

        assert await found(client, group="up") == []


# --- lists ----------------------------------------------------------------------------------------------


async def test_a_host_is_listed_the_tools_of_apps_by_themselves_whatever_the_config_says() -> None:
    upstream = app_server(with_meta("show", LINKED), tool("plain"), app_only("poll"))
    async with client_of(Opener(clock=[upstream], other=[app_server(tool("t"))])) as client:
        await client.initialize(capabilities=HOST)

        tools = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in tools] == [
            "get_dynamic_tools",
            "call_dynamic_tool",
            "clock__show",
            "clock__poll",
        ]
        assert tools[0]["inputSchema"]["properties"]["group"]["enum"] == ["clock", "other"]
        assert [each["_meta"] for each in tools[2:]] == [LINKED, {"ui": {"visibility": ["app"]}}]
        assert await found(client, group="clock") == ["show", "plain"]
        assert (await by_name(client, "clock__show"))["result"] == DONE
        assert (await refusal(client, "clock__poll")).startswith("no tool")
        await read(client, PAGE)
        assert (await by_name(client, "clock__poll"))["result"] == DONE


async def test_other_clients_of_the_same_proxy_are_listed_no_tools_of_apps() -> None:
    upstreams = [app_server(with_meta("show", LINKED), app_only("poll")) for _ in range(2)]
    async with client_of(Opener(clock=upstreams)) as host:
        await host.initialize(capabilities=HOST)
        other = Client(host.server)
        await other.initialize()

        assert list(await listed(host)) == ["clock__show", "clock__poll"]
        assert list(await listed(other)) == []


async def test_a_host_hears_of_an_app_that_comes_and_of_nothing_that_changes_no_app() -> None:
    upstream = app_server(tool("plain"))
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        assert list(await listed(client)) == []
        heard = len(client.heard("notifications/tools/list_changed"))

        upstream.answers["tools/list"] = {"tools": [tool("plain"), with_meta("show", LINKED)]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await client.hears("notifications/tools/list_changed", times=heard + 1)
        assert list(await listed(client)) == ["clock__show"]

        upstream.answers["resources/list"] = {"resources": [{"uri": "file:///new", "name": "new"}]}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        await client.hears("notifications/resources/list_changed")
        assert len(client.heard("notifications/tools/list_changed")) == heard + 1


async def test_a_host_hears_of_a_link_that_another_server_changes() -> None:
    a, b = app_server(with_meta("show", LINKED)), app_server(tool("t"))
    async with client_of(Opener(a=[a], b=[b])) as client:
        await client.initialize(capabilities=HOST)
        assert (await listed(client))["a__show"]["_meta"] == LINKED
        heard = len(client.heard("notifications/tools/list_changed"))

        b.answers["resources/list"] = {"resources": [{"uri": PAGE, "name": "page"}]}
        b.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        await client.hears("notifications/tools/list_changed", times=heard + 1)

        assert (await listed(client))["a__show"]["_meta"]["ui"]["resourceUri"] == "ui://a+clock/page.html"


async def test_a_host_hears_of_a_link_that_a_server_without_tools_changes() -> None:
    a, b = app_server(with_meta("show", LINKED)), app_server()
    pages = group_config("b", features=Features(tools=False, resources=True, prompts=True))
    async with client_of(Opener(a=[a], b=[b]), group_config("a"), pages) as client:
        await client.initialize(capabilities=HOST)
        await client.request("resources/list")
        assert (await listed(client))["a__show"]["_meta"] == LINKED
        heard = len(client.heard("notifications/tools/list_changed"))

        b.answers["resources/list"] = {"resources": [{"uri": PAGE, "name": "page"}]}
        b.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        await client.hears("notifications/tools/list_changed", times=heard + 1)

        assert (await listed(client))["a__show"]["_meta"]["ui"]["resourceUri"] == "ui://a+clock/page.html"


async def test_a_server_with_very_many_apps_fills_no_list() -> None:
    many = [with_meta(f"show_{n}", {"ui": {"resourceUri": f"ui://many/{n}"}}) for n in range(500)]
    upstream = app_server(*many, *(app_only(f"poll_{n}") for n in range(500)))
    async with client_of(Opener(many=[upstream], clock=[app_server(with_meta("show", LINKED))])) as client:
        await client.initialize(capabilities=HOST)

        names = list(await listed(client))

        assert names == [*(f"many__show_{n}" for n in range(MAX_OF_APPS)), "clock__show"]
        assert "show_499" in await found(client, group="many", query="show_499")
        await read(client, "ui://many/499")
        assert (await by_name(client, "poll_499"))["result"] == DONE


@pytest.mark.parametrize("per_server", [2, 40])
async def test_however_many_apps_are_listed_their_pages_are_looked_up_as_often(per_server: int) -> None:
    servers = {
        name: app_server(
            *(with_meta(f"t{n}", {"ui": {"resourceUri": f"ui://{name}/{n}"}}) for n in range(per_server))
        )
        for name in "abcd"
    }
    async with client_of(Opener(**{name: [each] for name, each in servers.items()})) as client:
        await client.initialize(capabilities=HOST)
        with counting(AppLinks.look) as looks:
            assert len(await listed(client)) == min(4 * per_server, 120)

        assert len(looks) <= len(servers)


async def test_a_page_that_servers_take_and_give_back_belongs_to_those_that_have_it() -> None:
    a, b = (app_server(with_meta("show", LINKED)) for _ in "ab")
    c = app_server(with_meta("show", {"ui": {"resourceUri": "ui://c/page"}}))
    async with client_of(Opener(a=[a], b=[b], c=[c])) as client:
        await client.initialize(capabilities=HOST)
        assert (await listed(client))["a__show"]["_meta"]["ui"]["resourceUri"] == "ui://a+clock/page.html"

        for server, link, shown in (
            (b, "ui://b/page", {"a": PAGE, "b": "ui://b/page", "c": "ui://c/page"}),
            (c, PAGE, {"a": "ui://a+clock/page.html", "b": "ui://b/page", "c": "ui://c+clock/page.html"}),
            (a, "ui://b/page", {"a": "ui://a+b/page", "b": "ui://b+b/page", "c": PAGE}),
        ):
            await settled()
            heard = len(client.heard("notifications/tools/list_changed"))
            server.answers["tools/list"] = {"tools": [with_meta("show", {"ui": {"resourceUri": link}})]}
            server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await client.hears("notifications/tools/list_changed", times=heard + 1)
            links = {name: tool["_meta"]["ui"]["resourceUri"] for name, tool in (await listed(client)).items()}
            assert links == {f"{name}__show": uri for name, uri in shown.items()}


async def test_a_modern_host_is_listed_the_tools_of_apps() -> None:
    async with modern_client_of(Opener(clock=[app_server(with_meta("show", LINKED), app_only("poll"))])) as client:
        client.capabilities = HOST
        names = [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]
        assert names[2:] == ["clock__show", "clock__poll"]
        client.capabilities = {}
        names = [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]
        assert names[2:] == []


# --- pages ----------------------------------------------------------------------------------------------


def clocks(*, pages: Sequence[str] = ()) -> tuple[FakeUpstream, FakeUpstream]:
    """Return two servers of one kind, which have the same URI for their pages."""
    return app_server(with_meta("show", LINKED), pages=pages, html="A"), app_server(
        with_meta("show", LINKED), pages=pages, html="B"
    )


async def test_a_page_that_one_server_has_keeps_its_uri_and_every_byte() -> None:
    body = b'{"contents":[ {"uri":"ui://clock/page.html", "text":"<p>\\u00e9","_meta":{"ui":{"csp":{ }}}} ],"x":1.0}'
    upstream = app_server(with_meta("show", LINKED), pages=[PAGE], answers={"resources/read": body})
    async with client_of(Opener(clock=[upstream]), group_config("clock", direct=DIRECT)) as client:
        await client.initialize(capabilities=HOST)

        assert (await listed(client))["clock__show"]["_meta"] == LINKED
        assert [each["uri"] for each in (await client.request("resources/list"))["result"]["resources"]] == [PAGE]
        assert part(await client.exchange("resources/read", {"uri": PAGE}), "result") == body


@pytest.mark.parametrize("pages", [(), (PAGE,)], ids=["only linked", "listed"])
async def test_two_servers_with_one_uri_each_show_their_own_page(pages: Sequence[str]) -> None:
    opener = Opener(a=[(both := clocks(pages=pages))[0]], b=[both[1]])
    async with client_of(opener, *(group_config(name, direct=DIRECT) for name in "ab")) as client:
        await client.initialize(capabilities=HOST)
        tools = await listed(client)

        for name, html in (("a", "A"), ("b", "B")):
            meta = tools[f"{name}__show"]["_meta"]
            uri = meta["ui"]["resourceUri"]
            content = (await read(client, uri))["result"]["contents"][0]
            assert uri == f"ui://{name}+clock/page.html"
            assert meta["ui"]["visibility"] == ["model", "app"]
            assert (content["uri"], content["text"]) == (uri, html)
            assert content["_meta"] == {"ui": {"csp": {"connectDomains": ["https://x.test"]}, "domain": "d"}}

        resources = (await client.request("resources/list"))["result"]["resources"]
        assert [each["uri"] for each in resources] == [f"ui://{name}+clock/page.html" for name in "ab" if pages]
        assert [each.heard("resources/read")[0]["params"]["uri"] for each in both] == [PAGE, PAGE]


async def test_the_uri_that_two_servers_share_belongs_to_neither() -> None:
    both = clocks()
    async with client_of(Opener(a=[both[0]], b=[both[1]])) as client:
        await client.initialize(capabilities=HOST)
        await found(client, query="show")

        assert (await read(client, PAGE))["error"]["code"] == -32002
        assert not both[0].heard("resources/read") + both[1].heard("resources/read")


async def test_every_form_of_a_link_is_rewritten() -> None:
    meta = {"ui/resourceUri": PAGE, "openai/outputTemplate": PAGE, "openai/widgetAccessible": True, "other": PAGE}
    opener = Opener(a=[app_server(with_meta("old", meta))], b=[clocks()[0]])
    async with client_of(opener, *(group_config(name, direct=DIRECT) for name in "ab")) as client:
        await client.initialize(capabilities=HOST)

        shown = (await listed(client))["a__old"]["_meta"]

        assert shown == {
            **meta,
            **dict.fromkeys(("ui/resourceUri", "openai/outputTemplate"), "ui://a+clock/page.html"),
        }


async def test_a_tool_shows_no_page_of_another_server() -> None:
    thief = app_server(with_meta("steal", LINKED), html="thief")
    victim = app_server(with_meta("show", LINKED), pages=[PAGE], html="victim")
    opener = Opener(thief=[thief], victim=[victim])
    async with client_of(opener, *(group_config(name, direct=DIRECT) for name in ("thief", "victim"))) as client:
        await client.initialize(capabilities=HOST)
        tools = await listed(client)
        pages = {name: each["_meta"]["ui"]["resourceUri"] for name, each in tools.items()}

        assert (await read(client, pages["thief__steal"]))["result"]["contents"][0]["text"] == "thief"
        assert (await read(client, pages["victim__show"]))["result"]["contents"][0]["text"] == "victim"


async def test_a_server_cannot_take_the_name_that_anothers_page_gets() -> None:
    forged = "ui://b+clock/page.html"
    thief = app_server(with_meta("steal", {"ui": {"resourceUri": forged}}), pages=[forged, PAGE], html="thief")
    opener = Opener(a=[thief], b=[clocks()[1]])
    async with client_of(opener, *(group_config(name, direct=DIRECT) for name in "ab")) as client:
        await client.initialize(capabilities=HOST)
        tools = await listed(client)

        assert tools["a__steal"]["_meta"]["ui"]["resourceUri"] == "ui://a+b+clock/page.html"
        assert tools["b__show"]["_meta"]["ui"]["resourceUri"] == forged
        assert (await read(client, forged))["result"]["contents"][0]["text"] == "B"
        assert (await read(client, "ui://a+b+clock/page.html"))["result"]["contents"][0]["text"] == "thief"


async def test_a_page_that_no_server_is_known_to_have_is_asked_of_none() -> None:
    upstream = app_server(with_meta("show", LINKED))
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize(capabilities=HOST)

        assert (await read(client, "ui://elsewhere/page"))["error"]["code"] == -32002
        assert not upstream.heard("resources/read")


async def test_a_link_that_names_no_page_is_left_out() -> None:
    meta = {
        "ui": {"resourceUri": "file:///etc/passwd", "visibility": ["model"]},
        "openai/outputTemplate": "https://x",
    }
    async with client_of(Opener(up=[app_server(with_meta("t", meta))]), group_config("up", direct=DIRECT)) as client:
        await client.initialize(capabilities=HOST)

        assert (await listed(client))["up__t"]["_meta"] == {"ui": {"visibility": ["model"]}}


async def test_a_template_of_a_page_that_two_servers_have_carries_its_group() -> None:
    templates: Json = {"resourceTemplates": [{"uriTemplate": "ui://x/{id}", "name": "t"}]}
    both = [app_server(tool("t"), html=name, answers={"resources/templates/list": templates}) for name in "ab"]
    async with client_of(Opener(a=[both[0]], b=[both[1]])) as client:
        await client.initialize(capabilities=HOST)
        shown = (await client.request("resources/templates/list"))["result"]["resourceTemplates"]

        assert [each["uriTemplate"] for each in shown] == ["ui://a+x/{id}", "ui://b+x/{id}"]
        content = (await read(client, "ui://b+x/7"))["result"]["contents"][0]
        assert (content["uri"], content["text"]) == ("ui://b+x/7", "b")
        assert (await read(client, "ui://x/7"))["error"]["code"] == -32002


async def test_a_client_hears_of_a_page_by_the_uri_that_it_subscribed_to() -> None:
    both = clocks(pages=[PAGE])
    async with client_of(Opener(a=[both[0]], b=[both[1]])) as client:
        await client.initialize(capabilities=HOST)
        await client.request("resources/list")
        uri = "ui://b+clock/page.html"
        await client.request("resources/subscribe", {"uri": uri})
        assert both[1].heard("resources/subscribe")[0]["params"] == {"uri": PAGE}

        both[1].say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": PAGE}})

        assert (await client.hears("notifications/resources/updated"))["params"]["uri"] == uri
        await client.request("resources/unsubscribe", {"uri": uri})
        assert both[1].heard("resources/unsubscribe")[0]["params"] == {"uri": PAGE}


async def test_a_filtered_tool_makes_no_page_of_its_own() -> None:
    hiding = group_config("a", direct=DIRECT, tools=ToolFilter(("*",), ("show",)))
    opener = Opener(a=[clocks()[0]], b=[clocks()[1]])
    async with client_of(opener, hiding, group_config("b", direct=DIRECT)) as client:
        await client.initialize(capabilities=HOST)

        assert (await listed(client))["b__show"]["_meta"] == LINKED


# --- rules ----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def ruled_client(opener: Opener, *rules: Json, **config: Json) -> AsyncIterator[Client]:
    """Run a proxy in front of direct groups, for a client whose role has these rules."""
    access = access_of(roles={"dev": list(rules)})
    groups = [group_config(name, direct=DIRECT, **config) for name in opener.plan]
    proxy = Proxy(config_of(*groups, access=access), opener=opener)
    try:
        client = Client(proxy, authentication=person("ann", "dev"))
        await client.initialize(capabilities=HOST)
        yield client
    finally:
        await proxy.close()


async def test_a_tool_whose_page_is_hidden_has_no_link_and_no_page_of_another_server() -> None:
    a, b = clocks(pages=[PAGE])
    meta = {**LINKED, "ui/resourceUri": PAGE, "openai/outputTemplate": PAGE, "x": 1}
    a.answers["tools/list"] = {"tools": [with_meta("show", meta)]}
    rules = [{"servers": ["a"], "tools": ["*"]}, {"servers": ["b"]}]
    async with ruled_client(Opener(a=[a], b=[b]), *rules) as client:
        tools = await listed(client)

        assert tools["a__show"]["_meta"] == {"ui": {"visibility": ["model", "app"]}, "x": 1}
        assert tools["b__show"]["_meta"] == LINKED, "nothing tells that another one is hidden"
        assert (await read(client, PAGE))["result"]["contents"][0]["text"] == "B"
        assert (await read(client, "ui://a+clock/page.html"))["error"]["code"] == -32002
        assert not a.heard("resources/read")


async def test_where_resources_are_switched_off_no_tool_links_to_a_page() -> None:
    config = group_config("up", direct=DIRECT, features=Features(tools=True, resources=False, prompts=True))
    async with client_of(Opener(up=[app_server(with_meta("t", {"ui": {"resourceUri": PAGE}}))]), config) as client:
        await client.initialize(capabilities=HOST)

        assert (await listed(client))["up__t"]["_meta"] == {"ui": {}}


async def test_a_tool_that_rules_hide_is_no_tool_of_an_app() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"), app_only("wipe"))
    async with ruled_client(Opener(up=[upstream]), {"tools": ["show", "poll"], "resources": ["*"]}) as client:
        await read(client, PAGE)

        assert (await by_name(client, "poll"))["result"] == DONE
        assert (await refusal(client, "wipe")).startswith("no tool")
        assert [each["params"]["name"] for each in upstream.heard("tools/call")] == ["poll"]


# --- what clients declare -------------------------------------------------------------------------------


async def test_a_server_is_told_what_its_client_declares_of_apps() -> None:
    upstreams = [app_server(with_meta("show", LINKED)) for _ in range(2)]
    async with client_of(Opener(up=list(upstreams))) as host:
        await host.initialize(capabilities=HOST)
        other = Client(host.server)
        await other.initialize()
        await host.call("up", "show")
        await other.call("up", "show")

    declared = [each.heard("initialize")[0]["params"]["capabilities"] for each in upstreams]
    assert sorted(map(str, declared)) == sorted(map(str, [HOST, {}]))


async def test_a_host_is_listed_what_a_server_offers_to_hosts_only_once_it_has_used_the_server() -> None:
    def server() -> FakeUpstream:
        def tools(_: Json) -> Json:
            hello = upstream.heard("initialize")[0]["params"]["capabilities"]
            return {"tools": [with_meta("show", LINKED) if "extensions" in hello else tool("show")]}

        upstream = app_server(answers={"tools/list": tools})
        return upstream

    async with client_of(Opener(up=[server(), server()])) as other:
        await other.initialize()
        await other.call("up", "show")
        host = Client(other.server)
        await host.initialize(capabilities=HOST)

        await host.call("up", "show")
        await host.hears("notifications/tools/list_changed")

        assert (await listed(host))["up__show"]["_meta"] == LINKED


async def test_a_modern_host_opens_an_app_and_calls_its_tools() -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with modern_client_of(Opener(clock=[upstream])) as client:
        client.capabilities = HOST
        params = {"name": "poll", "arguments": {}}
        assert (await client.request("tools/call", params))["result"]["isError"]

        content = (await client.request("resources/read", {"uri": PAGE}))["result"]["contents"][0]

        assert content["text"] == "<p>"
        assert (await client.request("tools/call", params))["result"]["content"] == DONE["content"]
        assert (await client.call("clock", "poll"))["result"]["isError"]
        client.capabilities = {}
        assert (await client.request("tools/call", params))["result"]["isError"]


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"experimental": HOST["extensions"]},
        {"extensions": {UI: True}},
        {"extensions": {UI: {"mimeTypes": ["text/uri-list"]}}},
        {"extensions": {UI: {"mimeTypes": 7}}},
    ],
)
async def test_a_client_that_does_not_declare_pages_of_apps_has_no_tools_of_them(declared: Json) -> None:
    upstream = app_server(with_meta("show", LINKED), app_only("poll"))
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=declared)
        assert "result" in await read(client, PAGE)

        assert (await refusal(client, "poll")).startswith("no tool")


# --- one server by itself -------------------------------------------------------------------------------


async def test_a_server_by_itself_shows_everything_as_it_is() -> None:
    opener = Opener(a=[clocks()[0]], b=[app_server(with_meta("show", LINKED), app_only("poll"), html="B")])
    async with client_of(opener) as first:
        await first.initialize(capabilities=HOST)
        await found(first, query="show")
        client = Client(first.server, only="b")
        await client.initialize()

        assert {name: each["_meta"] for name, each in (await listed(client)).items()} == {
            "show": LINKED,
            "poll": {"ui": {"visibility": ["app"]}},
        }
        assert (await read(client, PAGE))["result"]["contents"][0] | {"_meta": 0} == {
            "uri": PAGE,
            "mimeType": "text/html;profile=mcp-app",
            "text": "B",
            "_meta": 0,
        }
        assert (await by_name(client, "poll"))["result"] == DONE


# --- results of call_dynamic_tool ------------------------------------------------------------------------


OPENAI: Json = {"openai/outputTemplate": PAGE}


async def test_a_result_has_the_link_of_its_tool_for_a_client_that_shows_pages() -> None:
    upstream = app_server(with_meta("show", {**LINKED, **OPENAI}), tool("plain"), pages=[PAGE])
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        links = {"ui": {"resourceUri": PAGE}, "openai/outputTemplate": PAGE}
        assert (await client.call("clock", "show"))["_meta"] == links
        assert "_meta" not in await client.call("clock", "plain")


async def test_a_modern_client_that_shows_pages_gets_the_link_beside_the_name_of_the_server() -> None:
    async with modern_client_of(Opener(clock=[app_server(with_meta("show", LINKED), pages=[PAGE])])) as client:
        client.capabilities = HOST
        result = (await client.call("clock", "show"))["result"]
        assert result["_meta"]["ui"] == {"resourceUri": PAGE}
        assert "io.modelcontextprotocol/serverInfo" in result["_meta"]


async def test_for_other_clients_and_for_listed_tools_the_bytes_of_a_result_stay() -> None:
    upstream = app_server(with_meta("show", LINKED), pages=[PAGE], answers={"tools/call": b'{ "content" : [ ] }'})
    arguments = {"name": "call_dynamic_tool", "arguments": {"group": "clock", "name": "show", "args": {}}}
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize()
        assert b'{ "content" : [ ] }' in await client.exchange("tools/call", arguments)
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        await listed(client)
        by_its_name = {"name": "clock__show", "arguments": {}}
        assert b'{ "content" : [ ] }' in await client.exchange("tools/call", by_its_name)
        assert b"resourceUri" in await client.exchange("tools/call", arguments)


async def test_the_link_in_a_result_is_the_one_that_clients_know() -> None:
    servers = {name: [app_server(with_meta("show", LINKED), pages=[PAGE])] for name in ("work", "home")}
    async with client_of(Opener(**servers)) as client:
        await client.initialize(capabilities=HOST)
        shown = (await listed(client))["work__show"]["_meta"]["ui"]["resourceUri"]
        result = await client.call("work", "show")
        assert result["_meta"]["ui"]["resourceUri"] == shown == "ui://work+clock/page.html"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({**DONE, "_meta": {"ui": {"resourceUri": "ui://own"}, "x": 1}}, {"ui": {"resourceUri": "ui://own"}, "x": 1}),
        ({**DONE, "_meta": {"ui": {"x": 1}}}, {"ui": {"x": 1, "resourceUri": PAGE}}),
        ({**DONE, "_meta": {"ui": "odd"}}, {"ui": "odd"}),
        ({**DONE, "_meta": "odd"}, "odd"),
        ({**DONE, "isError": True}, None),
    ],
)
async def test_what_a_result_says_of_itself_stays(result: Json, expected: Json) -> None:
    upstream = app_server(with_meta("show", LINKED), pages=[PAGE], answers={"tools/call": result})
    async with client_of(Opener(clock=[upstream])) as client:
        await client.initialize(capabilities=HOST)
        assert (await client.call("clock", "show")).get("_meta") == expected


async def test_a_page_that_a_client_may_not_read_is_not_in_a_result() -> None:
    upstream = app_server(with_meta("show", LINKED), pages=[PAGE])
    features = Features(tools=True, resources=False, prompts=True)
    async with client_of(Opener(clock=[upstream]), group_config("clock", features=features)) as client:
        await client.initialize(capabilities=HOST)
        assert "_meta" not in await client.call("clock", "show")
