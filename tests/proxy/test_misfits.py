"""Arguments that do not fit are left to the server, and its error is explained. Where we judge, they are refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from dynamic_mcp.config.access import Access
from dynamic_mcp.config.resolved import CallHandling, Rules, Validation
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, client_of, config_of, group_config, settled, text_of, tool
from tests.features.audit.audited import audited
from tests.features.overrides.overridden import rules_of
from tests.modern_client import modern_client_of
from tests.policy.rules import access_of

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "scale": {"type": "string", "enum": ["css", "device"], "default": "css"},
    },
    "required": ["title", "scale"],
    "additionalProperties": False,
}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
FAILED = (
    b'{"content":[ {"type":"text", "text":"no\\u002e","x":1.50}],"isError":true,'
    b'"structuredContent":{"a":1.0},"y":2.50}'
)
ODD: Json = {"titel": "x", "reason": "because"}
MARK = "[dynamic-mcp] the arguments do not fit the tool"
SCHEMA_SHOWN = f"its input schema: {json.dumps(SCHEMA, separators=(',', ':'))}"


def _upstream(call: Json = DONE, **members: Json) -> FakeUpstream:
    listed = [tool("create", inputSchema=SCHEMA), tool("remove", inputSchema=SCHEMA)]
    answers = {"tools/list": {"tools": listed}, **({} if call is None else {"tools/call": call}), **members}
    return FakeUpstream(answers)


def _answers(validate: Validation | None, limit: int = 100_000) -> CallHandling:
    return CallHandling(validate=validate, limit=limit, compact=False)


def _sent(upstream: FakeUpstream) -> list[Json]:
    return [call["params"]["arguments"] for call in upstream.heard("tools/call")]


# --- the server judges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": "x", "reason": "because"},
        {"title": "x", "count": "many"},
        {"title": "x", "count": None},
        {"title": "x", "scale": "CSS"},
        {"titel": "x"},
        {},
    ],
    ids=json.dumps,
)
async def test_what_does_not_fit_reaches_the_server_and_its_success_is_untouched(arguments: Json) -> None:
    upstream = _upstream(b'{"content":[ ],"x":1.50}')
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        params = b'{"name":"call_dynamic_tool","arguments":{"group":"up","name":"create","args":%s}}'

        line = await client.exchange("tools/call", params % json.dumps(arguments, indent=None).encode())

    assert b'"result":{"content":[ ],"x":1.50}}' in line
    assert json.dumps(arguments).encode() in upstream.lines[-1]


@pytest.mark.parametrize("validate", ["assist", "strict", None])
async def test_what_has_a_default_is_not_missing_and_is_left_to_the_server(validate: Validation | None) -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream]), group_config("up", answers=_answers(validate))) as client:
        await client.initialize()

        assert await client.call("up", "create", {"title": "x"}) == DONE

    assert _sent(upstream) == [{"title": "x"}]


async def test_what_can_be_put_right_is_also_where_the_rest_does_not_fit() -> None:
    upstream = _upstream()
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()

        result = await client.call("up", "create", {"title": "x", "count": "5", "reason": "because"})

    assert result["content"] == DONE["content"]
    assert result["_meta"] == {"dynamic-mcp/repaired": ["`count` was JSON in a string"]}
    assert _sent(upstream) == [{"title": "x", "count": 5, "reason": "because"}]


# --- its error is explained ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in its group", "by its own name", "listed directly", "as a task", "modern"])
async def test_what_is_wrong_and_the_schema_follow_an_error_which_stays_as_it_is(way: str) -> None:
    upstream = _upstream(FAILED)
    direct = {"direct": DirectTools(is_all=True)} if way == "listed directly" else {}
    config = group_config("up", **direct)
    name = "up__create" if way == "listed directly" else "create"
    params: Json = {"name": name, "arguments": ODD}
    if way == "in its group":
        params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "create", "args": ODD}}
    params |= {"task": {}} if way == "as a task" else {}
    if way == "modern":
        async with modern_client_of(Opener(up=[upstream]), config) as modern:
            await modern.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}})
            line = json.dumps((await modern.request("tools/call", params))["result"]).encode()
    else:
        async with client_of(Opener(up=[upstream]), config) as client:
            await client.initialize()
            await settled()
            line = await client.exchange("tools/call", params)
            assert b'"content":[{"type":"text", "text":"no\\u002e","x":1.50},{' in line
            assert b'"structuredContent":{"a":1.0},"y":2.50' in line
            line = json.dumps(json.loads(line)["result"]).encode()

    first, second = json.loads(line)["content"]
    assert first["text"] == "no."
    assert second["text"].startswith(MARK)
    for words in ("`title` is missing", "`reason`", "did you mean `title`?", SCHEMA_SHOWN):
        assert words in second["text"]
    assert "`scale` is missing" not in second["text"]
    assert _sent(upstream) == [ODD]


async def test_a_json_rpc_error_is_told_first_and_then_what_is_wrong() -> None:
    upstream = _upstream(None)
    async with client_of(Opener(up=[upstream])) as client:
        await client.initialize()
        calling = asyncio.create_task(client.call("up", "create", ODD))
        asked = await upstream.hears("tools/call")
        error = {"code": -32602, "message": "title: required", "data": {"at": "title"}}
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        result = await calling

    first, second = (block["text"] for block in result["content"])
    assert "answered with error -32602: title: required" in first
    assert '{"at": "title"}' in first
    assert second.startswith(MARK)
    assert json.dumps(result).count("its input schema") == 1


async def test_an_error_of_a_call_that_fits_stays_as_it_is() -> None:
    async with client_of(Opener(up=[_upstream(FAILED)])) as client:
        await client.initialize()

        assert await client.call("up", "create", {"title": "x"}) == json.loads(FAILED)


@pytest.mark.parametrize(
    ("only", "validate"), [("up", None), ("up", "strict"), (None, "off")], ids=["alone", "alone, strict", "off"]
)
async def test_nothing_is_judged_or_added_for_one_group_alone_and_where_it_is_switched_off(
    only: str | None, validate: Validation | None
) -> None:
    upstream = _upstream(FAILED)
    proxy = Proxy(config_of(group_config("up", answers=_answers(validate))), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy, only=only)
        await client.initialize()
        await settled()
        line = await client.exchange("tools/call", {"name": "create", "arguments": {"title": 5}})
    finally:
        await proxy.close()

    assert b'"result":' + FAILED in line
    assert _sent(upstream) == [{"title": 5}]


async def test_the_explanation_counts_for_the_limit_of_a_result() -> None:
    async with client_of(Opener(up=[_upstream(FAILED)]), group_config("up", answers=_answers(None, 100))) as client:
        await client.initialize()

        texts = [block["text"] for block in (await client.call("up", "create", ODD))["content"] if "text" in block]

    assert texts[0] == "no."
    assert texts[1].startswith(MARK)
    assert len(texts[1]) < 100
    assert "is cut here" in texts[2]


async def test_the_explanation_is_redacted_as_results_are() -> None:
    rules = {"redact": (Redact("r", pattern=r"secret-\d+", replacement="[x]"),)}
    async with client_of(Opener(up=[_upstream(FAILED)]), group_config("up", rules=rules)) as client:
        await client.initialize()

        told = json.dumps(await client.call("up", "create", {"title": "x", "count": "secret-1"}))

    assert "secret-1" not in told
    assert "[x]" in told
    assert MARK in told


async def test_an_explained_error_is_not_kept() -> None:
    listed = [tool("create", inputSchema=SCHEMA, annotations={"readOnlyHint": True})]
    upstream = _upstream(FAILED, **{"tools/list": {"tools": listed}})
    rules = {"cache": (Cache("c", tools=("create",), ttl_s=60, per="all"),)}
    async with client_of(Opener(up=[upstream]), group_config("up", rules=rules)) as client:
        await client.initialize()

        results = [await client.call("up", "create", ODD) for _ in range(2)]

    assert results[0] == results[1]
    assert _sent(upstream) == [ODD, ODD]


async def test_the_log_has_the_call_as_it_was_sent_and_the_error_as_the_servers(tmp_path: Path) -> None:
    async with audited(tmp_path, arguments="full") as on:
        on.upstream.answers.update(_upstream(FAILED).answers)
        client = await on.join()
        await client.call("up", "create", {"title": "x", "count": "5", "reason": "because"})
        (line,) = on.lines()

    assert line["arguments"] == {"title": "x", "count": 5, "reason": "because"}
    assert (line["outcome"], line["error"]) == ("failure", "tool_error")


# --- where we judge --------------------------------------------------------------------------------------

GUARD = {"guards": (Guard("g", tools=("create",), path="$.title", deny="^/etc"),)}
OVERRIDE = rules_of(create={"arguments": {"title": {"rename": "subject"}}})
ON_ARGUMENTS = access_of(
    roles={"dev": [{}, {"tools": ["create"], "arguments": {"$.count": {"min": 5}}, "effect": "deny"}]}
)
APPROVED = access_of(roles={"dev": [{}, {"tools": ["create"], "effect": "ask"}]})
ALLOWED = access_of(roles={"dev": [{}, {"tools": ["other"], "effect": "deny"}]})


@contextlib.asynccontextmanager
async def _judged(
    upstream: FakeUpstream, rules: Rules, access: Access | None, validate: Validation | None = None
) -> AsyncIterator[Client]:
    """Run a proxy with these rules, for a client whose tools are known."""
    group = group_config("up", rules=rules, answers=_answers(validate))
    if access is not None:
        access = structs.replace(access, people={"local": ("dev",)})
    proxy = Proxy(config_of(group, access=access), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy)
        await client.initialize()
        await settled()
        yield client
    finally:
        await proxy.close()


@pytest.mark.parametrize(
    ("rules", "access"),
    [(GUARD, None), (OVERRIDE, None), ({}, ON_ARGUMENTS), ({}, APPROVED)],
    ids=["a guard", "an override", "an access rule", "an approval"],
)
async def test_arguments_must_fit_where_they_are_judged_and_only_there(rules: Rules, access: Access | None) -> None:
    upstream = _upstream()
    async with _judged(upstream, rules, access) as client:
        refused = await client.call("up", "create", ODD)
        assert upstream.heard("tools/call") == []
        assert await client.call("up", "remove", ODD) == DONE

    assert refused["isError"] is True
    assert "`create` of group `up` was not called, because its arguments do not fit:" in text_of(refused)


async def test_an_access_rule_that_looks_at_no_arguments_leaves_them_to_the_server() -> None:
    async with _judged(_upstream(), {}, ALLOWED) as client:
        assert await client.call("up", "create", ODD) == DONE


async def test_a_config_can_leave_arguments_to_the_server_that_it_judges() -> None:
    async with _judged(_upstream(), GUARD, None, "assist") as client:
        assert await client.call("up", "create", ODD) == DONE
        assert "g" in text_of(await client.call("up", "create", {**ODD, "title": "/etc"}))


async def test_strict_refuses_before_the_server_is_troubled() -> None:
    upstream = _upstream()
    async with _judged(upstream, {}, None, "strict") as client:
        refused = await client.call("up", "create", ODD)

    assert refused["isError"] is True
    for words in ("was not called", "`title` is missing", "did you mean `title`?", SCHEMA_SHOWN):
        assert words in text_of(refused)
    assert upstream.heard("tools/call") == []
