"""Plug-ins on the way of calls: what they see, what they may change, and that they cannot get around what follows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dynamic_mcp.config.access import Access, AccessRule, Condition, Effect
from dynamic_mcp.config.resolved import CallHandling, Validation
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.middleware import CallerInfo, CallFailed, CallRequest, CallResult, Middleware, Next
from dynamic_mcp.proxy.request import Observers
from tests.fakes import BOUND_S, Client, Json, Opener, config_of, group_config, text_of, tool
from tests.features.approvals.scene import Notes
from tests.features.plugins.scene import client_with, proxy_of, upstream, use
from tests.proxy.governed import ALICE

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}
SEEN: list[CallRequest] = []
ORDER: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()
    ORDER.clear()


class Watching(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        SEEN.append(request)
        ORDER.append("first in")
        result = await next(request)
        ORDER.append("first out")
        return result


class Second(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        ORDER.append("second in")
        result = await next(request)
        ORDER.append("second out")
        return result


class Answering(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return CallResult.error("not today") if request.name != "greet" else CallResult({"messages": []})


class Replacing(Middleware):
    """Replaces the arguments by those that its options say."""

    async def open(self, options: Any, services: Any) -> None:
        self.arguments = options["arguments"]

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return await next(request.replace(arguments=self.arguments))


class Renaming(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return await next(CallRequest(request.kind, request.server, "delete"))


class Twice(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        await next(request)
        return await next(request)


class Translating(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        try:
            result = await next(request)
        except CallFailed as exc:
            return CallResult.error(f"{exc.code}: {exc.message}")
        return result.replace(content=[*result.content, {"type": "text", "text": "and more"}])


def _replace(**arguments: Json) -> Any:
    return use(Replacing, options={"arguments": arguments})


def _schema_upstream() -> Any:
    return upstream(tools_list={"tools": [tool("echo", inputSchema=SCHEMA)]})


async def test_plug_ins_are_passed_in_the_order_of_the_config_and_back() -> None:
    async with client_with(upstream(), use(Watching), use(Second)) as client:
        assert text_of(await client.call("a", "echo", {"text": "there"})) == "there"
    assert ORDER == ["first in", "second in", "second out", "first out"]


async def test_a_plug_in_sees_the_servers_own_name_the_arguments_and_who_calls() -> None:
    async with proxy_of(config_of(group_config("a"), middleware=(use(Watching),)), Opener(a=[upstream()])) as proxy:
        client = Client(proxy)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "7"}}
        await client.request("initialize", hello)
        await client.call("a", "a__echo", '{"text": "there"}', _meta={"trace": 1})
    (request,) = SEEN
    assert (request.kind, request.server, request.name) == ("tool", "a", "echo")
    assert request.arguments == {"text": "there"}
    assert request.meta == {"trace": 1}
    assert request.caller == CallerInfo("user", "local", (), "t", "7")
    assert not request.is_retry


async def test_prompts_and_resources_pass_and_other_requests_do_not() -> None:
    async with client_with(upstream(resources_unsubscribe={}), use(Watching)) as client:
        await client.request("prompts/get", {"name": "greet", "arguments": {"city": "Bonn"}})
        await client.request("resources/read", {"uri": "x://one"})
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "ping"):
            await client.request(method)
        await client.request("resources/unsubscribe", {"uri": "x://one"})
    assert [(each.kind, each.name, each.arguments) for each in SEEN] == [
        ("prompt", "greet", {"city": "Bonn"}),
        ("resource", "x://one", {}),
    ]


async def test_a_call_that_a_server_may_read_in_another_way_than_the_plug_in_is_refused() -> None:
    server = upstream()
    async with client_with(server, use(Watching), only="a") as client:
        answer = await client.request("tools/call", {"name": "echo", "Name": "delete", "arguments": {}})

    assert "`Name` is not a parameter" in answer["error"]["message"]
    assert (SEEN, server.heard("tools/call")) == ([], [])


async def test_a_plug_in_is_passed_only_by_calls_of_its_servers() -> None:
    config = config_of(group_config("one"), group_config("two"), middleware=(use(Watching, servers=("t*",)),))
    async with proxy_of(config, Opener(one=[upstream()], two=[upstream()])) as proxy:
        client = Client(proxy)
        await client.initialize()
        await client.call("one", "echo")
        await client.call("two", "echo")
    assert [each.server for each in SEEN] == ["two"]


async def test_a_plug_in_answers_by_itself_and_nothing_is_sent() -> None:
    server = upstream()
    async with client_with(server, use(Answering), use(Watching)) as client:
        result = await client.call("a", "echo")
        prompt = await client.request("prompts/get", {"name": "greet"})
        refused = await client.request("resources/read", {"uri": "x://one"})
    assert (result["isError"], text_of(result)) == (True, "not today")
    assert prompt["result"] == {"messages": []}
    assert refused["error"] == {"code": -32603, "message": "not today"}
    assert not any(server.heard(method) for method in ("tools/call", "prompts/get", "resources/read"))
    assert SEEN == []


async def test_replaced_arguments_reach_the_server_and_the_plug_ins_after() -> None:
    server = _schema_upstream()
    async with client_with(server, _replace(text="other"), use(Watching)) as client:
        assert text_of(await client.call("a", "echo", {"text": "mine"})) == "other"
    assert server.heard("tools/call")[0]["params"]["arguments"] == {"text": "other"}
    assert SEEN[0].arguments == {"text": "other"}


async def test_observers_are_told_of_replaced_arguments() -> None:
    notes = Notes()
    config = config_of(group_config("a"), middleware=(_replace(text="other"),))
    async with proxy_of(config, Opener(a=[upstream()])) as proxy:
        proxy.observers = Observers([notes])
        client = Client(proxy)
        await client.initialize()
        await client.call("a", "echo", {"text": "mine"})
    params = notes.ended[-1].params
    assert params is not None
    assert json.loads(bytes(params["arguments"])) == {"text": "other"}


async def test_replaced_arguments_must_fit_the_servers_schema_where_the_config_is_strict() -> None:
    server = _schema_upstream()
    group = group_config("a", answers=CallHandling(validate="strict", limit=100_000, compact=False))
    async with client_with(server, _replace(text=5), use(Watching), group=group) as client:
        result = await client.call("a", "echo", {"text": "mine"})
    assert result["isError"]
    assert "a plug-in has replaced the arguments of `echo`" in text_of(result)
    assert server.heard("tools/call") == []
    assert SEEN == []


@pytest.mark.parametrize("validate", [None, "assist", "off"])
async def test_replaced_arguments_are_left_to_the_server_elsewhere(validate: Validation | None) -> None:
    server = _schema_upstream()
    group = group_config("a", answers=CallHandling(validate=validate, limit=100_000, compact=False))
    async with client_with(server, _replace(text=5), group=group) as client:
        await client.call("a", "echo", {"text": "mine"})
    assert server.heard("tools/call")[0]["params"]["arguments"] == {"text": 5}


async def test_the_access_rules_decide_about_replaced_arguments() -> None:
    server = upstream()
    rule = AccessRule("r", Effect.DENY, tools=("echo",), arguments=(Condition("$.text", values=("secret",)),))
    access = Access(default=Effect.ALLOW, roles={"dev": (rule,)})
    plugins = (_replace(text="secret"), use(Watching))
    async with client_with(server, *plugins, access=access, authentication=ALICE) as client:
        result = await client.call("a", "echo", {"text": "mine"})
    assert result["isError"]
    assert server.heard("tools/call") == []
    assert SEEN == []


async def test_what_a_plug_in_writes_into_arguments_is_redacted_too() -> None:
    server = upstream()
    group = group_config("a", rules={"redact": (Redact("r", places=("results", "arguments"), pattern="secret"),)})
    async with client_with(server, _replace(text="my secret"), group=group) as client:
        await client.call("a", "echo", {"text": "mine"})
    assert server.heard("tools/call")[0]["params"]["arguments"] == {"text": "my [redacted]"}


async def test_nothing_of_a_call_that_access_denies_reaches_a_plug_in() -> None:
    access = Access(default=Effect.DENY, roles={})
    async with client_with(upstream(), use(Watching), access=access, authentication=ALICE) as client:
        assert (await client.call("a", "echo", {"text": "mine"}))["isError"]
    assert SEEN == []


@pytest.mark.parametrize("plugin", [Renaming, Twice])
async def test_neither_another_name_nor_a_second_call_gets_to_the_server(plugin: type[Middleware]) -> None:
    server = upstream()
    async with client_with(server, use(plugin)) as client:
        result = await client.call("a", "echo", {"text": "x"})
    assert result["isError"]
    assert "has failed with" in text_of(result)
    assert len(server.heard("tools/call")) == (1 if plugin is Twice else 0)
    assert all(call["params"]["name"] == "echo" for call in server.heard("tools/call"))


async def test_a_plug_in_changes_a_result_and_translates_errors() -> None:
    server = upstream()
    async with client_with(server, use(Translating)) as client:
        result = await client.call("a", "echo", {"text": "x"})
        server.answers.pop("tools/call")
        failing = asyncio.create_task(client.call("a", "echo", {"text": "x"}))
        asked = await server.hears("tools/call", 2)
        server.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32050, "message": "odd"}})
        async with asyncio.timeout(BOUND_S):
            translated = await failing
    assert [block["text"] for block in result["content"]] == ["x", "and more"]
    assert (translated["isError"], text_of(translated)) == (True, "-32050: odd")


async def test_an_error_that_no_plug_in_catches_is_the_servers_own() -> None:
    server = upstream()
    server.answers.pop("prompts/get")
    async with client_with(server, use(Watching), use(Second)) as client:
        asking = asyncio.create_task(client.request("prompts/get", {"name": "greet"}))
        asked = await server.hears("prompts/get")
        error = {"code": -32050, "message": "odd", "data": {"deep": [1.50]}}
        server.say({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        async with asyncio.timeout(BOUND_S):
            assert (await asking)["error"] == error


async def test_a_result_that_no_plug_in_changes_keeps_its_bytes() -> None:
    raw = b'{"content":[{"text":"1.50","type":"text"}],"n":1e400,"o":"\\u00fc"}'
    async with client_with(upstream(tools_call=raw), use(Watching)) as client:
        arguments = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo"}}
        assert raw in await client.exchange("tools/call", arguments)
