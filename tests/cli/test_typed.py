"""Words become the values that a tool's schema asks for."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.cli.typed import arguments
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
    assert arguments([word], {**schema(a=made), "$defs": {"n": {"type": "integer"}}}) == {"a": value}


def test_a_list_grows_with_each_word_and_an_object_member_by_member() -> None:
    made = schema(
        tags={"type": "array", "items": {"type": "string"}},
        where={"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}},
    )
    words = ["tags=a", "tags=b", "where.city=Oslo", "where.floor=3"]
    assert arguments(words, made) == {"tags": ["a", "b"], "where": {"city": "Oslo", "floor": 3}}


def test_a_key_with_a_dot_of_its_own_is_one_key() -> None:
    assert arguments(["a.b=1"], schema(**{"a.b": {"type": "string"}})) == {"a.b": "1"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a=x", "`a=x` must be an integer, which `x` is not"),
        ("a=1.5", "must be an integer"),
        ("aa=1", "the tool has no argument `aa`"),
        ("a:=oops", "not JSON"),
        ("=1", "is not key=value"),
    ],
)
def test_a_word_that_means_nothing_is_named(word: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        arguments([word], schema(a={"type": "integer"}))


def test_an_unknown_argument_is_answered_with_the_closest() -> None:
    with pytest.raises(InvalidArguments) as caught:
        arguments(["timezon=UTC"], schema(timezone={"type": "string"}, city={"type": "string"}))
    assert caught.value.hint == "did you mean `timezone`? its arguments are `timezone`, `city`"


def test_a_value_that_is_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="given twice"):
        arguments(["a=1", "a=2"], schema(a={"type": "integer"}))


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
        assert isinstance(arguments(words, made), dict)
