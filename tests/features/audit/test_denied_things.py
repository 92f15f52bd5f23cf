"""Whoever tries what the access rules hide hears that there is no such thing; the audit log says what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from tests.features.audit.audited import Audited, Json, audited
from tests.policy.rules import access_of

ANN = Authentication(Principal("https://idp.example", "ann"), "jwt", roles=("dev",))
GETTERS: Json = {"id": "getters", "tools": ["get_*"], "prompts": [], "resources": []}
NO_DELETE: Json = {"id": "no-delete", "effect": "deny", "tools": ["delete_*"]}
NO_FILES: Json = {"id": "no-files", "effect": "deny", "resources": ["file:**"], "tools": []}
NO_PROMPTS: Json = {"id": "no-prompts", "effect": "deny", "prompts": ["*"], "tools": []}
ALL: Json = {"id": "all", "tools": ["*"], "prompts": ["*"], "resources": ["**"]}
ELSEWHERE: Json = {"id": "elsewhere", "servers": ["other"]}


def call(group: str, name: str) -> Json:
    return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": name, "args": {"a": 1}}}


async def _try(on: Audited, method: str, params: Json, *, only: str | None = None) -> tuple[Json, dict[str, Json]]:
    """Return what a client is answered, and the line of that; somebody else has used the server before."""
    everything = await on.join(LOCAL_USER)
    for each in ("tools/list", "prompts/list", "resources/list"):
        await everything.request(each)
    await everything.request("tools/call", call("up", "get_thing"))
    answer = await (await on.join(ANN, only=only)).request(method, params)
    return answer, on.lines()[-1]


@pytest.mark.parametrize(
    ("rules", "method", "params", "rule"),
    [
        ([GETTERS], "tools/call", call("up", "delete_thing"), "default"),
        ([ALL, NO_DELETE], "tools/call", call("up", "delete_thing"), "no-delete"),
        ([ALL, NO_DELETE], "tools/call", call("up", "up__delete_thing"), "no-delete"),
        ([ALL, NO_DELETE], "tools/call", {"name": "up__delete_thing"}, "no-delete"),
        ([ALL, NO_DELETE], "tools/call", {"name": "delete_thing"}, "no-delete"),
        ([ELSEWHERE], "tools/call", call("up", "get_thing"), "default"),
        ([ELSEWHERE], "tools/call", {"name": "up__anything"}, "default"),
        ([ALL, NO_PROMPTS], "prompts/get", {"name": "up__review"}, "no-prompts"),
        ([ALL, NO_PROMPTS], "prompts/get", {"name": "review"}, "no-prompts"),
        ([ALL, NO_FILES], "resources/read", {"uri": "file:///a"}, "no-files"),
        ([ALL, NO_FILES], "resources/read", {"uri": "dynamic-mcp://up/file%3A%2F%2F%2Fa"}, "no-files"),
    ],
)
async def test_what_is_hidden_and_tried_is_denied_by_the_rule_that_hides_it(
    tmp_path: Path, rules: list[Json], method: str, params: Json, rule: str
) -> None:
    async with audited(tmp_path, access=access_of(roles={"dev": rules})) as on:
        answer, line = await _try(on, method, params)
    assert (line["outcome"], line["error"]) == ("denied", "AccessDenied")
    assert (line["decision"], line["rule"]) == ("deny", rule)
    assert (line["group"], line["subject"]) == ("up", "ann")
    assert "no-" not in str(answer)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", call("up", "made_up")),
        ("tools/call", call("nowhere", "delete_thing")),
        ("tools/call", {"name": "made_up"}),
        ("prompts/get", {"name": "up__made_up"}),
    ],
)
async def test_what_is_nowhere_is_not_found(tmp_path: Path, method: str, params: Json) -> None:
    async with audited(tmp_path, access=access_of(roles={"dev": [ALL, NO_DELETE]})) as on:
        _, line = await _try(on, method, params)
    assert (line["outcome"], line["error"]) == ("failure", "NotFound")
    assert "rule" not in line


async def test_a_client_of_one_group_that_is_hidden_from_it_is_denied(tmp_path: Path) -> None:
    async with audited(tmp_path, access=access_of(roles={"dev": [ALL, NO_DELETE]})) as on:
        _, line = await _try(on, "tools/call", {"name": "delete_thing"}, only="up")
    assert (line["outcome"], line["rule"], line["group"]) == ("denied", "no-delete", "up")


async def test_a_search_under_rules_has_one_line_with_what_it_left_out(tmp_path: Path) -> None:
    async with audited(tmp_path, access=access_of(roles={"dev": [GETTERS]})) as on:
        _, line = await _try(on, "tools/call", {"name": "get_dynamic_tools", "arguments": {"query": "thing"}})
        of_ann = [each for each in on.lines() if each.get("subject") == "ann"]
    assert [each["event"] for each in of_ann] == ["list"]
    assert (line["kind"], line["name"]) == ("search", "get_dynamic_tools")
    assert line["detail"] == {"shown": 1, "hidden": 3, "hidden_groups": 0}
