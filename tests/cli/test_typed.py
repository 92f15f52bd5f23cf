"""Words become the values that a tool's schema asks for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.cli.tool_arguments import argument_keys, parse_arguments
from dynamic_mcp.errors import InvalidArguments


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("made", "word", "value"),
    [
        ({"type": "string"}, "a=5", "5"),
        ({"type": "string"}, "a=x=y", "x=y"),
        ({"type": "string"}, "a=", ""),
        ({"type": "integer"}, "a=-5", -5),
        ({"type": "number"}, "a=1.5", 1.5),
        ({"type": "integer"}, "a=1.0", 1.0),
        ({"enum": 5, "type": 7}, "a=x", "x"),
        ({"type": "boolean"}, "a=yes", True),
        ({"type": "boolean"}, "a=False", False),
        ({"type": ["integer", "null"]}, "a=null", None),
        ({"type": ["string", "integer"]}, "a=5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a=7", 7),
        ({"type": "array", "items": {"type": "integer"}}, "a=7", [7]),
        ({"type": "array", "items": {"type": "integer"}}, "a=[1, 2]", [1, 2]),
        ({"type": "object"}, 'a={"b": 1}', {"b": 1}),
        ({"enum": [1, "two"]}, "a=1", 1),
        ({"$ref": "#/$defs/n"}, "a=1", 1),
        ({}, "a=1", 1),
        ({}, "a=one", "one"),
        ({"type": "string"}, "a:=[1]", [1]),
    ],
)
def test_a_word_becomes_a_value_of_its_type(made: dict[str, Any], word: str, value: object) -> None:
    assert parse_arguments([word], {**schema(a=made), "$defs": {"n": {"type": "integer"}}}) == {"a": value}


def test_a_list_grows_with_each_word_and_an_object_member_by_member() -> None:
    made = schema(
        tags={"type": "array", "items": {"type": "string"}},
        where={"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}},
    )
    words = ["tags=a", "tags=b", "where.city=Oslo", "where.floor=3"]
    assert parse_arguments(words, made) == {"tags": ["a", "b"], "where": {"city": "Oslo", "floor": 3}}


def test_a_key_with_a_dot_of_its_own_is_one_key() -> None:
    assert parse_arguments(["a.b=1"], schema(**{"a.b": {"type": "string"}})) == {"a.b": "1"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a=x", "`a` must be an integer; got `x`"),
        ("a=1.5", "must be an integer"),
        ("aa=1", "the tool has no argument `aa`"),
        ("a:=oops", "not JSON"),
        ("=1", "is not key=value"),
    ],
)
def test_a_word_that_means_nothing_is_named(word: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        parse_arguments([word], schema(a={"type": "integer"}))


def test_a_value_without_a_name_is_answered_with_the_names() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["UTC"], schema(timezone={"type": "string"}))
    assert caught.value.hint == "the keys are the arguments `timezone`"
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["{timezone:", "UTC}"], schema(timezone={"type": "string"}))
    assert caught.value.hint == "quote a JSON object to make it one argument"


def test_an_unknown_argument_is_answered_with_the_closest() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["timezon=UTC"], schema(timezone={"type": "string"}, city={"type": "string"}))
    assert caught.value.hint == "did you mean `timezone`? its arguments are `timezone`, `city`"


def test_a_value_that_is_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="given twice"):
        parse_arguments(["a=1", "a=2"], schema(a={"type": "integer"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(["type", "properties", "items", "anyOf", "enum", "$ref", "additionalProperties", "$defs"])


@given(st.dictionaries(KEYWORDS, JSON), st.lists(st.text(max_size=8)))
def test_no_schema_and_no_word_is_answered_with_anything_but_values_or_an_error_of_ours(
    made: dict[str, Any], words: list[str]
) -> None:
    with contextlib.suppress(InvalidArguments):
        assert isinstance(parse_arguments(words, made), dict)


@pytest.mark.parametrize(
    ("made", "written", "value"),
    [
        ({"type": "string"}, "two\nlines\n", "two\nlines\n"),
        ({}, "[1]\n", "[1]\n"),
        ({"type": "integer"}, "5\n", 5),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]\n", [1, 2]),
        ({"enum": ["red", "blue"]}, "red\n", "red"),
    ],
)
def test_a_value_comes_from_a_file(made: dict[str, Any], written: str, value: object, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(written.encode())
    assert parse_arguments([f"a=@{file}"], schema(a=made)) == {"a": value}


def test_json_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "value.json"
    file.write_text('{"b": [1, 2]}\n', encoding="utf-8")
    assert parse_arguments([f"a:=@{file}"], schema(a={"type": "string"})) == {"a": {"b": [1, 2]}}


def test_a_file_may_be_as_windows_powershell_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes('{"b": "é"}'.encode("utf-16"))  # with a byte order mark
    assert parse_arguments([f"a:=@{file}"], schema()) == {"a": {"b": "é"}}
    file.write_bytes("é\r\n".encode("utf-8-sig"))
    assert parse_arguments([f"a=@{file}"], schema(a={"type": "string"})) == {"a": "é\r\n"}


def test_a_text_that_begins_with_an_at_sign_is_escaped_as_in_httpie() -> None:
    made = schema(a={"type": "string"})
    assert parse_arguments([r"a=\@home"], made) == {"a": "@home"}
    assert parse_arguments([r"a=\home"], made) == {"a": r"\home"}
    assert parse_arguments(["a=me@home"], made) == {"a": "me@home"}


def test_a_file_that_cannot_be_read_is_named_with_the_way_to_write_an_at_sign(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x81\xfe")
    made = schema(a={"type": "string"})
    with pytest.raises(InvalidArguments, match="`a=@nowhere`: the file cannot be read") as missing:
        parse_arguments(["a=@nowhere"], made)
    assert missing.value.hint == r"write a text that begins with `@` as `\@nowhere`"
    with pytest.raises(InvalidArguments, match="the file is not UTF-8 text"):
        parse_arguments([f"a=@{tmp_path}/binary"], made)


def test_a_long_value_of_the_wrong_type_is_not_repeated_whole(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_text("x" * 10_000, encoding="utf-8")
    with pytest.raises(InvalidArguments, match="`a` must be an integer; got `xxx") as caught:
        parse_arguments([f"a=@{file}"], schema(a={"type": "integer"}))
    assert len(str(caught.value)) < 200


def test_the_keys_that_a_tool_takes_are_known_with_their_values() -> None:
    made = schema(
        colour={"type": "string", "enum": ["red", "blue"], "description": "Which one"},
        sizes={"type": "array", "items": {"enum": [1, 2]}},
        where={"type": "object", "properties": {"city": {"type": "string"}, "indoors": {"type": "boolean"}}},
    )
    assert [(key.name, key.values, key.is_list) for key in argument_keys(made)] == [
        ("colour", ("red", "blue"), False),
        ("sizes", ("1", "2"), True),
        ("where.city", (), False),
        ("where.indoors", ("true", "false"), False),
    ]
    assert argument_keys(made)[0].description == "Which one"


@given(st.dictionaries(KEYWORDS, JSON))
def test_no_schema_keeps_its_keys_from_being_told(made: dict[str, Any]) -> None:
    assert all(isinstance(key.name, str) for key in argument_keys(made))
