"""The fast check accepts what fits, and never what a validator rejects."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.tools.plain_schema import compile_plain
from tests.examples import examples

Json = Any  # whatever JSON a test writes down
TYPES = ["string", "boolean", "integer", "number", "array", "object", "null"]
ATOMS = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=3)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from("abc")
NAMED = st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), unique=True)
PARAMETERS = st.fixed_dictionaries({}, optional={"type": NAMED, "description": st.text(max_size=3)})
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(NAMES, PARAMETERS, max_size=3),
        "required": st.lists(NAMES, unique=True),
        "additionalProperties": st.booleans(),
    },
)


@examples(100)
@given(SCHEMAS, VALUES)
def test_what_it_takes_a_validator_takes(schema: Json, value: Json) -> None:
    fits = compile_plain(schema)
    if fits is not None and fits(value):
        jsonschema_rs.validator_for(schema).validate(value)


@pytest.mark.parametrize(
    ("schema", "value", "taken"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x"}, True),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {}, False),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": None, "b": 1}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": True}, False),
        ({"properties": {"a": {"type": "number"}}}, {"a": 1}, True),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, False),
        ({"type": "object"}, [], False),
    ],
)
def test_arguments_that_fit_are_taken(schema: Json, value: Json, taken: bool) -> None:
    fits = compile_plain({"type": "object", **schema})
    assert fits is not None
    assert fits(value) is taken


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}]},
        {"properties": {"a": {"enum": [1]}}},
        {"properties": {"a": True}},
        {"properties": []},
        {"required": "a"},
        {"required": [1]},
        {"type": "array"},
        {"additionalProperties": {"type": "string"}},
        {"properties": {"a": {"type": "text"}}},
        {"properties": {"a": {"type": [["string"]]}}},
        {"properties": {"a": {"type": []}}},
    ],
)
def test_a_schema_that_asks_for_more_is_not_judged(schema: Json) -> None:
    assert compile_plain(schema) is None
