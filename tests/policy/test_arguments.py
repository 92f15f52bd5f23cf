"""Arguments are read in one way, however they are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.mcp import strict_json
from dynamic_mcp.policy.arguments import ArgumentPath, Arguments, ConditionError
from dynamic_mcp.policy.globs import fold
from tests.examples import examples

PIECES = (*'{}[]":,01-.eE\\u aAé\x00\n', "9" * 25, "true", "null", "NaN", "d800")
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.dictionaries(st.text(), st.integers())).map(
        json.dumps
    ),
)


def has_keys_alike(value: object) -> bool:
    """Return whether two keys of an object look the same, which is another test's matter."""
    if isinstance(value, dict):
        return len({fold(key) for key in value}) < len(value) or any(map(has_keys_alike, value.values()))
    return isinstance(value, list) and any(map(has_keys_alike, value))


@examples(100)
@given(TEXTS, TEXTS)
@example("1e400", "1")
@example("-0", "-0.0")
@example("9" * 5000, "1")
@example('"\\ud800"', '"\\ud83d\\ude00"')
@example('1,"a" :2', "3")
def test_arguments_are_what_the_strict_parser_says_of_them(one: str, other: str) -> None:
    for text in (f'{{"a":{one},"b":{other}}}', f'{{"a": {one}, "B": "x:y"}}', f'{{"a" : 1, {other}: {one}}}', one):
        try:
            expected = strict_json.loads(text)
            json.dumps(expected, ensure_ascii=False).encode()
        except ValueError:
            with pytest.raises(ConditionError):
                _ = Arguments(Raw(text.encode() or b"-")).value
        else:
            assume(not has_keys_alike(expected))
            found = Arguments(Raw(text.encode())).value
            assert repr(found) == repr(expected if isinstance(expected, dict) else None)


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b'{"a":1,"a" :2}', b'{"a":":","a":2}', b'{"\\u0061":1,"a":2}'])
def test_a_name_that_is_there_twice_is_an_error(text: bytes) -> None:
    with pytest.raises(ConditionError):
        _ = Arguments(Raw(text)).value


@pytest.mark.parametrize(
    "text",
    [
        b'{"DATABASE":"prod","database":"stage"}',
        b'{"database":"stage","DATABASE":"prod"}',
        b'{"a":[{"b":{"c":1,"C":1}}]}',
        '{"ß":1,"SS":2}'.encode(),
        '{"name":1,"\uff4eame":2}'.encode(),
    ],
)
def test_two_keys_that_a_server_may_take_for_the_same_are_an_error_at_any_depth(text: bytes) -> None:
    with pytest.raises(ConditionError, match="differ only in spelling"):
        _ = Arguments(Raw(text)).value


def test_keys_of_different_objects_may_differ_in_their_case() -> None:
    assert Arguments(Raw(b'{"a":{"B":1},"c":{"b":2},"d":[{"e":1},{"E":2}]}')).value is not None


def test_a_value_whose_own_keys_are_in_capitals_is_found_as_it_is() -> None:
    given = Arguments(Raw(b'{"place":{"City":["Bonn"]},"list":[{"N":1}]}'))

    assert ArgumentPath("$.place").select(given) == [{"City": ["Bonn"]}]
    assert ArgumentPath("$.list[*]").select(given) == [{"N": 1}]


@pytest.mark.parametrize(("depth", "is_read"), [(200, True), (201, False)])
def test_arguments_may_be_as_wide_as_they_like_and_not_as_deep(depth: int, *, is_read: bool) -> None:
    wide = b"[" + b",".join([b"[]"] * 1000) + b"]"
    given = Arguments(Raw(b'{"wide":' + wide + b',"deep":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"))

    if is_read:
        assert given.value is not None
    else:
        with pytest.raises(ConditionError, match="nested too deeply"):
            _ = given.value


@pytest.mark.parametrize("text", [None, b"", b"null", b"[1]", b'"a"'])
@pytest.mark.parametrize("path", ["$.a", "$.A", "$..a"])
def test_a_call_without_an_object_of_arguments_has_no_values(text: bytes | None, path: str) -> None:
    given = Arguments(None if text is None else Raw(text))

    assert given.value is None
    assert ArgumentPath(path).select(given) == []
