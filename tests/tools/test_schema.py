"""A schema checks arguments in bounded time, and is not enforced if that is impossible."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.tools.schema import InputSchema, find_schema_error

Json = Any  # whatever JSON a test writes down
LEVELS = 30


def raw(value: Json) -> Raw:
    return Raw(json.dumps(value).encode())


def schema(value: Json) -> InputSchema:
    return InputSchema(raw(value))


def nested_schema(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth):
        value = {"x": value}
    return value


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


def test_arguments_that_fit_are_taken_and_others_are_not() -> None:
    person = schema(PERSON)

    assert person.accepts(raw({"name": "Ann", "age": 5}))
    assert not person.accepts(raw({"name": 5}))
    assert not person.accepts(raw({}))
    assert not person.accepts(raw({"name": "Ann", "agee": 5}))


def test_every_flaw_is_told_with_its_place() -> None:
    told = [str(flaw) for flaw in schema(PERSON).find_flaws(raw({"age": "5", "agee": 1}))]

    assert '`age`: "5" is not of type "integer"' in told
    assert "`name` is missing" in told
    assert "`agee` is not a parameter" in told


WITH_DEFAULT = {"type": "string", "default": "css"}
SCALED: Json = {"type": "object", "properties": {"scale": WITH_DEFAULT, "title": {}}, "required": ["title", "scale"]}


@pytest.mark.parametrize(
    ("written", "args"),
    [
        (SCALED, {"title": 1}),
        ({**SCALED, "additionalProperties": False, "minProperties": 1}, {"title": 1}),
        ({"properties": {"inner": SCALED}}, {"inner": {"title": 1}}),
        ({"properties": {"list": {"type": "array", "items": SCALED}}}, {"list": [{"title": 1}]}),
        ({"properties": {"map": {"additionalProperties": SCALED}}}, {"map": {"a": {"title": 1}}}),
        ({"$defs": {"S": SCALED}, "properties": {"inner": {"$ref": "#/$defs/S"}}}, {"inner": {"title": 1}}),
        ({"$defs": {"D": WITH_DEFAULT}, "properties": {"a": {"$ref": "#/$defs/D"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {"anyOf": [WITH_DEFAULT, {"type": "null"}]}}, "required": ["a"]}, {}),
        ({"properties": {"a": WITH_DEFAULT}, "allOf": [{"required": ["a"]}]}, {}),
        ({"properties": {"a": {"default": None}}, "required": ["a"]}, {}),
        (
            {"anyOf": [{"properties": {"kind": {"const": 1}, **SCALED["properties"]}, "required": ["scale"]}]},
            {"kind": 1},
        ),
    ],
    ids=json.dumps,
)
def test_what_has_a_default_is_not_missing(written: Json, args: Json) -> None:
    judged = schema(written)

    assert judged.accepts(raw(args))
    assert judged.find_flaws(raw(args)) == []
    assert json.loads(bytes(judged.raw)) == written


@pytest.mark.parametrize(
    ("written", "args"),
    [
        (SCALED, {"scale": "css"}),
        (SCALED, {"title": 1, "scale": 5}),
        ({"properties": {"default": {}}, "required": ["default"]}, {}),
        ({"properties": {"a": {"properties": {"b": WITH_DEFAULT}}}, "required": ["a", "b"]}, {"a": {}}),
        ({"properties": {"a": {"enum": [{"default": 1}]}}, "required": ["a"]}, {}),
        (
            {"properties": {"a": WITH_DEFAULT}, "not": {"properties": {"a": WITH_DEFAULT}, "required": ["a"]}},
            {"a": "x"},
        ),
    ],
    ids=json.dumps,
)
def test_what_has_none_is_missing_and_no_other_value_is_taken_for_that(written: Json, args: Json) -> None:
    assert not schema(written).accepts(raw(args))


def test_what_fits_a_schema_as_it_is_written_fits_whatever_its_defaults_are() -> None:
    by_name = [{"properties": {name: {"default": 1}}, "required": [name]} for name in ("a", "b")]

    assert schema({"type": "object", "oneOf": by_name}).accepts(raw({"a": 1}))
    assert not schema({"type": "object", "oneOf": by_name}).accepts(raw({"a": 1, "b": 1}))


@pytest.mark.timeout(30)
def test_defaults_are_looked_for_in_bounded_time_and_depth() -> None:
    deep: Json = SCALED
    for _ in range(100):
        deep = {"properties": {"a": deep}, "required": ["a"]}
    wide = {name: {"anyOf": [{"$ref": "#/$defs/W"}] * 100} for name in map(str, range(100))}

    assert schema(deep).accepts(raw({"a": {}})) is False
    assert schema({"$defs": {"W": {"anyOf": [*wide.values()]}}, "properties": wide, "required": [*wide]}).parameters
    assert schema({"$defs": {"W": {"default": 1, "$ref": "#/$defs/W"}}, "properties": wide}).accepts(raw({}))


def doubling_schema(keyword: str) -> Json:
    """Return a schema of a few hundred bytes that expands to 2^LEVELS parts."""
    definitions = {}
    for n in range(LEVELS):
        ref = {"$ref": f"#/$defs/a{n + 1}"}
        twice = {
            "allOf": {"allOf": [ref, ref]},
            "properties": {"properties": {"x": ref}, "patternProperties": {"x": ref}},
        }
        definitions[f"a{n}"] = twice[keyword]
    return {"$defs": {**definitions, f"a{LEVELS}": {"type": "object"}}, "$ref": "#/$defs/a0"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("keyword", ["allOf", "properties"])
def test_a_small_schema_that_unfolds_to_billions_of_parts_is_not_enforced(keyword: str) -> None:
    found = schema(doubling_schema(keyword))

    assert found.accepts(raw(nested_schema(LEVELS)))


@pytest.mark.parametrize(
    "written",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"type": "objekt"},
        {"pattern": "("},
        {"$schema": "http://127.0.0.1:9/dialect", "required": ["a"]},
        [],
        5,
        {"properties": {f"p{n}": {"description": "d" * 1000} for n in range(2000)}},
    ],
    ids=["remote", "file", "dangling", "type", "pattern", "dialect", "list", "number", "huge"],
)
def test_a_schema_that_cannot_be_used_is_not_enforced(written: Json) -> None:
    assert schema(written).accepts(raw({"any": 1}))
    assert schema(written).find_flaws(raw({"any": 1})) == []


@pytest.mark.parametrize("depth", [401, 100_001])
def test_a_schema_nested_without_end_is_not_enforced(depth: int) -> None:
    refuses_everything = InputSchema(Raw(b'{"not":' * depth + b"{}" + b"}" * depth))

    assert refuses_everything.accepts(raw({"any": 1}))
    assert not InputSchema(Raw(b'{"not":{}}')).accepts(raw({"any": 1}))


def test_a_schema_that_refers_to_itself_is_enforced_to_any_depth() -> None:
    tree = schema({"properties": {"x": {"$ref": "#"}, "n": {"type": "integer"}}})

    assert tree.accepts(raw(nested_schema(200)))
    assert not tree.accepts(raw({"x": {"x": {"n": "1"}}}))
    assert schema({"$ref": "#", "type": "object"}).accepts(raw({}))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(?=(a+)+b)(a|a)*\1$"], ids=["nested", "lookahead"])
def test_a_pattern_that_could_backtrack_for_ever_ends(pattern: str) -> None:
    schema({"properties": {"s": {"pattern": pattern}}}).accepts(raw({"s": "a" * 100_000 + "!"}))


@pytest.mark.timeout(30)
def test_ten_megabytes_of_wrong_arguments_are_told_their_first_flaw() -> None:
    found = schema({"properties": {"list": {"items": {"type": "integer"}}, "s": {"maxLength": 3}}})

    assert len(found.find_flaws(raw({"list": ["a"] * 2_000_000}))) == 1
    (flaw,) = found.find_flaws(raw({"s": "x" * 10_000_000}))
    assert len(str(flaw)) < 1000


@pytest.mark.parametrize("value", [b"1e400", rb'"\ud800"'], ids=["number", "surrogate"])
def test_what_cannot_be_represented_is_not_judged(value: bytes) -> None:
    assert schema({"properties": {"a": {"type": "boolean"}}}).accepts(Raw(b'{"a":' + value + b"}"))


def test_parameters_are_those_of_every_branch_and_reference() -> None:
    found = schema(
        {
            "$defs": {"more": {"properties": {"c": {}}}},
            "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/more"}],
        }
    )

    assert set(found.parameters) == {"a", "b", "c"}
    assert found.allows_parameter("a")
    assert not found.allows_parameter("d")
    assert schema({**PERSON, "additionalProperties": {"type": "string"}}).allows_parameter("d")


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("flawed", "error"),
    [
        ({"properties": {"a": {"type": "nubmer"}}}, "at `properties/a/type`: "),
        ({"required": "a"}, "at `required`: "),
        ({"$schema": DRAFT_7, "properties": {"a": {"minimum": "x"}}}, "at `properties/a/minimum`: "),
        ({"$schema": "https://example.com/dialect", "properties": []}, "at `properties`: "),
        ({"$schema": 7}, "at `$schema`: "),
        ({"properties": {"a": {"pattern": "("}}}, "at `properties/a/pattern`: "),
    ],
)
def test_what_is_wrong_with_a_schema_is_told_with_its_place(flawed: Json, error: str) -> None:
    assert find_schema_error(flawed).startswith(error)


@pytest.mark.parametrize(
    "valid",
    [
        PERSON,
        {"$schema": DRAFT_7, "definitions": {"a": {"dependencies": {"b": ["c"]}}}},
        {"$schema": "https://example.com/dialect", "type": "object"},
        {"$ref": "https://example.com/elsewhere"},
        {"properties": {"a": {"pattern": r"^(?<letter>\p{L})"}}},
        nested_schema(400),
    ],
)
def test_a_valid_schema_has_no_error(valid: Json) -> None:
    assert find_schema_error(valid) == ""
