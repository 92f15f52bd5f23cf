"""A JSONPath selects exact values, and always ends."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.mcp import selection
from dynamic_mcp.mcp.selection import BadPath
from tests.examples import examples

Json = Any  # whatever JSON a test writes down

BIG = "1" + "0" * 39
DATA = selection.parse_json(
    '{"items":[{"id":1,"name":"a","price":1.50,"ok":true},{"id":2,"name":"b","price":1e400}],"total":' + BIG + "}"
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.total", f"[{BIG}]"),
        ("total", f"[{BIG}]"),
        ("$.items[*].name", '["a","b"]'),
        ("$.items[0].price", "[1.50]"),
        ("$.items[-1].price", "[1e400]"),
        ("$..id", "[1,2]"),
        ("$.items[?(@.price < 2)].name", '["a"]'),
        ("$.items[?(@.ok == true)].id", "[1]"),
        ("$.items[?(@.id > 1 && @.name == 'b')].id", "[2]"),
        ("$.items[?(@.id == 1 || @.id == 2)].id", "[1,2]"),
        ("$.items[:1].id", "[1]"),
        ("$['items'][1]['id']", "[2]"),
        ("$.items.`len`", "[2]"),
        ("$.nothing", "[]"),
        ("$.items[9]", "[]"),
    ],
)
def test_a_path_selects(path: str, found: str) -> None:
    assert selection.write_json(selection.select(path, DATA)) == found


@pytest.mark.parametrize(
    ("path", "expected"),
    [("$.a.b", True), ("$.a[0]", True), ("$", True), ("$.a[*]", False), ("$..a", False), ("$.a[0:1]", False)],
)
def test_a_path_that_can_match_one_value_only_is_definite(path: str, *, expected: bool) -> None:
    assert selection.is_definite(path) is expected


@pytest.mark.parametrize(
    "path",
    ["", "$.[", "(", "$.a b", "\x00", "$.\u65e5", "$" * 900, "(" * 900, "$.a" * 900, "$[?(", "$.a`sub(/(a+)+/, b)`"],
    ids=lambda path: path[:10],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        selection.select(path, DATA)


@pytest.mark.parametrize(
    "path",
    [
        "$.items[?(@.name =~ '(a+)+$')]",
        "$.items[0].name.`sub(/(a+)+$/, b)`",
        "$.items[?(@..id > 1)]",
        "$.total * 1000",
        "$.items[0].name * 1000000000",
        "$.items[?(@.id == $.items[0].id)]",
        "$.items.`parent`",
        "$..(items..id)",
    ],
)
def test_what_could_run_for_ever_is_not_offered(path: str) -> None:
    with pytest.raises(BadPath):
        selection.select(path, DATA)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("path", ["$..*", "$" + "..*" * 200, "$[?(@.a)]", "$[*]"], ids=lambda path: path[:10])
def test_a_path_that_matches_too_much_says_so(path: str) -> None:
    data: Json = [{"a": {"b": [n, n]}} for n in range(selection.MAX_MATCHES + 1)]

    with pytest.raises(BadPath, match="matches more than"):
        selection.select(path, data, clock=lambda: 0.0)


def test_a_path_that_takes_too_long_is_stopped() -> None:
    clock = itertools.count(0.0, selection.MAX_S / 10)

    with pytest.raises(BadPath, match="takes longer"):
        selection.select("$..a", [[] for _ in range(100)], clock=lambda: next(clock))


def test_data_nested_without_end_are_walked() -> None:
    data: Json = {}
    for _ in range(5000):
        data = {"a": data}

    assert len(selection.select("$..a", data)) == 5000


def test_a_lone_surrogate_passes() -> None:
    assert selection.write_json(selection.parse_json(r'["\ud800",1.50]')) in (r'["\ud800",1.50]', r'["\ud800",1.5]')


@examples(100)
@given(st.text(max_size=30), st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3)))
def test_whatever_the_path_it_selects_or_is_refused(path: str, data: Json) -> None:
    with contextlib.suppress(BadPath):
        assert isinstance(selection.select(path, data), list)


def test_the_shape_of_data_is_told_in_a_line() -> None:
    told = selection.describe_shape({"items": [{"id": 1, "name": "a"}] * 3, "next": None, "done": True, "none": []})

    assert told == '{"items": [3 of {"id": number, "name": string}], "next": null, "done": boolean, "none": [0]}'


def test_the_shape_of_huge_data_is_short() -> None:
    deep: Json = {}
    for _ in range(5000):
        deep = {"a" * 100: deep}

    for data in (deep, {str(n): {str(m): m for m in range(1000)} for n in range(1000)}):
        assert len(selection.describe_shape(data)) < 2000


def test_numbers_stay_as_they_were_written() -> None:
    text = "[0.10,1E5,-0.0,1e400,0.1e-400," + BIG + "]"

    assert selection.write_json(selection.parse_json(text)) == text
    assert json.loads(selection.write_json(selection.parse_json('{"a":[true,null,"\u00e9"]}'))) == {
        "a": [True, None, "\u00e9"]
    }
