"""What hides a resource hides the skill: in the list, in the search and by its URI."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, Json, Opener, config_of, group_config, text_of
from tests.policy.rules import access_of, person
from tests.proxy.skill_upstreams import SkillUpstream, list_skills

SKILLS = {"refunds": {"email.md": "of a"}, "payroll": {"salaries.md": "secret"}, "team/payroll-run": {}}


@contextlib.asynccontextmanager
async def _client(*rules: Json, only: str | None = None) -> AsyncIterator[tuple[Client, SkillUpstream]]:
    upstream = SkillUpstream("a", SKILLS)
    access = access_of(roles={"dev": list(rules)})
    proxy = Proxy(config_of(group_config("a"), access=access), opener=Opener(a=[upstream]))
    try:
        client = Client(proxy, only=only, authentication=person("ann", "dev"))
        await client.initialize()
        await client.request("skills/list", {})
        yield client, upstream
    finally:
        await proxy.close()


@pytest.mark.parametrize("only", [None, "a"])
async def test_a_hidden_skill_does_not_exist_for_its_client(only: str | None) -> None:
    rule = {"servers": ["a"], "resources": ["skill://refunds/*"]}
    async with _client(rule, only=only) as (client, upstream):
        assert list(await list_skills(client)) == ["skill://refunds/SKILL.md"]
        for method, uri in (
            ("skills/get", "skill://payroll/SKILL.md"),
            ("resources/read", "skill://payroll/salaries.md"),
            ("resources/directory/read", "skill://payroll"),
        ):
            hidden = (await client.request(method, {"uri": uri}))["error"]
            missing = (await client.request(method, {"uri": uri.replace("payroll", "nothing")}))["error"]
            assert hidden["message"].replace("payroll", "nothing") == missing["message"]
            assert hidden["code"] == missing["code"]
    assert {each["params"]["uri"] for each in upstream.sent if "uri" in each.get("params", {})} == set()


@pytest.mark.parametrize("only", [None, "a"])
async def test_a_directory_is_without_what_is_hidden(only: str | None) -> None:
    rules = (
        {"servers": ["a"], "resources": ["skill://*"]},
        {"servers": ["a"], "resources": ["*/email.md"], "effect": "deny"},
    )
    async with _client(*rules, only=only) as (client, _):
        answer = await client.request("resources/directory/read", {"uri": "skill://refunds"})
    assert [each["uri"] for each in answer["result"]["resources"]] == ["skill://refunds/SKILL.md"]


async def test_a_hidden_skill_is_not_found() -> None:
    async with _client({"servers": ["a"], "resources": ["skill://refunds/*"]}) as (client, _):
        for query, found in (("payroll", []), ("refunds", ["skill://refunds/SKILL.md"])):
            ask = {"name": "get_dynamic_tools", "arguments": {"query": query}}
            shown = json.loads(text_of((await client.request("tools/call", ask))["result"]))
            assert [each["uri"] for each in shown.get("skills", [])] == found


async def test_one_skill_needs_no_approval_that_reading_it_needs() -> None:
    """It says no more than the list."""
    rule = {"servers": ["a"], "resources": ["skill://*"], "effect": "ask"}
    async with _client(rule) as (client, _):
        answer = await client.request("skills/get", {"uri": "skill://refunds/SKILL.md"})
        assert "skill" in answer["result"]
