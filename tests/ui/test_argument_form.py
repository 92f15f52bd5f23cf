"""Forms of arguments: what a person types for each kind of JSON Schema becomes the arguments of the call."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.ui.argument_form import (
    MOST_FIELDS,
    ArgumentForm,
    FormError,
    build_form,
    build_text_form,
    key_of,
    parse_object,
)
from dynamic_mcp.ui.byte_budget import ByteBudget

Json = Any  # JSON that a test writes


def form_of(*required: str, **properties: Json) -> ArgumentForm:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return build_form(schema, ByteBudget(50_000))


def parse(form: ArgumentForm, **typed: str) -> Json:
    return json.loads(bytes(form.parse({key_of(name): text for name, text in typed.items()})))


def type_of(schema: Json, **more: Json) -> str:
    return build_form({"properties": {"a": schema}, **more}, ByteBudget(50_000)).fields[0].type


def choice_key(form: ArgumentForm, text: str) -> str:
    return next(each.key for each in form.fields[0].choices if each.text == text)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "a b", "a b"),
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, " two\r\nlines ", " two\nlines "),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "number"}, "-0.5", -0.5),
        ({"type": "boolean"}, "false", False),
        ({"type": ["string", "null"]}, "x", "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
        ({"type": "array", "items": {"type": "string"}}, "one\n\ntwo words\n", ["one", "two words"]),
        ({"type": "array", "items": {"type": "integer"}}, "1\n2", [1, 2]),
        ({"type": "array", "items": {"type": "boolean"}}, "true", [True]),
        ({"type": "object", "properties": {"b": {}}}, '{"b": [1]}', {"b": [1]}),
        ({"type": "array", "items": {"type": "object"}}, '[{"b": 1}]', [{"b": 1}]),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, '"x"', "x"),
        ({}, "null", None),
        (True, "[]", []),
    ],
)
def test_each_kind_of_argument_is_read_as_its_schema_says(schema: Json, text: str, value: Json) -> None:
    assert parse(form_of(a=schema), a=text) == {"a": value}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "text"),
        ({"type": "number"}, "number"),
        ({"type": "integer"}, "integer"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": ["a", 1, None]}, "choice"),
        ({"const": "a"}, "choice"),
        ({"enum": [{"no": "scalar"}]}, "json"),
        ({"enum": [str(number) for number in range(500)], "type": "string"}, "text"),
        ({"type": "array", "items": {"type": "number"}}, "lines"),
        ({"type": "array", "items": {"type": "array"}}, "json"),
        ({"type": "array"}, "json"),
        ({"type": "object"}, "json"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "json"),
        ({"type": ["string", "number"]}, "json"),
        ({"type": "string", "not": {"const": "x"}}, "json"),
        ({"type": 7}, "json"),
        ("no schema", "json"),
    ],
)
def test_what_has_no_field_of_its_own_is_typed_as_json(schema: Json, expected: str) -> None:
    assert type_of(schema) == expected


def test_references_within_the_schema_are_followed() -> None:
    assert type_of({"$ref": "#/$defs/a~1b"}, **{"$defs": {"a/b": {"type": "integer"}}}) == "integer"
    assert type_of({"$ref": "#/properties/a"}) == "json"
    assert type_of({"$ref": "https://example.com/x"}) == "json"


def test_a_number_keeps_the_digits_that_were_typed() -> None:
    form = form_of(a={"type": "number"}, b={"type": "object"})
    digits = "1234567890123456789012345678901234567890.10"

    arguments = bytes(form.parse({key_of("a"): digits, key_of("b"): f'{{"c": {digits}}}'}))

    assert arguments.count(digits.encode()) == 2


def test_what_is_left_empty_is_left_out_unless_it_is_required() -> None:
    form = form_of(
        "needed", "items", needed={"type": "string"}, items={"type": "array", "items": {"type": "string"}}, rest={}
    )

    assert parse(form, needed="x", rest=" ") == {"needed": "x", "items": []}
    with pytest.raises(FormError, match="“needed” is required") as caught:
        parse(form)
    assert caught.value.key == key_of("needed")


def test_a_choice_is_the_value_itself_whatever_its_type() -> None:
    form = form_of(a={"enum": ["1", 1, True, None]})

    assert [parse(form, a=each.key)["a"] for each in form.fields[0].choices] == ["1", 1, True, None]


def test_a_choice_that_the_tool_no_longer_has_is_refused() -> None:
    before = form_of(a={"enum": ["x", "y"]})
    after = form_of(a={"enum": ["y", "z"]})

    assert parse(after, a=choice_key(before, "y")) == {"a": "y"}
    with pytest.raises(FormError, match="choose again"):
        parse(after, a=choice_key(before, "x"))


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        ({"type": "integer"}, "1.5", "not a whole number"),
        ({"type": "number"}, "one", "not a number"),
        ({"type": "number"}, "NaN", "not a number"),
        ({"type": "boolean"}, "yes", "neither true nor false"),
        ({"type": "array", "items": {"type": "integer"}}, "1\nx", "not a number"),
        ({"type": "object"}, "{", "not JSON"),
        ({"type": "object"}, '{"a": 1, "a": 2}', "given twice"),
        ({"type": "object"}, "[" * 20_000, "not JSON"),
        ({"type": "object"}, '{"a": Infinity}', "not JSON"),
    ],
)
def test_what_is_no_value_of_its_field_is_said_with_the_field(schema: Json, text: str, message: str) -> None:
    with pytest.raises(FormError, match=message) as caught:
        parse(form_of(a=schema), a=text)
    assert caught.value.key == key_of("a")


@pytest.mark.parametrize(("text", "message"), [("[]", "not a JSON object"), ("{]", "not JSON"), ('"x"', "object")])
def test_all_arguments_are_one_json_object(text: str, message: str) -> None:
    assert bytes(parse_object("  ")) == b"{}"
    assert bytes(parse_object(' {"a": 1.0} ')) == b'{"a": 1.0}'
    with pytest.raises(FormError, match=message):
        parse_object(text)


def test_the_required_ones_come_first_with_what_is_said_about_each() -> None:
    form = form_of(
        "b",
        a={"type": "integer", "description": "How many", "default": 3, "minimum": 1, "maximum": 10},
        b={"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Which", "default": None},
    )

    assert [(field.name, field.is_required, field.description) for field in form.fields] == [
        ("b", True, "Which"),
        ("a", False, "How many"),
    ]
    assert (form.fields[1].default, form.fields[1].bounds) == ("3", "at least 1, at most 10")


def test_no_name_of_an_argument_reaches_the_form() -> None:
    names = ['"><script>', "\u202e", "", "a" * 5000, "csrf", "result"]
    form = form_of(**{name: {"type": "string"} for name in names})

    assert all(field.key.isalnum() and len(field.key) == 17 for field in form.fields)
    assert parse(form, **dict.fromkeys(names, "x")) == dict.fromkeys(names, "x")


def test_a_schema_of_any_size_makes_a_form_of_a_bounded_one() -> None:
    huge = {f"a{number}": {"type": "string", "description": "\u202e<" * 50_000} for number in range(2000)}
    budget = ByteBudget(20_000)
    form = build_form({"properties": huge}, budget)

    assert 0 < len(form.fields) <= MOST_FIELDS
    assert form.left_out == 2000 - len(form.fields)
    assert budget.left >= 0


@pytest.mark.parametrize("schema", [None, 1, [], {"properties": 3}, {"required": [{}], "properties": {"a": None}}])
def test_an_odd_schema_makes_a_form_all_the_same(schema: Json) -> None:
    assert isinstance(build_form(schema, ByteBudget(10_000)), ArgumentForm)


def test_a_draft_keeps_what_is_no_value_as_text() -> None:
    form = form_of("b", a={"type": "integer"}, b={"type": "string"})

    assert json.loads(bytes(form.parse_draft({key_of("a"): "many"}))) == {"a": "many"}


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"a": "x", "b": ["1", "2"], "c": "y", "d": {"e": 1}, "f": False}, True),
        ({}, True),
        ({"g": 1}, False),
        ({"b": ["two\nlines"]}, False),
        ({"c": "z"}, False),
        ({"a": ""}, False),
    ],
)
def test_the_form_shows_arguments_only_if_it_says_the_same(arguments: Json, fits: bool) -> None:
    form = form_of(
        a={"type": "string"},
        b={"type": "array", "items": {"type": "string"}},
        c={"enum": ["x", "y"]},
        d={"type": "object"},
        f={"type": "boolean"},
    )
    members = {name: Raw(wire.encode(value)) for name, value in arguments.items()}

    assert form.can_show(members) is fits


def test_the_arguments_of_a_prompt_are_texts() -> None:
    form = build_text_form([("city", "Where", True), ("day", "", False)], ByteBudget(5000))

    assert parse(form, city="12") == {"city": "12"}
    assert [field.is_required for field in form.fields] == [True, False]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON, st.text(max_size=30))
def test_whatever_the_schema_is_and_whatever_is_typed_it_is_json_or_said_to_be_wrong(schema: Json, text: str) -> None:
    for form in (build_form(schema, ByteBudget(5000)), build_form({"properties": {"a": schema}}, ByteBudget(5000))):
        typed = {field.key: text for field in form.fields}
        assert isinstance(json.loads(bytes(form.parse_draft(typed))), dict)
        with contextlib.suppress(FormError):
            assert isinstance(json.loads(bytes(form.parse(typed))), dict)
