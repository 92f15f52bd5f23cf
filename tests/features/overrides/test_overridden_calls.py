"""Overridden tools: clients see the names and arguments of the config, and the server gets its own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.config.resolved import ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, FakeUpstream, Json, Opener, config_of, group_config, settled, text_of, tool
from tests.features.overrides.overridden import rules_of
from tests.policy.rules import access_of

DONE: Json = {"content": [{"type": "text", "text": "done"}]}
ISSUE = {
    "type": "object",
    "properties": {"repo": {"type": "string"}, "body": {"type": "string"}, "labels": {"type": "array"}},
    "required": ["repo", "body", "labels"],
}
OPEN = tool("create_issue", description="Opens an issue.", inputSchema=ISSUE)
OTHERS = [tool("get_issue"), tool("internal_debug"), tool("internal_reset")]
OVERRIDES: Json = {
    "create_issue": {
        "rename": "new_issue",
        "title": "New issue",
        "description": "Opens an issue in our tracker.",
        "annotations": {"destructiveHint": False},
        "arguments": {
            "repo": {"fixed": "acme/app"},
            "body": {"rename": "text", "description": "What is wrong."},
            "labels": {"default": ["new"]},
        },
    },
}
WITHOUT_INTERNAL = ToolFilter(exclude=("internal_*",))
SHOWN = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What is wrong."},
        "labels": {"type": "array", "default": ["new"]},
    },
    "required": ["text"],
}
WHOLE: Json = {"repo": "acme/app", "body": "it is broken", "labels": ["new"]}


class Scene:
    """A client of a proxy, in front of one server."""

    def __init__(self, upstream: FakeUpstream, proxy: Proxy, client: Client) -> None:
        self.upstream = upstream
        self.proxy = proxy
        self.client = client

    def sent(self) -> Json:
        """Return the calls that the server has got, as names and arguments."""
        calls = [each["params"] for each in self.upstream.heard("tools/call")]
        return [(each["name"], each.get("arguments")) for each in calls]

    async def tools(self) -> Json:
        """Return the tools of the group as `get_dynamic_tools` shows them."""
        asked = {"name": "get_dynamic_tools", "arguments": {"group": "up", "detail": "full"}}
        return json.loads(text_of((await self.client.request("tools/call", asked))["result"]))["tools"]

    async def call(self, name: str, **arguments: Json) -> str:
        """Call a tool by its listed name, and return the text of the answer, or the error."""
        answer = await self.client.request("tools/call", {"name": name, "arguments": arguments})
        return text_of(answer["result"]) if "result" in answer else str(answer["error"]["message"])


@contextlib.asynccontextmanager
async def scene(
    overrides: Json = OVERRIDES,
    *,
    offered: Json = (OPEN, *OTHERS),
    only: str | None = None,
    access: Json = None,
    **changes: Json,
) -> AsyncIterator[Scene]:
    upstream = FakeUpstream({"tools/call": DONE, "tools/list": {"tools": list(offered)}})
    config = group_config("up", **{"rules": rules_of(**overrides), "tools": WITHOUT_INTERNAL, **changes})
    proxy = Proxy(config_of(config, access=access), opener=Opener(up=[upstream]))
    try:
        client = Client(proxy, only=only)
        await client.initialize()
        yield Scene(upstream, proxy, client)
    finally:
        await proxy.close()


async def test_models_find_and_call_tools_as_the_config_shows_them() -> None:
    async with scene() as on:
        issue, other = await on.tools()
        assert other["name"] == "get_issue"
        assert (issue["name"], issue["description"]) == ("new_issue", "Opens an issue in our tracker.")
        assert issue["inputSchema"] == SHOWN

        assert await on.client.call("up", "new_issue", {"text": "it is broken"}) == DONE
        assert on.sent() == [("create_issue", WHOLE)]


@pytest.mark.parametrize("only", [None, "up"])
async def test_tools_that_are_listed_by_themselves_are_listed_as_shown(only: str | None) -> None:
    async with scene(only=only, direct=DirectTools(is_all=True)) as on:
        listed = (await on.client.request("tools/list"))["result"]["tools"]
        prefix = "up__" if only is None else ""
        assert [each["name"] for each in listed] == [f"{prefix}new_issue", f"{prefix}get_issue"]
        assert listed[0]["inputSchema"] == SHOWN
        assert listed[0]["title"] == "New issue"
        assert listed[0]["annotations"] == {"destructiveHint": False}

        given = {"text": "it is broken", "repo": "evil/repo", "labels": []}
        assert await on.call(f"{prefix}new_issue", **given) == "done"
        assert on.sent() == [("create_issue", {**WHOLE, "labels": []})]


@pytest.mark.parametrize("only", [None, "up"])
@pytest.mark.parametrize("name", ["create_issue", "internal_debug", "internal_reset"])
async def test_an_old_name_and_an_excluded_tool_do_not_exist(name: str, only: str | None) -> None:
    async with scene(only=only, direct=DirectTools(is_all=True)) as on:
        known = f"up__{name}" if only is None else name
        refusal = await on.call(known)
        assert refusal == (await on.call(f"{known[:-1]}x")).replace(f"{name[:-1]}x", name)
        assert on.sent() == []


@pytest.mark.parametrize("name", ["create_issue", "internal_debug"])
async def test_nor_do_they_for_the_meta_tools(name: str) -> None:
    async with scene() as on:
        called = await on.client.call("up", name, {"body": "x"})
        assert called["isError"]
        assert f"`{name}`" in text_of(called)
        assert on.sent() == []
        asked = {"name": "get_dynamic_tools", "arguments": {"query": "reset debug internal"}}
        found = text_of((await on.client.request("tools/call", asked))["result"])
        assert "internal_" not in found


@pytest.mark.parametrize("only", [None, "up"])
@pytest.mark.parametrize("odd", ["body", "Body", "Repo", "REPO"])
async def test_what_is_not_shown_of_the_arguments_is_refused_where_the_schema_is_open(
    odd: str, only: str | None
) -> None:
    async with scene(only=only, direct=DirectTools(is_all=True)) as on:
        prefix = "up__" if only is None else ""
        refusal = await on.call(f"{prefix}new_issue", **{"text": "x", odd: "y"})
        assert f"`{odd}` is not a parameter of `new_issue`" in refusal
        assert on.sent() == []


async def test_a_single_group_cannot_be_told_its_arguments_under_another_key() -> None:
    async with scene(only="up") as on:
        params = {"name": "new_issue", "arguments": {"text": "x"}, "Arguments": {"repo": "evil/repo"}}
        assert "error" in await on.client.request("tools/call", params)
        assert on.sent() == []


async def test_a_call_without_arguments_gets_what_is_fixed() -> None:
    fixed = {"get_issue": {"arguments": {"repo": {"fixed": "acme/app"}}}}
    async with scene(fixed, only="up") as on:
        await on.client.request("tools/call", {"name": "get_issue"})
        assert on.sent() == [("get_issue", {"repo": "acme/app"})]


async def test_filters_and_direct_tools_go_by_the_names_of_the_server() -> None:
    changes: Json = {
        "direct": DirectTools(globs=("create_*",)),
        "tools": ToolFilter(include=("create_issue",), exclude=()),
    }
    async with scene(**changes) as on:
        listed = (await on.client.request("tools/list"))["result"]["tools"]
        assert [each["name"] for each in listed][2:] == ["up__new_issue"]
        assert [each["name"] for each in await on.tools()] == ["new_issue"]


@pytest.mark.parametrize("only", [None, "up"])
async def test_access_rules_go_by_the_names_and_values_of_the_server_and_speak_of_those_of_the_client(
    only: str | None,
) -> None:
    rule = {"effect": "deny", "tools": ["create_issue"], "arguments": {"$.body": {"pattern": ".*secret.*"}}}
    wrong_repo = {"effect": "deny", "tools": ["create_issue"], "arguments": {"$.repo": {"enum": ["evil"]}}}
    access = access_of(roles={"dev": [{}, rule, wrong_repo]}, people={"local": ["dev"]})
    async with scene(only=only, access=access, direct=DirectTools(is_all=True)) as on:
        prefix = "up__" if only is None else ""
        assert await on.call(f"{prefix}new_issue", text="x", repo="evil") == "done"
        refusal = await on.call(f"{prefix}new_issue", text="a secret")
        assert "`new_issue`" in refusal
        assert "create_issue" not in refusal
        assert on.sent() == [("create_issue", {**WHOLE, "body": "x"})]


async def test_a_tool_that_access_rules_hide_is_hidden_under_its_new_name_too() -> None:
    deny = {"effect": "deny", "tools": ["create_issue"]}
    access = access_of(roles={"dev": [{}, deny]}, people={"local": ["dev"]})
    async with scene(access=access) as on:
        assert [each["name"] for each in await on.tools()] == ["get_issue"]
        assert (await on.client.call("up", "new_issue", {"text": "x"}))["isError"]
        assert on.sent() == []


async def test_a_tool_that_would_get_the_name_of_another_is_left_out_and_the_list_says_so() -> None:
    clash = {"create_issue": {"rename": "get_issue"}}
    async with scene(clash, direct=DirectTools(is_all=True)) as on:
        result = (await on.client.request("tools/list"))["result"]
        assert "up__create_issue" not in [each["name"] for each in result["tools"]]
        assert "`create_issue` was left out" in str(result["_meta"])
        assert await on.call("up__get_issue") == "done"
        assert on.sent() == [("get_issue", {})]


async def test_two_tools_can_swap_their_names() -> None:
    swap = {"create_issue": {"rename": "get_issue"}, "get_issue": {"rename": "create_issue"}}
    async with scene(swap) as on:
        await on.client.call("up", "create_issue", {"id": 1})
        assert on.sent() == [("get_issue", {"id": 1})]


async def test_a_list_that_is_the_same_is_not_told_to_have_changed() -> None:
    async with scene(direct=DirectTools(is_all=True)) as on:
        await on.client.request("tools/list")
        later = Client(on.proxy)  # to the first one, the tools may be news
        await later.initialize()
        on.upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await on.upstream.hears("tools/list", 2)
        await settled()
        assert later.heard("notifications/tools/list_changed") == []


async def test_other_overrides_after_a_reload_are_a_changed_list_and_count_at_once() -> None:
    direct = DirectTools(is_all=True)
    async with scene(direct=direct) as on:
        await on.client.request("tools/list")
        changed = rules_of(create_issue={"rename": "report", "arguments": {"repo": {"fixed": "acme/web"}}})
        on.proxy.apply(config_of(group_config("up", rules=changed, tools=WITHOUT_INTERNAL, direct=direct)))
        await on.client.hears("notifications/tools/list_changed")
        assert await on.call("up__report", body="b", labels=[]) == "done"
        assert on.sent() == [("create_issue", {"repo": "acme/web", "body": "b", "labels": []})]
