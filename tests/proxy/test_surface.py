"""`direct: "auto"`: each client is listed what suits it, as far as it is known; others get the two tools."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.access import Profile
from dynamic_mcp.config.resolved import DirectLimit
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.surface import surface_of
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config, tool
from tests.modern_client import ModernClient
from tests.proxy.app_servers import HOST, LINKED, app_server, with_meta

AUTO = DirectTools(is_auto=True)
ALL = DirectTools(is_all=True)
GET = "get_dynamic_tools"
CHANGED = "notifications/tools/list_changed"
TWO = ["get_dynamic_tools", "call_dynamic_tool"]
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
SEARCHES = {"name": "claude-code", "version": "2.1.330"}
PLAIN = {"name": "opencode", "version": "1.18.33"}


def _opener(**tools: tuple[str, ...]) -> Opener:
    return Opener(**{name: [FakeUpstream({"tools/call": DONE}, tools=each)] for name, each in tools.items()})


async def _names(client: Client | ModernClient) -> list[str]:
    return [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]


@contextlib.asynccontextmanager
async def _proxy(opener: Opener, **direct: DirectTools) -> AsyncIterator[Proxy]:
    groups = [group_config(name, direct=direct.get(name, DirectTools())) for name in opener.plan]
    proxy = Proxy(config_of(*groups), opener=opener)
    try:
        yield proxy
    finally:
        await proxy.close()


async def test_a_client_that_searches_tools_itself_gets_them_and_another_one_gets_the_two() -> None:
    opener = _opener(git=("log", "show"), zoo=("feed",))
    async with _proxy(opener, git=AUTO, zoo=AUTO) as proxy:
        searching, plain = Client(proxy), Client(proxy)
        instructions = [
            (await each.initialize(client_info=info))["result"]["instructions"]
            for each, info in ((searching, SEARCHES), (plain, PLAIN))
        ]

        assert await _names(searching) == ["git__log", "git__show", "zoo__feed"]
        assert await _names(plain) == TWO
        assert [GET in each for each in instructions] == [False, True]


async def test_the_same_holds_for_clients_that_introduce_themselves_with_each_request() -> None:
    async with _proxy(_opener(git=("log",)), git=AUTO) as proxy:
        searching, plain = ModernClient(proxy, info=SEARCHES), ModernClient(proxy, info=PLAIN)

        assert await _names(searching) == ["git__log"]
        assert await _names(plain) == TWO
        # what one client gets is not for another one's cache
        assert (await plain.request("tools/list"))["result"]["cacheScope"] == "private"


@pytest.mark.parametrize("method", ["tools/list", "ping"])
async def test_a_request_before_the_introduction_decides_nothing(method: str) -> None:
    async with _proxy(_opener(git=("log",)), git=AUTO) as proxy:
        client = Client(proxy)
        await client.request(method)

        await client.initialize(client_info=SEARCHES)
        assert await _names(client) == ["git__log"]

        await client.initialize(client_info=PLAIN)
        assert await _names(client) == TWO


async def test_a_listed_name_means_the_same_tool_with_each_client() -> None:
    opener = _opener(git=("log",))
    async with _proxy(opener, git=AUTO) as proxy:
        for info in (SEARCHES, PLAIN):
            client = Client(proxy)
            await client.initialize(client_info=info)
            answer = await client.request("tools/call", {"name": "git__log", "arguments": {}})
            assert answer["result"] == DONE
            assert await client.call("git", "log") == DONE


async def test_a_group_without_auto_stays_behind_the_two_tools_for_every_client() -> None:
    async with _proxy(_opener(git=("log",), zoo=("feed",)), git=AUTO) as proxy:
        client = Client(proxy)
        await client.initialize(client_info=SEARCHES)

        listed = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in listed] == [*TWO, "git__log"]
        assert listed[0]["inputSchema"]["properties"]["group"]["enum"] == ["zoo"]


async def test_a_new_tool_is_announced_only_to_the_clients_that_are_listed_it() -> None:
    opener = _opener(git=("log",))
    async with _proxy(opener, git=AUTO) as proxy:
        searching, plain = Client(proxy), Client(proxy)
        for client, info in ((searching, SEARCHES), (plain, PLAIN)):
            await client.initialize(client_info=info)
            await _names(client)
        before = [len(each.heard(CHANGED)) for each in (searching, plain)]

        (upstream,) = opener.upstreams
        upstream.answers["tools/list"] = {"tools": [tool("log"), tool("new")]}
        upstream.say({"jsonrpc": "2.0", "method": CHANGED})
        await searching.hears(CHANGED, times=before[0] + 1)

        assert await _names(searching) == ["git__log", "git__new"]
        assert len(plain.heard(CHANGED)) == before[1]


async def test_a_reload_that_changes_auto_is_announced_to_the_clients_that_see_it() -> None:
    async with _proxy(_opener(git=("log",)), git=AUTO) as proxy:
        searching, plain = Client(proxy), Client(proxy)
        for client, info in ((searching, SEARCHES), (plain, PLAIN)):
            await client.initialize(client_info=info)
            await _names(client)
        before = [len(each.heard(CHANGED)) for each in (searching, plain)]

        proxy.apply(config_of(group_config("git")))
        await searching.hears(CHANGED, times=before[0] + 1)

        assert await _names(searching) == await _names(plain) == TWO
        assert len(plain.heard(CHANGED)) == before[1]


@pytest.mark.parametrize(
    ("direct", "names"),
    [(AUTO, ["git__log"]), (DirectTools(), TWO), (DirectTools(globs=("l*",)), [*TWO, "git__log"])],
)
async def test_a_profile_decides_in_place_of_its_servers(direct: DirectTools, names: list[str]) -> None:
    profile = Profile("p", direct=direct)
    group = group_config("git", direct=DirectTools() if direct.is_auto else AUTO)
    proxy = Proxy(config_of(group, profiles={"p": profile}), opener=_opener(git=("log",)))
    client = Client(proxy, profile="p")
    await client.initialize(client_info=SEARCHES)

    assert await _names(client) == names
    await proxy.close()


@contextlib.asynccontextmanager
async def _limited(
    opener: Opener, limit: DirectLimit | None, folder: Path | None = None, **direct: DirectTools
) -> AsyncIterator[Client]:
    groups = [group_config(name, direct=direct.get(name, ALL)) for name in opener.plan]
    proxy = Proxy(config_of(*groups, max_direct=limit), opener=opener, state_folder=folder)
    client = Client(proxy)
    await client.initialize()
    try:
        yield client
    finally:
        await proxy.close()


async def test_beyond_the_limit_tools_are_behind_the_two_and_all_can_be_called() -> None:
    opener = _opener(git=("log", "show"), zoo=("feed", "wash"))
    async with _limited(opener, DirectLimit(tools=3)) as client:
        listed = (await client.request("tools/list"))["result"]["tools"]

        assert [each["name"] for each in listed] == [*TWO, "git__log", "git__show", "zoo__feed"]
        assert listed[0]["inputSchema"]["properties"]["group"]["enum"] == ["zoo"]
        assert await client.call("zoo", "wash") == DONE
        assert (await client.request("tools/call", {"name": "zoo__wash", "arguments": {}}))["result"] == DONE


async def test_the_limit_counts_tokens_too() -> None:
    opener = Opener(git=[FakeUpstream({"tools/list": {"tools": [tool("log"), tool("long", description="d" * 900)]}})])
    async with _limited(opener, DirectLimit(tokens=200)) as client:
        assert await _names(client) == [*TWO, "git__log"]


async def test_without_a_limit_everything_is_listed() -> None:
    names = tuple(f"t{number}" for number in range(130))
    async with _limited(_opener(git=names), None) as client:
        assert len(await _names(client)) == 130
    async with _limited(_opener(git=names), DirectLimit()) as client:
        assert len(await _names(client)) == 122


async def test_tools_that_are_named_are_listed_before_those_of_whole_servers() -> None:
    opener = _opener(git=("log", "show"), zoo=("feed", "wash"))
    async with _limited(opener, DirectLimit(tools=2), zoo=DirectTools(globs=("wash",))) as client:
        assert await _names(client) == [*TWO, "git__log", "zoo__wash"]


async def test_the_most_used_tools_are_listed_from_the_next_start_on(tmp_path: Path) -> None:
    names = ("log", "push", "show")
    async with _limited(_opener(git=names), DirectLimit(tools=1), tmp_path) as client:
        before = await _names(client)
        for _ in range(2):
            await client.call("git", "show")
        await client.call("git", "push")
        assert await _names(client) == before == [*TWO, "git__log"]  # not while clients use it

    async with _limited(_opener(git=names), DirectLimit(tools=1), tmp_path) as client:
        assert await _names(client) == [*TWO, "git__show"]
        await client.call("git", "push")
        await client.call("git", "push")

    async with _limited(_opener(git=names), DirectLimit(tools=1), tmp_path) as client:
        assert await _names(client) == [*TWO, "git__push"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"git": 1}', b'{"git": {"show": "x"}}'])
async def test_a_damaged_count_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tool-uses.json").write_bytes(content)
    async with _limited(_opener(git=("log", "show")), DirectLimit(tools=1), tmp_path) as client:
        assert await _names(client) == [*TWO, "git__log"]


async def test_no_calls_are_counted_where_nothing_is_listed_directly(tmp_path: Path) -> None:
    async with _limited(_opener(git=("log",)), DirectLimit(), tmp_path, git=DirectTools(globs=("l*",))) as client:
        await client.call("git", "log")

    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - a folder of the test


async def test_a_new_tool_beyond_the_limit_changes_no_listed_tool() -> None:
    opener = _opener(git=("log", "show"))
    async with _limited(opener, DirectLimit(tools=2)) as client:
        assert await _names(client) == ["git__log", "git__show"]
        before = len(client.heard(CHANGED))
        (upstream,) = opener.upstreams
        upstream.answers["tools/list"] = {"tools": [tool("log"), tool("show"), tool("new")]}
        upstream.say({"jsonrpc": "2.0", "method": CHANGED})
        await client.hears(CHANGED, times=before + 1)

        assert await _names(client) == [*TWO, "git__log", "git__show"]


async def test_tools_with_uis_come_first_within_the_limit_for_a_client_that_renders_them() -> None:
    upstream = app_server(tool("plain"), with_meta("show", LINKED))
    groups = [group_config("clock", direct=ALL)]
    proxy = Proxy(config_of(*groups, max_direct=DirectLimit(tools=1)), opener=Opener(clock=[upstream]))
    rendering, plain = Client(proxy), Client(proxy)
    await rendering.initialize(capabilities=HOST)
    await plain.initialize()

    assert await _names(rendering) == [*TWO, "clock__show"]
    assert await _names(plain) == [*TWO, "clock__plain"]
    await proxy.close()


async def test_a_list_that_some_clients_get_with_uis_is_for_no_shared_cache() -> None:
    opener = Opener(clock=[app_server(with_meta("show", LINKED))], zoo=[FakeUpstream(tools=("feed",))])
    for only, scope in ((("clock", "zoo"), "private"), (("zoo",), "public")):
        proxy = Proxy(config_of(*map(group_config, only)), opener=opener)
        client = ModernClient(proxy)
        await client.call(only[0], "any")  # so that its tools are known

        assert (await client.request("tools/list"))["result"]["cacheScope"] == scope
        await proxy.close()


@pytest.mark.parametrize(
    ("name", "version", "searches"),
    [
        ("claude-code", "2.1.330", True),
        ("claude-code", "2.0.14", False),
        ("claude-code", "", False),
        ("claude-code", "next", False),
        ("codex-mcp-client", "0.169.0", True),
        ("Claude-Code", "2.1.330", False),
        ("another", "9", False),
        ("", "", False),
    ],
)
def test_a_client_is_known_by_its_name_and_version(name: str, version: str, searches: bool) -> None:
    hello = ClientInfo(client_info=Raw(wire.encode({"name": name, "version": version})))

    assert surface_of(hello).searches_tools is searches


@pytest.mark.parametrize(
    ("capabilities", "renders"),
    [
        ({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}, True),
        ({"extensions": {"io.modelcontextprotocol/other": {}}}, False),
        ({"extensions": []}, False),
        ({}, False),
    ],
)
def test_a_client_renders_apps_if_it_declares_the_extension(capabilities: Json, renders: bool) -> None:
    assert surface_of(ClientInfo(capabilities=Raw(wire.encode(capabilities)))).renders_apps is renders
