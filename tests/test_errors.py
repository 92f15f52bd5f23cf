"""An error says what happened and how to go on, and each kind has its exit code and its JSON-RPC code."""

from __future__ import annotations

import itertools

import pytest

from dynamic_mcp.errors import (
    ConfigError,
    Disabled,
    DynamicMcpError,
    ErrorAnswer,
    InvalidArguments,
    LinkLost,
    LoginNeeded,
    NotFound,
    NotSent,
    ProtocolViolation,
    TimedOut,
    Unreachable,
    UpstreamError,
    closest,
)

ALL: list[DynamicMcpError] = [
    ConfigError("a.json", "mcpServers.x", "is wrong"),
    NotFound("group", "x"),
    Disabled("tools", "x"),
    InvalidArguments("`group` is missing"),
    LoginNeeded("x", "dynamic-mcp login x"),
    Unreachable("x", "the command `y` was not found"),
    LinkLost("x", "the server exited with code 1"),
    NotSent("x", "the server has stopped reading its input"),
    TimedOut("x", "`add` was not answered within 60 s"),
    ProtocolViolation("x", "answered `add` with neither"),
    ErrorAnswer("x", "answered tools/list with an error"),
]


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_every_error_is_one_that_somebody_can_act_on(error: DynamicMcpError) -> None:
    assert str(error).startswith(error.message)
    assert error.exit_code in (2, 4, 5)
    assert -32700 <= error.rpc_code <= -32000


@pytest.mark.parametrize("error", [each for each in ALL if isinstance(each, UpstreamError)], ids=str)
def test_what_is_wrong_with_an_upstream_names_its_group(error: UpstreamError) -> None:
    assert error.exit_code == 5
    assert str(error) == f"group `x`: {error.reason}"


def test_a_hint_stands_on_a_line_of_its_own() -> None:
    error = InvalidArguments("`args` is not an object", hint="pass the arguments by name")

    assert str(error) == "`args` is not an object\nhint: pass the arguments by name"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("mcpServers.github.url", "c.json: `mcpServers.github.url`: is not a URL"),
        ("", "c.json: is not a URL"),
    ],
)
def test_a_config_error_names_the_file_and_the_place_in_it(where: str, expected: str) -> None:
    assert str(ConfigError("c.json", where, "is not a URL")) == expected


@pytest.mark.parametrize(
    ("known", "hint", "expected"),
    [
        ([], "", ""),
        (["zoo"], "", ""),
        (["github"], "", "\nhint: did you mean `github`?"),
        (["git", "zoo", "github"], "", "\nhint: did you mean `github` or `git`?"),
        (["git", "zoo"], "the groups are `git`", "\nhint: did you mean `git`? the groups are `git`"),
        ([], "the groups are `git`", "\nhint: the groups are `git`"),
    ],
)
def test_a_wrong_name_is_answered_with_the_closest_ones(known: list[str], hint: str, expected: str) -> None:
    assert str(NotFound("group", "gihtub", known, hint=hint)) == "no group is named `gihtub`" + expected


def test_a_timeout_has_a_code_of_its_own() -> None:
    assert TimedOut("x", "late").rpc_code != Unreachable("x", "gone").rpc_code


def test_a_name_of_a_megabyte_is_not_repeated() -> None:
    assert len(str(NotFound("tool", "x" * 1_000_000))) < 1000


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("gihtub", ["git", "github", "zoo"], ["github", "git"]),
        ("READ_FILE", ["write_file", "read_file"], ["read_file", "write_file"]),
        ("Get-Sum", ["Get_Sum"], ["Get_Sum"]),
        ("xyz", ["read_file"], []),
        ("", ["read_file"], []),
        ("anything", [], []),
    ],
)
def test_the_closest_names_come_best_first_whatever_their_case(
    name: str, names: list[str], expected: list[str]
) -> None:
    assert closest(name, names) == expected


def test_no_more_than_three_names_are_close() -> None:
    assert len(closest("tool", [f"tool_{n}" for n in range(9)])) == 3


def test_what_is_close_is_looked_for_in_bounded_time_whatever_names_there_are() -> None:
    endless = (f"list_items_{number}" for number in itertools.count())
    assert len(closest("list_item", endless)) == 3
    assert closest("list_items" * 1000, ["list_items" * 1000 + "s"]) == []
    assert closest("read_fil", ["r" * 100_000, "read_file"]) == ["read_file"]
