"""Texts are replaced on their way to clients and servers, wherever a server writes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.redaction.config import Redact
from tests.fakes import FakeUpstream, Json, group_config, settled, text_of
from tests.features.approvals.scene import ANSWERS, CAN_ASK, DONE, Scene, approving

SECRET = "secret-1"
RESULTS = Redact("r0", pattern=r"secret-\d+", replacement="[x]")
ARGUMENTS = Redact("r1", places=("arguments",), pattern=r"token-\d+", replacement="[y]")
CAPABILITIES: Json = {"tools": {}, "prompts": {}, "resources": {}, "logging": {}, "completions": {}, "tasks": {}}


class Talker(FakeUpstream):
    """A server that writes its secret into all that it says."""

    def __init__(self, answers: Json = None) -> None:
        said = [{"type": "text", "text": f"it is {SECRET}"}]
        hello = {**ANSWERS["initialize"], "capabilities": CAPABILITIES}
        super().__init__(
            {
                **ANSWERS,
                "initialize": hello,
                "tools/call": {"content": said, "structuredContent": {SECRET: [SECRET, 1.50]}},
                "prompts/get": {"messages": [{"role": "user", "content": said[0]}]},
                "resources/read": {"contents": [{"uri": "x://one", "text": SECRET}]},
                "completion/complete": {"completion": {"values": [SECRET]}},
                **(answers or {}),
            }
        )


@contextlib.asynccontextmanager
async def redacted(upstream: FakeUpstream, **options: Json) -> AsyncIterator[Scene]:
    """Run a proxy that replaces the secret."""
    rules = {"redact": (RESULTS, ARGUMENTS)}
    async with approving(upstream, **{"rules": None, "call_rules": rules, **options}) as on:
        yield on


async def test_results_of_tools_prompts_and_resources_come_without_the_secret() -> None:
    async with redacted(Talker()) as on:
        client = await on.join()
        result = await client.call("up", "get_file", {})
        assert text_of(result) == "it is [x]"
        assert result["structuredContent"] == {SECRET: ["[x]", 1.5]}
        for method, params in (
            ("prompts/get", {"name": "up__secret"}),
            ("resources/read", {"uri": "x://one"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "up__secret"}, "argument": {}}),
        ):
            answer = json.dumps(await client.request(method, params))
            assert "[x]" in answer
            assert SECRET not in answer


async def test_a_client_of_one_server_alone_gets_no_secret_either() -> None:
    async with redacted(Talker()) as on:
        client = await on.join(only="up")
        answer = await client.exchange("tools/call", {"name": "get_file", "arguments": {}})
        assert b"it is [x]" in answer


async def test_errors_come_without_the_secret() -> None:
    upstream = Talker()
    upstream.answers.pop("tools/call")
    async with redacted(upstream) as on:
        client = await on.join()
        calling = asyncio.create_task(client.call("up", "get_file", {}))
        id = (await upstream.hears("tools/call"))["id"]
        error = {"code": -32000, "message": f"no {SECRET}", "data": {"why": SECRET}}
        upstream.say({"jsonrpc": "2.0", "id": id, "error": error})
        result = await calling
        assert "no [x]" in text_of(result)
        assert SECRET not in json.dumps(result)


async def test_without_the_secret_the_bytes_of_an_answer_stay() -> None:
    body = b'{ "content" :[],"structuredContent":{"n":1.50,"n":2e0,"s":"\\u0041"}}'
    async with redacted(Talker({"tools/call": body})) as on:
        client = await on.join(only="up")
        assert body in await client.exchange("tools/call", {"name": "get_file", "arguments": {}})


async def test_progress_comes_without_the_secret_and_with_its_token() -> None:
    upstream = Talker()
    upstream.answers.pop("tools/call")
    async with redacted(upstream) as on:
        client = await on.join()
        calling = asyncio.create_task(client.call("up", "get_file", {}, _meta={"progressToken": SECRET}))
        call = await upstream.hears("tools/call")
        token = call["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1, "message": f"at {SECRET}"}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        told = await client.hears("notifications/progress")
        assert told["params"] == {"progressToken": SECRET, "progress": 1, "message": "at [x]"}
        upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": DONE})
        assert await calling == DONE


async def test_log_messages_come_without_the_secret_whether_or_not_a_call_is_in_flight() -> None:
    upstream = Talker()
    async with redacted(upstream) as on:
        client = await on.join()
        await client.call("up", "get_file", {})
        params = {"level": "error", "logger": "l", "data": {"m": SECRET}}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        told = await client.hears("notifications/message")
        assert told["params"] == {"level": "error", "logger": "up/l", "data": {"m": "[x]"}}


async def test_questions_come_without_the_secret() -> None:
    upstream = Talker()
    upstream.answers.pop("tools/call")
    async with redacted(upstream) as on:
        client = await on.join(can=CAN_ASK)
        calling = asyncio.create_task(client.call("up", "get_file", {}))
        await upstream.hears("tools/call")
        schema = {"type": "object", "properties": {}}
        params = {"message": f"is it {SECRET}?", "requestedSchema": schema}
        upstream.say({"jsonrpc": "2.0", "id": 99, "method": "elicitation/create", "params": params})
        asked = await client.hears("elicitation/create")
        assert asked["params"]["message"] == "up asks: is it [x]?"
        assert asked["params"]["requestedSchema"] == schema
        calling.cancel()


async def test_the_status_and_the_result_of_a_task_come_without_the_secret() -> None:
    task = {"taskId": "t1", "status": "working", "statusMessage": SECRET, "createdAt": "2026-01-01T00:00:00Z"}
    own = Redact("r2", tools=("delete_*",), pattern=r"secret-\d+", replacement="[z]")
    upstream = Talker({"tools/call": {"task": task}, "tasks/get": task})
    upstream.answers["tasks/result"] = {"content": [{"type": "text", "text": SECRET}]}
    async with redacted(upstream, call_rules={"redact": (own,)}) as on:
        client = await on.join()
        begun = await client.request(
            "tools/call",
            {
                "name": "call_dynamic_tool",
                "arguments": {"group": "up", "name": "delete_all"},
                "task": {"ttl": 60_000},
            },
        )
        assert begun["result"]["task"] == {**task, "statusMessage": "[z]"}
        got = await client.request("tasks/get", {"taskId": "t1"})
        assert got["result"]["statusMessage"] == "[z]"
        assert "[z]" in json.dumps(await client.request("tasks/result", {"taskId": "t1"}))
        params = {"taskId": "t1", "status": "working", "statusMessage": SECRET}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params})
        told = await client.hears("notifications/tasks/status")
        assert told["params"] == {**params, "statusMessage": "[z]"}


async def test_a_kept_result_is_kept_without_the_secret() -> None:
    upstream = Talker({"tools/call": {"content": [{"type": "text", "text": f"{SECRET} " * 500}]}})
    async with redacted(upstream, answers=CallHandling(limit=1000, validate=None, compact=False)) as on:
        client = await on.join()
        result = await client.call("up", "get_file", {})
        (link,) = [each for each in result["content"] if each["type"] == "resource_link"]
        kept = json.dumps(await client.request("resources/read", {"uri": link["uri"]}))
        assert kept.count("[x]") == 500
        assert SECRET not in json.dumps(result) + kept


async def test_a_large_result_is_like_a_small_one() -> None:
    upstream = Talker({"tools/call": {"content": [{"type": "text", "text": f"{SECRET} " * 20_000}]}})
    async with redacted(upstream) as on:
        client = await on.join()
        assert text_of(await client.call("up", "get_file", {})) == "[x] " * 20_000


# --- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5000])
async def test_what_is_replaced_in_arguments_is_what_is_sent_and_seen(size: int) -> None:
    upstream = Talker()
    async with redacted(upstream) as on:
        client = await on.join()
        await client.call("up", "get_file", {"a": [f"token-{SECRET[-1]} " * size], "token-1": 1})
        seen = on.notes.ended[-1]
        await client.request("prompts/get", {"name": "up__secret", "arguments": {"a": "token-1"}})
    expected = {"a": ["[y] " * size], "token-1": 1}
    assert upstream.heard("tools/call")[0]["params"]["arguments"] == expected
    assert seen.params is not None
    assert json.loads(bytes(seen.params["arguments"])) == expected
    assert upstream.heard("prompts/get")[0]["params"]["arguments"] == {"a": "[y]"}


async def test_guards_and_persons_see_replaced_arguments_also_those_that_a_person_writes() -> None:
    upstream = FakeUpstream(ANSWERS)
    guards = (Guard("g0", deny="token-1"), Guard("g1", deny="ask", effect="ask"))
    async with redacted(upstream, call_rules={"guards": guards, "redact": (ARGUMENTS,)}) as on:
        client = await on.join()
        calling = asyncio.create_task(client.call("up", "get_file", {"a": "ask token-1"}))
        pending = await on.waits()
        assert json.loads(bytes(pending.arguments)) == {"a": "ask [y]"}
        on.queue.allow("Q1", arguments={"a": "token-2"})
        await calling
        seen = on.notes.ended[-1]
    assert upstream.heard("tools/call")[0]["params"]["arguments"] == {"a": "[y]"}
    assert seen.params is not None
    assert json.loads(bytes(seen.params["arguments"])) == {"a": "[y]"}


# --- reload ------------------------------------------------------------------------------------------------------


async def test_a_reload_changes_what_is_replaced_from_the_next_message_on() -> None:
    upstream = Talker()
    async with redacted(upstream) as on:
        client = await on.join()
        assert text_of(await client.call("up", "get_file", {})) == "it is [x]"
        on.groups[0] = group_config()
        on.change()
        assert text_of(await client.call("up", "get_file", {})) == f"it is {SECRET}"
        on.groups[0] = group_config(rules={"redact": (RESULTS,)})
        on.change()
        params = {"level": "error", "data": SECRET}
        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        assert (await client.hears("notifications/message"))["params"]["data"] == "[x]"


async def test_other_servers_are_not_touched() -> None:
    async with redacted(Talker(), call_rules={"guards": (Guard("g", deny="never"),)}) as on:
        client = await on.join()
        assert text_of(await client.call("up", "get_file", {})) == f"it is {SECRET}"
        await settled()
