"""The meta-tools are the same for the same groups, and name each of them."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

from dynamic_mcp.tools import meta_tools
from dynamic_mcp.tools.meta_tools import GroupRow

ROWS = [
    GroupRow("zoo", "Animals"),
    GroupRow("git", "Repositories", "the server exited with code 1"),
    GroupRow("api", "Calls"),
]


def _tools(rows: list[GroupRow]) -> dict[str, dict[str, Any]]:  # Any: JSON
    listed = msgspec.json.decode(msgspec.json.encode(meta_tools.build_tools(rows)))
    return {tool["name"]: tool for tool in listed}


def test_there_are_two_tools() -> None:
    assert list(_tools(ROWS)) == [meta_tools.GET, meta_tools.CALL]


@pytest.mark.parametrize("is_split", [False, True])
def test_every_tool_asks_claude_code_not_to_hide_it_behind_its_own_search(*, is_split: bool) -> None:
    listed = meta_tools.build_tools(ROWS, split=is_split)

    assert [tool["_meta"] for tool in listed] == [{"anthropic/alwaysLoad": True}] * len(listed)


def test_the_same_groups_give_the_same_bytes() -> None:
    assert msgspec.json.encode(meta_tools.build_tools(ROWS)) == msgspec.json.encode(
        meta_tools.build_tools(list(ROWS))
    )


@pytest.mark.parametrize("name", [meta_tools.GET, meta_tools.CALL])
def test_the_enum_holds_every_group_in_order_also_those_that_are_down(name: str) -> None:
    schema = _tools(ROWS)[name]["inputSchema"]

    assert schema["properties"]["group"]["enum"] == ["zoo", "git", "api"]


def test_the_description_lists_the_groups_in_order_and_those_that_are_down_with_the_reason() -> None:
    description = _tools(ROWS)[meta_tools.GET]["description"]

    up, _, down = description.partition("Unavailable groups")
    assert up.index("- zoo: Animals") < up.index("- api: Calls")
    assert "- git: Repositories (Error: the server exited with code 1)" in down.splitlines()
    assert "git" not in up


def test_headings_without_groups_are_left_out() -> None:
    assert "Unavailable groups" not in _tools([ROWS[0]])[meta_tools.GET]["description"]
    assert "Available groups" not in _tools([ROWS[1]])[meta_tools.GET]["description"]


@pytest.mark.parametrize("rows", [ROWS, []], ids=["groups", "no group"])
@pytest.mark.parametrize("name", [meta_tools.GET, meta_tools.CALL])
def test_the_schemas_are_valid_json_schema(rows: list[GroupRow], name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(_tools(rows)[name]["inputSchema"])


@pytest.mark.parametrize(
    ("name", "arguments", "is_valid"),
    [
        (meta_tools.GET, {"group": "git"}, True),
        (meta_tools.GET, {"query": "create issue", "detail": "brief"}, True),
        (meta_tools.GET, {"query": "create issue", "detail": "all"}, False),
        (meta_tools.GET, {"group": "none"}, False),
        (meta_tools.CALL, {"group": "git", "name": "log"}, True),
        (meta_tools.CALL, {"group": "git", "name": "log", "args": {"any": [1]}}, True),
        (meta_tools.CALL, {"group": "git", "name": "log", "args": "any"}, False),
        (meta_tools.CALL, {"group": "git"}, False),
    ],
)
def test_the_schemas_ask_for_what_the_tools_take(name: str, arguments: object, *, is_valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(_tools(ROWS)[name]["inputSchema"])

    assert validator.is_valid(arguments) is is_valid


def test_the_instructions_name_both_tools_and_every_group() -> None:
    words = meta_tools.build_instructions(ROWS)

    for name in (meta_tools.GET, meta_tools.CALL, "zoo", "git", "api"):
        assert name in words


def test_without_groups_the_instructions_say_so() -> None:
    assert "No MCP server is configured" in meta_tools.build_instructions([])
