"""Overridden tools in approvals, logs, tasks, kept results, headers and completions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import CallHandling, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Opener, client_of, config_of, group_config, text_of, tool
from tests.features.approvals.scene import ANSWERS, approving, begin, status_of
from tests.features.audit.audited import audited
from tests.features.overrides.overridden import Json, rules_of
from tests.policy.rules import access_of

ANN = Authentication(Principal("https://idp.example", "ann"), "jwt", roles=("dev",))
DELETE = tool(
    "delete_file",
    inputSchema={
        "type": "object",
        "properties": {"path": {"type": "string"}, "root": {"type": "string"}},
        "required": ["path", "root"],
        "additionalProperties": False,
    },
)
REMOVE: Json = {"rename": "remove", "arguments": {"path": {"rename": "file"}, "root": {"fixed": "/srv"}}}
RULES = rules_of(delete_file=REMOVE)


def _upstream() -> FakeUpstream:
    return FakeUpstream({**ANSWERS, "tools/list": {"tools": [DELETE]}})


@contextlib.asynccontextmanager
async def overridden(*upstreams: FakeUpstream, only: str | None) -> AsyncIterator[Client]:
    proxy = Proxy(config_of(group_config("up", rules=RULES)), opener=Opener(up=list(upstreams)))
    try:
        client = Client(proxy, only=only)
        await client.initialize()
        yield client
    finally:
        await proxy.close()


async def call(client: Client, name: str, args: Json, *, only: str | None) -> str:
    if only is None:
        return text_of(await client.call("up", name, args))
    return text_of((await client.request("tools/call", {"name": name, "arguments": args}))["result"])


# --- persons ---------------------------------------------------------------------------------------------


async def test_a_person_sees_the_servers_names_and_final_values_and_changes_those() -> None:
    upstream = _upstream()
    async with approving(upstream, call_rules=RULES) as on:
        client = await on.join()
        calling = begin(client, "remove", {"file": "/one"})
        pending = await on.waits()
        assert pending.name == "delete_file"
        assert json.loads(bytes(pending.arguments)) == {"path": "/one", "root": "/srv"}

        refused = on.queue.allow("Q1", arguments={"file": "/two", "root": "/srv"})
        assert "do not fit" in refused
        on.queue.allow("Q1", arguments={"path": "/two", "root": "/srv"})
        result = await calling
    assert upstream.heard("tools/call")[0]["params"]["arguments"] == {"path": "/two", "root": "/srv"}
    assert status_of(result)["arguments"] == {"file": "/two"}


async def test_what_a_client_is_told_of_a_refusal_has_the_name_that_it_knows() -> None:
    async with approving(_upstream(), call_rules=RULES) as on:
        client = await on.join()
        calling = begin(client, "remove", {"file": "/one"})
        await on.waits()
        on.queue.deny("Q1", "no")
        refused = text_of(await calling)
    assert "`remove` of group `up`" in refused
    assert "delete_file" not in refused


# --- logs ------------------------------------------------------------------------------------------------


async def test_the_audit_log_has_the_servers_names_and_final_values(tmp_path: Path) -> None:
    rules = rules_of(get_thing={"rename": "fetch", "arguments": {"id": {"fixed": 7}, "q": {"default": "x"}}})
    async with audited(tmp_path, arguments="full", rules=rules) as on:
        client = await on.join()
        await client.call("up", "fetch", {})
        (line,) = on.lines()
    assert line["name"] == "get_thing"
    assert line["arguments"] == {"id": 7, "q": "x"}


@pytest.mark.parametrize("only", [None, "up"])
async def test_a_denied_tool_is_logged_by_the_servers_name_when_it_is_tried_by_its_new_one(
    tmp_path: Path, only: str | None
) -> None:
    deny = {"id": "no-delete", "effect": "deny", "tools": ["delete_*"]}
    access = access_of(roles={"dev": [{"tools": ["*"]}, deny]})
    async with audited(tmp_path, access=access, rules=rules_of(delete_thing={"rename": "remove"})) as on:
        await (await on.join(LOCAL_USER)).call("up", "get_thing")
        ann = await on.join(ANN, only=only)
        params = {"name": "remove", "arguments": {}}
        if only is None:
            params = {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "remove"}}
        await ann.request("tools/call", params)
        line = on.lines()[-1]
    assert (line["outcome"], line["rule"]) == ("denied", "no-delete")


# --- results ---------------------------------------------------------------------------------------------


async def test_a_kept_result_and_a_task_belong_to_the_tool_whatever_it_is_called() -> None:
    deny = {"effect": "deny", "tools": ["other"]}
    access = access_of(roles={"dev": [{}, deny]}, people={"local": ["dev"]})
    task = {"taskId": "t1", "status": "working", "ttl": None, "createdAt": "2026-01-01T00:00:00Z"}
    upstream = FakeUpstream({"tools/list": {"tools": [tool("own"), tool("other")]}, "tasks/get": task})
    upstream.answers["initialize"]["capabilities"] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    upstream.answers["tools/call"] = lambda params: (
        {"task": task} if "task" in params else {"content": [{"type": "text", "text": "x" * 5000}]}
    )
    answers = CallHandling(validate=None, limit=2000, compact=False)
    group = group_config("up", rules=rules_of(own={"rename": "other"}, other={"rename": "own"}), answers=answers)
    proxy = Proxy(config_of(group, access=access), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy)
        await client.initialize()
        text = json.dumps(await client.call("up", "other"))  # the server's `own`, which is allowed
        uri = text[text.index("dynamic-mcp://results/") :][:54]
        assert "result" in await client.request("resources/read", {"uri": uri})
        await client.call("up", "other", {}, task={})
        assert (await client.request("tasks/get", {"taskId": "t1"}))["result"]["status"] == "working"
        assert (await client.call("up", "own"))["isError"]  # the server's `other`, which is not
    finally:
        await proxy.close()


async def test_the_schema_beside_a_servers_error_is_the_shown_one() -> None:
    upstream = _upstream()
    del upstream.answers["tools/call"]
    async with client_of(Opener(up=[upstream]), group_config("up", rules=RULES)) as client:
        await client.initialize()
        calling = begin(client, "remove", {"file": "/one"})
        asked = await upstream.hears("tools/call")
        upstream.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32602, "message": "no such file"}})
        said = text_of(await calling)
    assert '"file"' in said
    assert "root" not in said


@pytest.mark.parametrize("only", [None, "up"])
async def test_flaws_are_told_by_the_names_that_are_shown(only: str | None) -> None:
    upstream = _upstream()
    async with overridden(upstream, only=only) as client:
        refused = await call(client, "remove", {"path": "/one"}, only=only)
    assert "`file` is missing" in refused
    assert "`path` is not a parameter" in refused
    assert upstream.heard("tools/call") == []


@pytest.mark.parametrize("only", [None, "up"])
async def test_before_arguments_are_called_wrong_the_schema_is_read_again(only: str | None) -> None:
    today = {**DELETE, "inputSchema": {**DELETE["inputSchema"], "properties": {"path": {}, "root": {}}}}
    before, after = _upstream(), FakeUpstream({**ANSWERS, "tools/list": {"tools": [today]}})
    async with overridden(before, after, only=only) as client:
        await call(client, "remove", {"file": "/one"}, only=only)
        before.die()
        await call(client, "remove", {"file": 5}, only=only)
    assert after.heard("tools/call")[0]["params"]["arguments"] == {"path": 5, "root": "/srv"}


# --- headers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("only", "prefix"), [(None, "up__"), ("up", "")])
async def test_parameters_in_headers_are_those_that_are_shown(only: str | None, prefix: str) -> None:
    properties = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "tenant": {"type": "string", "x-mcp-header": "Tenant"},
    }
    upstream = FakeUpstream(
        {"tools/list": {"tools": [tool("put", inputSchema={"type": "object", "properties": properties})]}}
    )
    rules = rules_of(put={"rename": "store", "arguments": {"region": {"rename": "place"}, "tenant": {"fixed": "a"}}})
    group = group_config("up", rules=rules, direct=DirectTools(is_all=True))
    proxy = Proxy(config_of(group), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy)
        await client.initialize()
        await client.request("tools/list")
        mirrored = proxy.header_parameters(f"{prefix}store", LOCAL_USER, only, None)
        assert mirrored.headers(Raw(b'{"place":"eu","tenant":"b"}')) == ((b"Mcp-Param-Region", b"eu"),)
        assert proxy.header_parameters(f"{prefix}put", LOCAL_USER, only, None).is_empty
    finally:
        await proxy.close()


async def test_what_the_config_excludes_is_not_counted_as_hidden_by_rules(tmp_path: Path) -> None:
    access = access_of(roles={"dev": [{"id": "all"}, {"effect": "deny", "tools": ["broken"]}]})
    overrides = rules_of(get_thing={"rename": "fetch"})
    async with audited(tmp_path, access=access, rules=overrides, tools=ToolFilter(exclude=("silent",))) as on:
        ann = await on.join(ANN)
        for _ in range(2):
            await ann.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}})
        lines = [line for line in on.lines() if line["event"] == "list"]
    assert [line["detail"] for line in lines] == [{"shown": 2, "hidden": 1, "hidden_groups": 0}] * 2
