"""What plug-ins leave out of lists does not exist for the client, and what they change is what is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Rules
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.features.overrides.config import Override
from dynamic_mcp.middleware import (
    CallerInfo,
    CallRequest,
    CallResult,
    Item,
    ListKind,
    Middleware,
    Next,
    PluginServices,
)
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from tests.fakes import BOUND_S, Client, Json, Opener, PresentedGroup, config_of, group_config, text_of, tool
from tests.features.plugins.scene import client_with, proxy_of, upstream, use
from tests.proxy.governed import ALICE

HIDDEN = {"delete", "scold", "x://two", "y://{id}"}
SEEN: list[tuple[str, tuple[str, ...], CallerInfo]] = []
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()
    CALLS.clear()


class Hiding(Middleware):
    """Leaves out what is in `HIDDEN`."""

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        SEEN.append((kind, tuple(each.name for each in items), client))
        return [each for each in items if each.name not in HIDDEN]


class HidingFromAlice(Middleware):
    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        return items if client.subject != "alice" else [each for each in items if each.name not in HIDDEN]


class Describing(Middleware):
    """Gives tools another description and schema, in another order."""

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [each.replace(description="Frobnicates.", inputSchema=schema) for each in reversed(items)]


class Failing(Middleware):
    fails = True

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        if kind == "tools":
            raise RuntimeError("hunter2")
        return items


class FailingAtOnce(Middleware):
    """Fails before there is a coroutine."""

    def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:  # type: ignore[override]
        raise RuntimeError("hunter2")


class Adding(Middleware):
    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        return [*items, Item(kind, items[0].server, "more", b'{"name":"more"}')] if items else items


class Doubling(Middleware):
    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        return [*items, *items]


class Refreshing(Middleware):
    """Hides nothing at first, and everything once it was called."""

    services: PluginServices
    hides = False

    async def open(self, options: Any, services: PluginServices) -> None:
        self.services = services

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        self.hides = True
        self.services.refresh_lists()
        return await next(request)

    async def list(self, kind: ListKind, items: Sequence[Item], client: CallerInfo) -> Sequence[Item]:
        return [] if self.hides and kind == "tools" else items


DIRECT = group_config("a", direct=DirectTools(is_all=True))


def _rich() -> Any:
    templates = {"resourceTemplates": [{"uriTemplate": each, "name": "t"} for each in ("y://{id}", "z://{id}")]}
    return upstream(resources_templates_list=None, **{"resources/templates/list": templates})


async def _names(client: Client, method: str, member: str, key: str = "name") -> list[str]:
    return [each[key] for each in (await client.request(method))["result"][member]]


async def test_what_is_left_out_is_in_no_list_and_no_search() -> None:
    async with client_with(_rich(), use(Hiding), group=DIRECT) as client:
        assert await _names(client, "tools/list", "tools") == ["a__echo"]
        assert await _names(client, "prompts/list", "prompts") == ["a__greet"]
        assert await _names(client, "resources/list", "resources", "uri") == ["x://one"]
        templates = await _names(client, "resources/templates/list", "resourceTemplates", "uriTemplate")
    assert templates == ["z://{id}"]
    async with client_with(_rich(), use(Hiding)) as client:
        for arguments in ({"group": "a"}, {"query": "delete"}):
            found = await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": arguments})
            assert "echo" in text_of(found["result"]) or "query" in arguments
            assert "delete" not in text_of(found["result"])


@pytest.mark.parametrize("only", [None, "a"])
async def test_what_is_left_out_is_answered_as_what_does_not_exist(only: str | None) -> None:
    """The world with a plug-in that hides things answers as one whose server does not have them."""
    without = upstream(
        prompts_list={"prompts": [{"name": "greet"}]},
        resources_list={"resources": [{"uri": "x://one", "name": "r"}]},
    )
    without.answers["tools/list"] = {"tools": [tool("echo")]}
    hiding = _rich()
    without.answers["resources/templates/list"] = {"resourceTemplates": [{"uriTemplate": "z://{id}", "name": "t"}]}
    asked: list[tuple[str, Json]] = [
        ("tools/call", {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "delete"}}),
        ("tools/call", {"name": "a__delete", "arguments": {}}),
        ("tools/call", {"name": "delete", "arguments": {}}),
        ("prompts/get", {"name": "a__scold"}),
        ("prompts/get", {"name": "scold"}),
    ]
    if only is not None:
        asked = [("tools/call", {"name": "delete", "arguments": {}}), ("prompts/get", {"name": "scold"})]
    answers = []
    for server in (hiding, without):
        async with client_with(server, use(Hiding), only=only) as client:
            answers.append([await client.exchange(method, params) for method, params in asked])
    assert answers[0] == answers[1]
    assert not any(b"delete" in line for line in hiding.lines)


@pytest.mark.parametrize("uri", ["x://two", "y://7", "X://two", "x://%74wo", "Y://7", "x://t\two"])
@pytest.mark.parametrize("only", [None, "a"])
async def test_a_resource_that_is_left_out_cannot_be_read(uri: str, only: str | None) -> None:
    server = _rich()
    async with client_with(server, use(Hiding), only=only) as client:
        answer = await client.request("resources/read", {"uri": uri})
        subscribed = await client.request("resources/subscribe", {"uri": uri})
        assert "result" in await client.request("resources/read", {"uri": "z://7"})
    assert answer["error"]["message"] == f"no resource is named `{uri}`"
    assert subscribed["error"] == answer["error"]
    assert [each["params"]["uri"] for each in server.heard("resources/read")] == ["z://7"]


async def test_each_client_has_its_own_lists_of_one_server() -> None:
    config = config_of(DIRECT, middleware=(use(HidingFromAlice),))
    async with proxy_of(config, Opener(a=[upstream()])) as proxy:
        bob, alice = Client(proxy), Client(proxy, authentication=ALICE)
        for client in (bob, alice):
            await client.initialize()
        assert await _names(bob, "tools/list", "tools") == ["a__echo", "a__delete"]
        assert await _names(alice, "tools/list", "tools") == ["a__echo"]
        assert "isError" not in (await bob.request("tools/call", {"name": "a__delete", "arguments": {}}))["result"]
        assert (await alice.request("tools/call", {"name": "a__delete", "arguments": {}}))["result"]["isError"]


async def test_what_is_shown_is_what_arguments_must_fit_and_what_is_searched() -> None:
    async with client_with(upstream(), use(Describing), group=DIRECT) as client:
        assert await _names(client, "tools/list", "tools") == ["a__delete", "a__echo"]
        result = (await client.request("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
        assert result["isError"]
        assert (
            text_of((await client.request("tools/call", {"name": "a__echo", "arguments": {"text": "x"}}))["result"])
            == "x"
        )
    async with client_with(upstream(), use(Describing)) as client:
        found = await client.request(
            "tools/call", {"name": "get_dynamic_tools", "arguments": {"query": "frobnicate"}}
        )
        assert "Frobnicates." in text_of(found["result"])


async def test_items_have_the_servers_own_names_whatever_overrides_show() -> None:
    rules = {"overrides": (Override("delete", rename="remove"),)}
    async with client_with(upstream(), use(Hiding), group=_with_rules(rules)) as client:
        assert await _names(client, "tools/list", "tools") == ["a__echo"]
    assert ("tools", ("echo", "delete")) in {(kind, names) for kind, names, _ in SEEN}


def _with_rules(rules: Rules) -> PresentedGroup:
    return replace(DIRECT, presentation=replace(DIRECT.presentation, rules=rules))


async def test_a_plug_in_is_asked_once_for_a_list_that_stays_the_same() -> None:
    async with client_with(upstream(), use(Hiding), group=DIRECT) as client:
        for _ in range(3):
            await client.request("tools/list")
            await client.request("tools/call", {"name": "a__echo", "arguments": {"text": "x"}})
    assert [kind for kind, _, _ in SEEN].count("tools") == 1


async def test_a_list_that_has_changed_is_shown_as_the_plug_in_wants() -> None:
    server = upstream()
    async with client_with(server, use(Hiding), group=DIRECT) as client:
        await client.request("tools/list")
        told = len(client.heard("notifications/tools/list_changed"))
        server.answers["tools/list"] = {"tools": [tool("delete"), tool("fresh")]}
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        async with asyncio.timeout(BOUND_S):
            while (names := await _names(client, "tools/list", "tools")) == ["a__echo"]:
                told += 1
                await client.hears("notifications/tools/list_changed", told)
    assert names == ["a__fresh"]


async def test_a_plug_in_that_fails_hides_its_list_and_nothing_else() -> None:
    server = upstream()
    async with client_with(server, use(Failing), group=DIRECT) as client:
        listed = (await client.request("tools/list"))["result"]
        called = (await client.request("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
        assert await _names(client, "prompts/list", "prompts") == ["a__greet", "a__scold"]
    assert listed["tools"] == []
    assert "plug-in" in listed["_meta"]["dynamic-mcp/missing"]["a"]
    assert "hunter2" not in str(listed)
    assert called["isError"]
    assert server.heard("tools/call") == []


@pytest.mark.parametrize("plugin", [Failing, FailingAtOnce, Adding, Doubling])
async def test_skip_shows_lists_as_they_are_without_the_plug_in(plugin: type[Middleware]) -> None:
    async with client_with(upstream(), use(plugin, on_error="skip"), group=DIRECT) as client:
        assert await _names(client, "tools/list", "tools") == ["a__echo", "a__delete"]


@pytest.mark.parametrize("plugin", [Adding, Doubling])
async def test_what_a_list_does_not_have_cannot_be_added(plugin: type[Middleware]) -> None:
    async with client_with(upstream(), use(plugin), group=DIRECT) as client:
        assert await _names(client, "tools/list", "tools") == []


async def test_a_plug_in_can_have_lists_made_anew() -> None:
    async with client_with(upstream(), use(Refreshing), group=DIRECT) as client:
        assert await _names(client, "tools/list", "tools") == ["a__echo", "a__delete"]
        told = len(client.heard("notifications/tools/list_changed"))
        await client.request("tools/call", {"name": "a__echo", "arguments": {"text": "x"}})
        await client.hears("notifications/tools/list_changed", told + 1)
        assert await _names(client, "tools/list", "tools") == []


async def test_a_command_sees_what_there_is() -> None:
    config = config_of(DIRECT, middleware=(use(Hiding),))
    async with proxy_of(config, Opener(a=[upstream()])) as proxy:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        session = Session(ClientConnection(lines.put_nowait, is_command=True), proxy)
        hello = b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}'
        session.receive(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}' % hello)
        session.receive(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}')
        async with asyncio.timeout(BOUND_S):
            while b'"id":2' not in (line := await lines.get()):
                pass
    assert b"a__delete" in line
    assert SEEN == []
