"""A client that sees one group alone sees that server as if there were no proxy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.resolved import CallHandling, Features, ToolFilter
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import (
    Client,
    FullUpstream,
    Json,
    Opener,
    config_of,
    group_config,
    part,
    settled,
    text_of,
)
from tests.proxy.bare import HELLO, Bare, alone, alone_among
from tests.upstreams import full_offers as offers

NO_PROMPTS = Features(tools=True, resources=True, prompts=False)
NOT_RE = ToolFilter(include=("*",), exclude=("re*",))


def call(name: str, **arguments: Json) -> Json:
    return {"name": name, "arguments": arguments}


COMPLETION: Json = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": "b"}}

# What is asked of the server itself and of the proxy, with params that no re-encoder writes the same.
SCRIPT: list[tuple[str, Json]] = [
    ("ping", None),
    ("tools/call", b'{"name":"rich","arguments":{"n": 1.0,"x":%s}}' % offers.LONG),
    ("tools/call", call("plain")),
    ("tools/call", call("fail")),
    ("tools/call", call("need_url")),
    ("tools/call", call("echo", text=["not", "what", "the", "schema", "says"])),
    ("tools/call", b'{"arguments":{"text":7},"name":"echo","x-beside":1}'),
    ("tools/call", call("nothing like it")),
    ("tools/call", call("get_dynamic_tools")),
    ("tools/call", call("up__echo", text="a group's name means nothing here")),
    ("tools/call", call("log", level="error", logger="http")),
    ("resources/read", {"uri": "full://text"}),
    ("resources/read", {"uri": "full://item/7"}),
    ("resources/read", {"uri": "full://nowhere"}),
    ("resources/read", {"uri": "dynamic-mcp://up/full%3A%2F%2Ftext"}),
    ("resources/subscribe", {"uri": "full://text"}),
    ("prompts/get", {"name": "greet", "arguments": {"city": "Oslo", "style": "odd"}}),
    ("prompts/get", {"name": "up__greet"}),
    ("prompts/get", {"name": "nobody"}),
    ("prompts/get", {}),
    ("completion/complete", COMPLETION),
    ("completion/complete", {"ref": {"type": "ref/odd", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
    ("logging/setLevel", {"level": "error"}),
    ("logging/setLevel", {"level": "loud"}),
    ("vendor/echo", b'{"z":%s,"a":{"twice":1,"twice":2},"_meta":{"x": 1}}' % offers.LONG),
    ("vendor/nothing", None),
    ("completions/complete", {}),
]


@pytest.mark.parametrize(("method", "params"), SCRIPT, ids=lambda each: each if isinstance(each, str) else "")
async def test_every_answer_is_the_one_of_the_server_itself(method: str, params: Json) -> None:
    bare = Bare()
    async with alone(FullUpstream()) as client:
        itself, through = await bare.exchange(method, params), await client.exchange(method, params)
        assert wire.parse(through).result == wire.parse(itself).result
        assert wire.parse(through).error == wire.parse(itself).error


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ],
)
async def test_a_list_has_the_bytes_and_the_order_and_the_other_members_of_the_server(
    method: str, member: str
) -> None:
    async with alone(FullUpstream(many=1200, page=500)) as client:
        entries: list[bytes] = []
        cursor: Json = None
        while True:
            page = wire.members(await _result(client, method, {"cursor": cursor} if cursor else {}))
            entries += map(bytes, wire.elements(page[member]))
            if (cursor := wire.text(page.pop("nextCursor", None))) is None:
                break
    itself = wire.members(wire.parse(await Bare(many=1200).exchange(method)).result)
    assert entries == [bytes(each) for each in wire.elements(itself[member])]
    assert {name: value for name, value in page.items() if name != member} == {
        name: value for name, value in itself.items() if name != member
    }


async def _result(client: Client, method: str, params: Json = None) -> bytes:
    return part(await client.exchange(method, params), "result")


# --- initialize ------------------------------------------------------------------------------------------------


async def test_initialize_answers_what_the_server_says_of_itself() -> None:
    itself = wire.members(wire.parse(await Bare(name="git").exchange("initialize", HELLO)).result)
    opener = Opener(up=[FullUpstream(name="git")])
    async with alone_among(opener, group_config("up")) as client:
        assert wire.members(await _result(client, "initialize", HELLO)) == itself


async def test_a_client_of_an_older_revision_gets_it_and_no_capability_that_it_lacks() -> None:
    opener = Opener(up=[FullUpstream()])
    async with alone_among(opener, group_config("up", features=NO_PROMPTS)) as client:
        hello = (await client.initialize("2025-03-26"))["result"]
        assert hello["protocolVersion"] == "2025-03-26"
        assert set(hello["capabilities"]) == set(offers.CAPABILITIES) - {"tasks", "prompts"}
        assert hello["capabilities"]["tools"] == {"listChanged": True, "x-tools": 1}


async def test_a_server_that_cannot_be_reached_is_an_error_that_names_the_reason() -> None:
    opener = Opener(up=[Unreachable("up", "`git-mcp` was not found")])
    async with alone_among(opener, group_config("up")) as client:
        error = (await client.initialize())["error"]
        assert error["code"] == -32603
        assert "`git-mcp` was not found" in error["message"]
        assert (await client.request("ping"))["result"] == {}


async def test_the_server_may_ask_before_it_tells_its_tools_and_is_asked_for_them_after_initialize() -> None:
    upstream = FullUpstream(hang=("tools/list",))
    async with alone_among(Opener(up=[upstream]), group_config("up")) as client:
        answer = await client.initialize(capabilities={"roots": {}})
        assert answer["result"]["serverInfo"]["name"] == "full"
        upstream.say({"jsonrpc": "2.0", "id": 77, "method": "roots/list"})
        question = await client.hears("roots/list")
        client.reply(question, {"roots": []})
        await upstream.hears("an answer")
        assert json.loads(client.lines[0])["id"] == "c1"


async def test_a_server_that_is_known_is_not_connected_to_say_hello_and_list(tmp_path: Path) -> None:
    hellos, lists = [], []
    opener = Opener(up=[FullUpstream()])
    for _ in range(2):
        proxy = Proxy(config_of(group_config("up")), opener=opener, catalog_store=CatalogStore(tmp_path))
        client = Client(proxy, only="up")
        hellos.append(part(await client.exchange("initialize", HELLO), "result"))
        lists.append([await _result(client, f"{each}/list") for each in ("tools", "prompts", "resources")])
        await settled()
        await proxy.close()
    assert hellos[0] == hellos[1]
    assert lists[0] == lists[1]
    assert opener.opened == ["up"]


async def test_a_catalog_that_does_not_tell_what_the_server_says_of_itself_is_read_again(tmp_path: Path) -> None:
    store, config = CatalogStore(tmp_path), group_config("up")
    opener = Opener(up=[FullUpstream()])
    async with alone_among(opener, config) as client:
        await client.initialize()
        await _result(client, "tools/list")
        known = client.server.view_for(client.session)["up"].group.catalog
        assert known is not None
        store.save(config, replace(known, hello=None))
    proxy = Proxy(config_of(config), opener=opener, catalog_store=store)
    client = Client(proxy, only="up")
    assert (await client.initialize())["result"]["serverInfo"]["name"] == "full"
    await proxy.close()
    assert opener.opened == ["up", "up"]


async def test_no_other_group_is_started() -> None:
    opener = Opener(up=[FullUpstream()], other=[FullUpstream()])
    configs = group_config("up"), group_config("other", eager=True)
    async with alone_among(opener, *configs) as client:
        await client.initialize()
        await settled()
        assert opener.opened == ["up"]
        client.server.apply(config_of(group_config("up"), group_config("new", eager=True)))  # type: ignore[attr-defined]
        await settled()
        assert opener.opened == ["up"]


# --- what the config keeps back ----------------------------------------------------------------------------


async def test_an_excluded_tool_is_neither_listed_nor_called_and_any_other_unknown_one_is_the_servers_to_refuse() -> (
    None
):
    upstream = FullUpstream()
    async with alone(upstream, tools=NOT_RE) as client:
        listed = json.loads(await _result(client, "tools/list"))["tools"]
        assert "echo" in {each["name"] for each in listed}
        assert not [each["name"] for each in listed if each["name"].startswith("re")]
        for name in ("release", "renew"):
            for way in (call(name), {**call(name), "task": {}}):
                assert (await client.request("tools/call", way))["error"]["code"] == -32602
        for odd in (None, 7, ["release"]):
            assert (await client.request("tools/call", {"name": odd}))["error"]["code"] == -32602
        assert (await client.request("tools/call", call("unheard-of")))["error"]["message"] == "unknown tool"
        assert [message["params"]["name"] for message in upstream.heard("tools/call")] == ["unheard-of"]


async def test_a_feature_that_is_off_does_not_exist() -> None:
    upstream = FullUpstream()
    async with alone(upstream, features=NO_PROMPTS) as client:
        for method, params in [
            ("prompts/list", {}),
            ("prompts/get", {"name": "greet"}),
            ("prompts/vendor", {}),
            ("completion/complete", COMPLETION),
        ]:
            assert (await client.request(method, params))["error"]["code"] == -32601
        assert upstream.heard("prompts/get") == upstream.heard("completion/complete") == []


async def test_nothing_is_done_to_calls_and_results() -> None:
    upstream = FullUpstream()
    answers = CallHandling(validate=None, limit=1000, compact=True)
    async with alone(upstream, answers=answers) as client:
        params = b'{"name":"echo","arguments":{"text":"%s", "n":"7"},"x":1.0}' % (b"x" * 5000)
        line = await client.exchange("tools/call", params)
        assert text_of(json.loads(line)["result"]) == "x" * 5000
        assert part(upstream.lines[-1], "params", "arguments") == part(params, "arguments")
        assert part(upstream.lines[-1], "params", "x") == b"1.0"


# --- lists that cannot be had --------------------------------------------------------------------------------


async def test_a_list_of_a_server_that_is_down_is_an_error_unless_it_is_known() -> None:
    first = FullUpstream()
    opener = Opener(up=[first, Unreachable("up", "refuses connections")])
    async with alone_among(opener, group_config("up")) as client:
        await client.initialize()
        tools = await _result(client, "tools/list")
        first.die()
        assert (await client.request("resources/read", {"uri": "full://text"}))["error"]["code"] == -32603
        assert await _result(client, "tools/list") == tools
    opener = Opener(up=[Unreachable("up", "refuses connections")])
    async with alone_among(opener, group_config("up")) as client:
        await client.initialize()
        assert "refuses connections" in (await client.request("tools/list"))["error"]["message"]


@pytest.mark.parametrize("options", [{"refuse": ("prompts/list",)}, {"without": ("prompts",)}])
async def test_a_list_that_the_server_refuses_is_refused_in_its_words(options: Json) -> None:
    async with alone(FullUpstream(**options)) as client:
        itself = await Bare(**options).exchange("prompts/list", {})
        assert part(await client.exchange("prompts/list", {}), "error") == part(itself, "error")


async def test_a_list_that_the_server_does_not_know_is_unknown_and_not_empty(tmp_path: Path) -> None:
    opener = Opener(up=[FullUpstream(), FullUpstream()])
    for upstream in opener.plan["up"]:
        assert isinstance(upstream, FullUpstream)
        del upstream.server.handlers["resources/templates/list"]
    for _ in range(2):  # the second time by its catalog on disk
        proxy = Proxy(config_of(group_config("up")), opener=opener, catalog_store=CatalogStore(tmp_path))
        client = Client(proxy, only="up")
        await client.initialize()
        assert (await client.request("resources/templates/list"))["error"]["code"] == -32601
        await settled()
        await proxy.close()


async def test_tools_of_a_server_without_tools_do_not_exist() -> None:
    async with alone(FullUpstream(without=("tools",))) as client:
        assert (await client.request("tools/list"))["error"]["code"] == -32601


async def test_a_cursor_that_is_not_ours_is_refused() -> None:
    async with alone(FullUpstream()) as client:
        assert (await client.request("tools/list", {"cursor": "nonsense"}))["error"]["code"] == -32602
