"""Arguments are repaired if their schema allows one interpretation; valid ones pass unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.tools.arguments import Interpretation, is_valid, repair, split_name
from dynamic_mcp.tools.schema import InputSchema
from tests.examples import examples

Json = Any  # whatever JSON a test writes down

TICKET = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "open": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "any": {"type": "array"},
        "either": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
        "inner": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
    },
    "required": ["title"],
}
FREE: Json = {"type": "object"}


def raw(value: Json) -> Raw:
    return value if isinstance(value, Raw) else Raw(json.dumps(value).encode())


def repair_args(args: Json, extra: Json = None, *, schema: Json = None) -> Interpretation:
    """Repair arguments according to a schema; None means that `args` is missing."""
    stood = {name: raw(value) for name, value in (extra or {}).items()}
    taken = InputSchema(raw(TICKET if schema is None else schema))
    return repair(taken, None if args is None else raw(args), stood, "`create` of group `up`")


def refusal(args: Json, extra: Json = None, *, schema: Json = None) -> str:
    """Return what is said of arguments that do not fit."""
    try:
        reading = repair_args(args, extra, schema=schema)
    except InvalidArguments as exc:
        return str(exc)
    assert reading.misfit is not None
    return str(reading.misfit.refusal("`create` of group `up`"))


WHOLE = {"title": "x", "count": 5}
TEXT = json.dumps(WHOLE)


@pytest.mark.parametrize(
    ("args", "extra"),
    [
        (TEXT, None),
        (json.dumps(TEXT), None),
        (None, WHOLE),
        (None, {"arguments": WHOLE}),
        (None, {"params": TEXT}),
        ({}, {"arguments": WHOLE}),
        ({"arguments": WHOLE}, None),
        ({"params": WHOLE}, None),
        ({"title": "x"}, {"count": 5}),
        (None, {"arguments": {"title": "x"}, "count": "5"}),
        ({"title": "x", "count": "5"}, None),
        (json.dumps({"title": "x", "count": "5"}), None),
    ],
    ids=str,
)
def test_arguments_in_another_place_or_form_are_understood_and_noted(args: Json, extra: Json) -> None:
    reading = repair_args(args, extra)

    assert json.loads(bytes(reading.args)) == WHOLE
    assert reading.notes


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("count", "5", b"5"),
        ("count", " 5 ", b"5"),
        ("count", "1" + "0" * 39, b"1" + b"0" * 39),
        ("ratio", "1.50", b"1.50"),
        ("ratio", "null", b"null"),
        ("open", "true", b"true"),
        ("open", "False", b"false"),
        ("labels", "urgent", b'["urgent"]'),
        ("labels", '["a", "b"]', b'["a", "b"]'),
        ("ids", 7, b"[7]"),
        ("ids", "7", b"[7]"),
        ("ids", ["1", 2], b"[1,2]"),
        ("any", {"a": 1}, b'[{"a": 1}]'),
        ("inner", '{"deep": "true"}', b'{"deep":true}'),
    ],
    ids=str,
)
def test_a_value_of_another_form_becomes_the_one_that_fits(name: str, value: Json, meant: bytes) -> None:
    reading = repair_args({"title": "x", name: value})

    assert bytes(reading.args) == b'{"title":"x","' + name.encode() + b'":' + meant + b"}"
    assert all(name in note for note in reading.notes)


def test_json_in_a_text_of_json_in_a_text_is_understood() -> None:
    schema: Json = {"type": "boolean"}
    value: Json = "true"
    for name in ("c", "b", "a"):
        schema = {"type": "object", "properties": {name: schema}}
        value = {name: value} if name == "a" else json.dumps({name: value})

    assert json.loads(bytes(repair_args(value, schema=schema).args)) == {"a": {"b": {"c": True}}}


@pytest.mark.parametrize(
    "args",
    [
        {"title": 5},
        {"title": "x", "count": "five"},
        {"title": "x", "count": "1.5"},
        {"title": "x", "count": None},
        {"title": "x", "open": "yes"},
        {"title": "x", "labels": None},
        {"title": "x", "either": "5"},
        {"title": "x", "any": "5"},
        {"count": 5},
    ],
    ids=str,
)
def test_what_fits_no_reading_or_two_stays_as_it_is(args: Json) -> None:
    reading = repair_args(args)

    assert reading.misfit is not None
    assert (reading.args, reading.notes) == (raw(args), ())


def test_what_can_be_put_right_is_also_where_the_rest_does_not_fit() -> None:
    reading = repair_args({"count": "5", "open": "perhaps"})

    assert json.loads(bytes(reading.args)) == {"count": 5, "open": "perhaps"}
    assert reading.notes == ("`count` was JSON in a string",)
    assert reading.misfit is not None
    assert "`count`" not in reading.misfit.describe().partition("its input schema")[0]


@pytest.mark.parametrize("extra", [{"reason": "why not"}, {"title": "x", "reason": "why not"}], ids=str)
def test_what_stands_alone_and_does_not_fit_is_still_the_arguments(extra: Json) -> None:
    reading = repair_args(None, extra, schema={**TICKET, "additionalProperties": False})

    assert json.loads(bytes(reading.args)) == extra
    assert reading.misfit is not None


@pytest.mark.parametrize("args", ["text", "[1]", '"5"', [1], 5, True], ids=str)
def test_what_is_no_object_is_refused(args: Json) -> None:
    assert "`args` is not an object" in refusal(args)


def test_two_readings_that_both_fit_are_none() -> None:
    assert "more than one way" in refusal(None, {"arguments": {"a": 1}}, schema=FREE)


def test_extra_arguments_that_are_no_parameters_change_nothing_if_args_fit() -> None:
    reading = repair_args({"title": "x"}, {"reason": "why not"})

    assert reading == Interpretation(raw({"title": "x"}))


def test_what_stands_alone_and_is_no_parameter_is_not_dropped_in_silence() -> None:
    assert "did you mean `count`?" in refusal(None, {"title": "x", "countt": 5})


def test_a_name_that_is_given_already_is_not_suggested() -> None:
    told = refusal({"title": "x", "titel": "y", "count": "five"})

    assert "did you mean" not in told


def test_what_stood_beside_the_arguments_is_named() -> None:
    assert repair_args({"title": "x"}, {"count": 5}).notes == ("`count` stood beside `args`",)


def test_an_empty_object_beside_the_arguments_is_not_a_second_interpretation() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}

    assert json.loads(bytes(repair_args({}, {"arguments": {"a": 1}}, schema=schema).args)) == {"a": 1}


def test_an_empty_list_where_one_value_is_needed_is_not_put_into_a_list() -> None:
    schema = {"type": "object", "properties": {"names": {"type": "array", "minItems": 1}}}
    reading = repair_args({"names": []}, schema=schema)

    assert (reading.args, reading.misfit is not None) == (raw({"names": []}), True)


def test_a_refusal_says_what_is_wrong_which_names_are_close_and_what_the_schema_is() -> None:
    told = refusal({"titel": "x", "count": "five"})

    assert "`create` of group `up` was not called" in told
    assert "`title` is missing" in told
    assert '`count`: "five" is not of type "integer"' in told
    assert "`titel` is not a declared parameter; did you mean `title`" in told
    assert json.dumps(TICKET, separators=(",", ":")) in told


def test_a_huge_schema_is_not_repeated_whole() -> None:
    huge = {"properties": {"a": {"type": "integer", "description": "d" * 100_000}}}

    assert len(refusal({"a": "x"}, schema=huge)) < 30_000


@pytest.mark.timeout(30)
def test_ten_megabytes_are_read_within_bounds() -> None:
    big = "x" * 10_000_000

    assert is_valid(InputSchema(raw(TICKET)), raw({"title": big}))
    assert len(repair_args(json.dumps({"title": big})).args) > 10_000_000
    assert repair_args({"title": big, "count": "5"}).misfit is not None, "what is so large is not repaired"
    assert len(refusal({"title": "x", "count": big})) < 5000
    assert len(refusal({big: 1})) < 5000
    assert len(refusal([1] * 5_000_000)) < 5000


def test_control_characters_are_not_repeated() -> None:
    assert "\x1b" not in refusal({"title": "x", "count": "\x1b[2J"})


@pytest.mark.parametrize("name", ["git__log", "git.log", "git/log"])
def test_a_name_may_carry_the_group(name: str) -> None:
    assert split_name(name, ["git", "gi", "github"]) == [("git", "log")]


def test_a_name_that_two_groups_can_explain_is_split_both_ways() -> None:
    assert split_name("a__b__c", ["a", "a__b"]) == [("a", "b__c"), ("a__b", "c")]
    assert split_name("git__", ["git"]) == split_name("log", ["git"]) == []


# --- properties ------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FITTING = st.fixed_dictionaries(
    {"title": st.text()},
    optional={
        "count": st.integers(),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "open": st.booleans(),
        "labels": st.lists(st.text(), max_size=3),
        "ids": st.lists(st.integers(), max_size=3),
        "any": st.lists(JSON_VALUES, max_size=3),
        "inner": st.fixed_dictionaries({}, optional={"deep": st.booleans()}),
        "other": JSON_VALUES,
    },
)


@examples(100)
@given(FITTING, st.sampled_from([None, 2]))
def test_arguments_that_fit_are_never_changed(args: Json, indent: int | None) -> None:
    came = Raw(json.dumps(args, indent=indent).encode())
    schema = InputSchema(raw(TICKET))

    assert is_valid(schema, came)
    assert repair(schema, came, {}, "it") == Interpretation(came)


@examples(100)
@given(st.dictionaries(st.sampled_from([*TICKET["properties"], "other"]), JSON_VALUES) | JSON_VALUES)
def test_whatever_comes_fits_in_the_end_or_is_known_not_to(args: Json) -> None:
    schema = InputSchema(raw(TICKET))
    try:
        reading = repair(schema, raw(args), {}, "it")
    except InvalidArguments:
        assert not isinstance(args, dict)
        return
    assert is_valid(schema, reading.args) == (reading.misfit is None)


@examples(100)
@given(st.dictionaries(st.text(max_size=10), JSON_VALUES, max_size=4), JSON_VALUES)
def test_whatever_extra_arguments_there_are_they_fit_in_the_end_or_are_known_not_to(extra: Json, args: Json) -> None:
    schema = InputSchema(raw(TICKET))
    try:
        reading = repair(schema, raw(args), {name: raw(value) for name, value in extra.items()}, "it")
    except InvalidArguments:
        return
    assert is_valid(schema, reading.args) or reading.misfit is not None


@pytest.mark.parametrize("extra", [{"count": 6}, {"arguments": {"title": "y"}}, {"params": '{"title": "x"}'}])
def test_extra_arguments_that_contradict_are_a_second_interpretation(extra: Json) -> None:
    assert "more than one way" in refusal(WHOLE, extra)


@pytest.mark.parametrize("extra", [{"count": 5}, {"count": "many"}, {"arguments": WHOLE}, {"params": {}}])
def test_extra_arguments_that_agree_or_do_not_fit_change_nothing(extra: Json) -> None:
    assert repair_args(WHOLE, extra) == Interpretation(raw(WHOLE))


def test_a_name_that_an_open_schema_takes_is_not_called_unknown() -> None:
    assert "declared" not in refusal(
        {"n": "x"}, schema={"type": "object", "additionalProperties": {"type": "integer"}}
    )
