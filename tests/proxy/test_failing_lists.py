"""A list of a server that fails takes nothing else of the server down."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from itertools import chain, combinations
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import ToolFilter
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.status import read_status
from tests.fakes import (
    Client,
    Error,
    FakeUpstream,
    Json,
    Opener,
    PresentedGroup,
    config_of,
    group_config,
    text_of,
    tool,
)
from tests.features.overrides.overridden import rules_of
from tests.features.pins.pinned import Server, pinned_group, proxy_of

NO_NETWORK = Error(-32603, "getaddrinfo ENOTFOUND api.example.com")
READ = {"contents": [{"uri": "x://a", "text": "A"}]}
LISTS: dict[str, Json] = {
    "tools/list": {"tools": [tool("echo")]},
    "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "x://items/{id}", "name": "item"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
}
OTHERS = (ListKind.RESOURCES, ListKind.TEMPLATES, ListKind.PROMPTS)
USES: list[tuple[str, Json, Json]] = [
    ("tools/call", {"name": "echo", "arguments": {}}, {"content": [{"type": "text", "text": "done"}]}),
    ("resources/read", {"uri": "x://a"}, READ),
    ("resources/read", {"uri": "x://items/7"}, READ),
    ("resources/subscribe", {"uri": "x://a"}, {}),
    ("prompts/get", {"name": "greet"}, {"messages": []}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": ""}},
        {"completion": {"values": ["b"]}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "x://items/{id}"}, "argument": {"name": "id", "value": ""}},
        {"completion": {"values": ["b"]}},
    ),
]
SUBSETS = [*chain.from_iterable(combinations(LISTS, count) for count in range(len(LISTS) + 1))]


def upstream(failing: Iterable[str] = (), how: Json = NO_NETWORK) -> FakeUpstream:
    """Return a server whose `failing` lists are answered so; None is not at all."""
    hello = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
    made = FakeUpstream(
        {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": hello, "serverInfo": {"name": "s"}},
            **LISTS,
            **{method: result for method, _, result in USES},
            **dict.fromkeys(failing, how),
        }
    )
    made.answers = {method: answer for method, answer in made.answers.items() if answer is not None}
    return made


@contextlib.asynccontextmanager
async def client_of(
    server: FakeUpstream, only: str | None = None, group: PresentedGroup | None = None, **config: Json
) -> AsyncIterator[Client]:
    proxy = Proxy(config_of(group or group_config("up"), **config), opener=Opener(up=[server]))
    try:
        client = Client(proxy, only=only)
        await client.initialize()
        yield client
    finally:
        await proxy.close()


def named(method: str, params: Json) -> tuple[str, Json]:
    """Return a request as a client of all groups makes it."""
    if method == "tools/call":
        return method, {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "echo", "args": {}}}
    if method == "prompts/get":
        return method, {"name": "up__greet"}
    return method, params


@pytest.mark.parametrize("failing", SUBSETS, ids=lambda each: "+".join(each) or "none")
async def test_one_server_alone_answers_all_but_the_failing_lists_as_it_does_itself(failing: tuple[str, ...]) -> None:
    async with client_of(upstream(failing), only="up") as client:
        for method, listed in LISTS.items():
            answer = await client.request(method)
            if method in failing:
                assert answer["error"] == {"code": NO_NETWORK.code, "message": NO_NETWORK.message}
            else:
                assert answer["result"] == listed
        for method, params, result in USES:
            assert (await client.request(method, params))["result"] == result


@pytest.mark.parametrize("failing", SUBSETS, ids=lambda each: "+".join(each) or "none")
async def test_among_all_servers_only_the_failing_lists_are_missing(failing: tuple[str, ...]) -> None:
    async with client_of(upstream(failing)) as client:
        for kind in OTHERS:
            result = (await client.request(kind.method))["result"]
            missing = result.get("_meta", {}).get("dynamic-mcp/missing", {})
            assert list(missing) == (["up"] if kind.method in failing else [])
            assert len(result[kind.member]) == (kind.method not in failing)
            assert all(kind.method in why and "ENOTFOUND" in why for why in missing.values())
        for method, params, result in USES:
            assert (await client.request(*named(method, params)))["result"] == result


@pytest.mark.parametrize("only", [None, "up"])
async def test_a_list_that_is_never_answered_holds_nothing_else_up(only: str | None) -> None:
    server = upstream(["tools/list"], None)
    async with client_of(server, only=only) as client:
        for method, params, result in USES[1:]:
            written = named(method, params) if only is None else (method, params)
            assert (await client.request(*written))["result"] == result
        for kind in OTHERS:
            assert len((await client.request(kind.method))["result"][kind.member]) == 1


async def test_a_model_that_asks_for_tools_is_told_why_there_are_none() -> None:
    async with client_of(upstream(["tools/list"])) as client:
        ask = {"name": "get_dynamic_tools", "arguments": {"group": "up"}}
        blocks = (await client.request("tools/call", ask))["result"]["content"]
        assert "tools/list" in blocks[-1]["text"]
        assert "ENOTFOUND" in blocks[-1]["text"]

        ask = {"name": "get_dynamic_tools", "arguments": {"query": "echo"}}
        blocks = (await client.request("tools/call", ask))["result"]["content"]
        assert "ENOTFOUND" in blocks[-1]["text"]


async def test_status_says_which_list_fails_and_why() -> None:
    proxy = Proxy(config_of(group_config("up")), opener=Opener(up=[upstream(["prompts/list"])]))
    client = Client(proxy)
    await client.initialize()
    await client.request("prompts/list")

    (group,) = read_status(proxy, "dynamic-mcp.json").groups

    assert (group.state, group.tools) == ("connected", 1)
    assert "prompts/list" in group.missing
    assert "ENOTFOUND" in group.missing
    await proxy.close()


async def test_a_tool_that_the_filter_keeps_back_is_not_called_because_its_list_fails() -> None:
    server = upstream(["tools/list"])
    group = group_config("up", tools=ToolFilter(include=("*",), exclude=("echo",)))
    async with client_of(server, group=group) as client:
        result = await client.call("up", "echo")
        assert result["isError"] is True
        assert "ENOTFOUND" in text_of(result)
    assert server.heard("tools/call") == []


async def test_a_tool_that_is_shown_in_another_way_is_not_called_as_it_is() -> None:
    server = upstream(["tools/list"])
    group = group_config("up", rules=rules_of(echo={"arguments": {"path": {"fixed": "/srv"}}}))
    async with client_of(server, group=group) as client:
        assert (await client.call("up", "echo"))["isError"] is True
    assert server.heard("tools/call") == []


@pytest.mark.parametrize("only", [None, "up"])
async def test_what_is_held_until_it_is_known_is_not_called(tmp_path: Path, only: str | None) -> None:
    server = Server(tool("read_file"))
    server.answers["tools/list"] = NO_NETWORK
    async with proxy_of(tmp_path, pinned_group("up", "hold"), up=server) as proxy:
        client = Client(proxy, only=only)
        await client.initialize()
        params = {"name": "read_file", "arguments": {}}
        if only is None:
            params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "read_file"}}
        answer = json.dumps(await client.request("tools/call", params))
    assert "its definition is not known" in answer
    assert "tools/list could not be read" in answer
    assert server.calls() == []


async def test_with_warn_a_tool_of_a_list_that_fails_is_called(tmp_path: Path) -> None:
    server = Server(tool("read_file"))
    server.answers["tools/list"] = NO_NETWORK
    async with proxy_of(tmp_path, pinned_group("up", "warn"), up=server) as proxy:
        client = Client(proxy)
        await client.initialize()
        assert text_of(await client.call("up", "read_file")) == "ran read_file"
